"""The page docs/tasks.md, generated from the tasks: `python -m aotforge.cli.task_page` writes it."""

import inspect
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from textwrap import fill
from typing import get_args

from invoke.parser.argument import Argument

from aotforge.cli.flags import TASKS, FlagTask
from aotforge.cli.settings import ROOT, VARIABLES
from aotforge.pipeline.requests import SETTING, BuildRequest

_GENERAL = {"json", "quiet", "progress", "cache", "jobs"}
"""Flags that are not listed with each of their many tasks."""

PAGE = ROOT / "docs" / "tasks.md"
_INTRODUCTION = """\
# Tasks

`./dev TASK` and `invoke TASK` run a task; `./dev --list` lists them,
`./dev TASK --help` prints its flags with their defaults.
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
_COMMON = """\
## Flags of several tasks

`--json`, `--quiet`, `--progress`, `--cache` and `--jobs` are not repeated below.
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
    common = {key for key, count in texts.items() if count > 1}
    parts = [_INTRODUCTION, *_rows((name, _summary(TASKS[name])) for name in arguments), "", _COMMON]
    parts += _rows((f"--{name}", _brief(text)) for name, text in sorted(common))
    for name, listed in arguments.items():
        own = [one for one in listed if (str(one.names[0]), one.help) not in common]
        shared = [one for one in listed if one not in own and one.names[0] not in _GENERAL]
        parts += ["", f"## `{name}`", "", *_examples(TASKS[name])]
        parts += _rows(
            [*((_spelled(one), _brief(one.help)) for one in own), *((_spelled(one), "") for one in shared)]
        )
    rows = [(field.name.replace("_", "-"), get_args(field.type)) for field in fields(BuildRequest)]
    parts += ["", _SETTINGS, *_rows((name, _brief(words[1])) for name, words in rows if SETTING in words[2:])]
    parts += ["", _VARIABLES, *_rows(VARIABLES.items())]
    return "\n".join(parts) + "\n"


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    """A code block with a column of names and one of texts; names without a text stand in a line."""
    described = list(rows)
    width = max((len(name) for name, text in described if text), default=0)
    alone = [name for name, text in described if not text]
    lines = [f"{name:{width}}  {text}" for name, text in described if text]
    lines += [" ".join(alone)] if alone else []
    return [
        fill(
            line,
            110,
            initial_indent="    ",
            subsequent_indent=" " * (width + 6),
            break_on_hyphens=False,
            break_long_words=False,
        )
        for line in lines
    ]


def _summary(task: FlagTask) -> str:
    return (inspect.getdoc(task) or "").partition("\n")[0].removesuffix(".")


def _examples(task: FlagTask) -> list[str]:
    """The command lines of a docstring."""
    lines = [
        f"    {line.strip()}"
        for line in (inspect.getdoc(task) or "").splitlines()
        if line.strip().startswith("./dev")
    ]
    return [*lines, ""] if lines else []


def _brief(text: str | None) -> str:
    """The first clause of a help text, without its default."""
    return re.split(r"; | \((?:default|may be)", text or "")[0]


def _spelled(argument: Argument) -> str:
    name = f"--no-{argument.names[0]}" if argument.default is True else f"--{argument.names[0]}"
    return f"{name}{'*' if argument.positional else ''}"


if __name__ == "__main__":
    PAGE.write_text(task_page(), encoding="utf-8")
