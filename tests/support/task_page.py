"""The page docs/tasks.md, generated from the tasks: `python -m tests.support.task_page` writes it."""

import inspect
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from textwrap import fill
from typing import get_args

from invoke.parser.argument import Argument

from aotforge.base.html import render
from aotforge.cli.flags import TASKS, FlagTask
from aotforge.cli.settings import ROOT, VARIABLES
from aotforge.pipeline.requests import SETTING, BuildRequest

_GENERAL = {"json", "quiet", "progress", "cache", "jobs"}
"""Flags that are not listed with each of their many tasks."""

PAGE = ROOT / "docs" / "tasks.md"


def task_page() -> str:
    """The page in Markdown: the tasks, their flags, settings and variables."""
    import tasks  # noqa: F401 - registers every task

    arguments = {name: task.get_arguments() for name, task in sorted(TASKS.items())}
    texts = Counter((str(flag.names[0]), flag.help) for listed in arguments.values() for flag in listed)
    common = {key for key, count in texts.items() if count > 1}
    sections = []
    for name, listed in arguments.items():
        own = [flag for flag in listed if (str(flag.names[0]), flag.help) not in common]
        shared = [flag for flag in listed if flag not in own and flag.names[0] not in _GENERAL]
        rows = [
            *((_spelled(flag), _brief(flag.help)) for flag in own),
            *((_spelled(flag), "") for flag in shared),
        ]
        sections.append((name, _examples(TASKS[name]), _rows(rows)))
    settings = [(field.name.replace("_", "-"), get_args(field.type)) for field in fields(BuildRequest)]
    return render(
        "tasks.md.jinja",
        tasks=_rows((name, _summary(TASKS[name])) for name in arguments),
        common=_rows((f"--{name}", _brief(text)) for name, text in sorted(common)),
        sections=sections,
        settings=_rows((name, _brief(words[1])) for name, words in settings if SETTING in words[2:]),
        variables=_rows(VARIABLES.items()),
    )


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
    lines = map(str.strip, (inspect.getdoc(task) or "").splitlines())
    return [f"    {line}" for line in lines if line.startswith("./dev")]


def _brief(text: str | None) -> str:
    """The first clause of a help text, without its default."""
    return re.split(r"; | \((?:default|may be)", text or "")[0]


def _spelled(argument: Argument) -> str:
    name = f"--no-{argument.names[0]}" if argument.default is True else f"--{argument.names[0]}"
    return f"{name}{'*' if argument.positional else ''}"


if __name__ == "__main__":
    PAGE.write_text(task_page(), encoding="utf-8")
