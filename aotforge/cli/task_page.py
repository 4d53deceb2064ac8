"""The page docs/tasks.md, generated from the tasks' help: `python -m aotforge.cli.task_page`."""

from textwrap import fill

from aotforge.cli.command import ROOT, TASKS

PAGE = ROOT / "docs" / "tasks.md"
_INTRODUCTION = """\
# Tasks

Every task is a subcommand of `./dev`. This page is generated from the tasks' help:
`python -m aotforge.cli.task_page` writes it.
`./dev --list` lists them, `./dev --help TASK` prints the flags of one.

Errors are printed on standard error with a likely cause and a next step.
[errors.md](errors.md) lists the exit codes.
With `--json` a task prints one JSON value on standard output, also for an error.
"""


def task_page() -> str:
    """The page in Markdown: a section per task with its flags."""
    import tasks  # noqa: F401 - registers every task

    parts = [_INTRODUCTION]
    for name, task in sorted(TASKS.items()):
        flags = sorted(task.get_arguments(), key=lambda flag: (not flag.positional, flag.names[0]))
        names = [f.names[0].upper() if f.positional else f"--{f.names[0]}" for f in flags]
        listed = [f"- `{name}`: {flag.help}" for name, flag in zip(names, flags, strict=True)]
        parts += [f"## `{name}`\n", _wrapped(task.__doc__ or ""), *([""] if listed else [])]
        parts += [*map(_wrapped, listed), ""]
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    return fill(text, 110, subsequent_indent="  " * text.startswith("- "), break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(task_page(), encoding="utf-8")
