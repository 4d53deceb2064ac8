"""The page docs/tasks.md, generated from the tasks' help: `python -m aotforge.cli.task_page`."""

from textwrap import fill

from aotforge.cli.command import ROOT, TASKS
from aotforge.cli.examples import example_lines
from aotforge.cli.program import flag_rows

PAGE = ROOT / "docs" / "tasks.md"
_INTRODUCTION = """\
# Tasks

Every task is a subcommand of `./dev`. This page is generated from the tasks' help:
`python -m aotforge.cli.task_page` writes it.
`./dev --list` lists them, `./dev TASK --help` prints the flags of one.
`./dev --version` prints the release, the API level and Triton's version.

A value is given as `--flag VALUE` or `--flag=VALUE`; the order of flags does not matter.
Short flags are the same everywhere: `-h` is `--help`, `-j N` is `--jobs N`, `-q` is `--quiet`.

Errors are printed on standard error with a likely cause and a next step.
[errors.md](errors.md) lists the exit codes.
With `--json` a task prints one JSON value on standard output, also for an error.
With `--progress json` tasks that take long write progress as JSON lines to standard error ([events.md](errors.md)).
"""


def task_page() -> str:
    """The page in Markdown: a section per task with its flags."""
    import tasks  # noqa: F401 - registers every task

    parts = [_INTRODUCTION]
    for name, task in sorted(TASKS.items()):
        listed = [f"- `{flag}`: {text}" for flag, text in flag_rows(task)]
        shown = example_lines(name) or [task.usage]
        parts += [f"## `{name}`\n", _wrapped(task.summary), "", *(f"    {line}" for line in shown), ""]
        parts += [*map(_wrapped, listed), *([""] if listed else [])]
    return "\n".join(parts)


def _wrapped(text: str) -> str:
    return fill(text, 110, subsequent_indent="  " * text.startswith("- "), break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(task_page(), encoding="utf-8")
