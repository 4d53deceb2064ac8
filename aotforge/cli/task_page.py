"""The page docs/tasks.md, generated from the tasks: `python -m aotforge.cli.task_page` writes it."""

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from textwrap import fill
from typing import get_args

from invoke.parser import Argument

from aotforge.cli.flags import TASKS, FlagTask
from aotforge.cli.settings import ROOT
from aotforge.cli.variables import VARIABLES
from aotforge.pipeline.requests import BuildRequest

PAGE = ROOT / "docs" / "tasks.md"
_INTRODUCTION = """\
# Tasks

`./dev TASK` and `invoke TASK` run a task; `./dev --list` lists them, `./dev TASK --help` prints its flags.
This page is generated: `python -m aotforge.cli.task_page` writes it.
A value is given as `--flag VALUE` or `--flag=VALUE`; of a flag with `*` also without its name.
`--print-completion-script bash`, `zsh` or `fish` prints a completion script.
`./dev python ARGUMENTS` runs the environment's Python, which has Triton and numpy.
Errors have a likely cause and a next step; [errors.md](errors.md) has the exit codes.
With `--json` a task prints one JSON value on standard output, also for an error.
"""
_SETTINGS = """\
## Settings

A file `aotforge.toml` in the checkout sets defaults of flags, and what has no flag: `cache-limit = 50`.
A flag comes before a variable, and that before the file. `./dev status --settings` shows all.
Besides flags:
"""
_VARIABLES = """\
## Environment variables

Besides those of compilers, AWS and pip:
"""


def task_page() -> str:
    """The page in Markdown: the tasks, their flags, settings and variables."""
    import tasks  # noqa: F401 - registers every task

    arguments = {name: task.get_arguments() for name, task in sorted(TASKS.items())}
    texts = Counter((str(one.names[0]), one.help) for listed in arguments.values() for one in listed)
    common = {key for key, count in texts.items() if count > 2}
    parts = [_INTRODUCTION, *(_wrapped(f"- `{name}`: {_summary(TASKS[name])}") for name in arguments), ""]
    parts += [
        "## Flags of several tasks",
        "",
        *(_wrapped(f"- `--{name}`: {text}") for name, text in sorted(common)),
    ]
    for name, listed in arguments.items():
        parts += ["", f"## `{name}`", "", *_examples(TASKS[name])]
        shared = [_spelled(one) for one in listed if (str(one.names[0]), one.help) in common]
        parts += [_wrapped(f"- {' '.join(shared)}")] if shared else []
        parts += [
            _wrapped(f"- {_spelled(one)}: {one.help}")
            for one in listed
            if (str(one.names[0]), one.help) not in common
        ]
    parts += ["", _SETTINGS]
    rows = [(field.name.replace("_", "-"), get_args(field.type)) for field in fields(BuildRequest)]
    parts += [_wrapped(f"- `{name}`: {words[1]}") for name, words in rows if "setting" in words[2:]]
    parts += ["", _VARIABLES, *(_wrapped(f"- `{name}`: {text}") for name, text in VARIABLES.items())]
    return "\n".join(parts) + "\n"


def _summary(task: FlagTask) -> str:
    return (inspect.getdoc(task) or "").partition("\n")[0]


def _examples(task: FlagTask) -> Iterator[str]:
    """The rest of a docstring: sentences and indented command lines."""
    text = (inspect.getdoc(task) or "").partition("\n")[2].strip("\n")
    for line in text.splitlines():
        yield f"    {line.strip()}" if line.strip().startswith("./dev") else line
    yield from [""] if text else []


def _spelled(argument: Argument) -> str:
    name = f"--no-{argument.names[0]}" if argument.default is True else f"--{argument.names[0]}"
    return f"`{name}`{'*' if argument.positional else ''}"


def _wrapped(text: str) -> str:
    return fill(text, 110, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    PAGE.write_text(task_page(), encoding="utf-8")
