"""Tasks: every flag has help, requests are made of flags, docs/tasks.md is up to date."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import tasks  # noqa: F401 - registers every task
from aotforge.cli.command import TASKS, make_request, pairs
from aotforge.cli.examples import EXAMPLES, example_lines
from aotforge.cli.flags import parse_flags
from aotforge.cli.program import find_task, task_help
from aotforge.cli.task_page import PAGE, task_page
from aotforge.errors import UnknownNameError, UnsupportedError, UsageError
from aotforge.pipeline.requests import BuildRequest

FLAGS = {
    **dict.fromkeys(("cache_from", "cache_to", "cache_root", "cache_keys")), "cache_limit": 20.0,
    "engine": "local", "scheduler": None, "trust_network": False, "worker_minutes": 10.0,
    "arch": None, "profile": None, "cache": "here", "jobs": None, "output": "out", "platform": "linux", "images": None,
    "verify": True, "executor": "local", "keep": False, "shard": None, "gather": None, "only": None, "version": None, "unexecuted": False,
    "format": "release",
}  # fmt: skip


def test_the_page_of_tasks_is_generated_and_every_flag_has_help() -> None:
    assert len(TASKS) > 35
    page = task_page()
    assert PAGE.read_text(encoding="utf-8") == page, "run python -m aotforge.cli.task_page"
    lines = page.splitlines()
    assert lines and not [line for line in lines if line.endswith(("`: None", "`:", "`: "))]
    assert all(task.summary for task in TASKS.values())


def test_a_request_has_the_values_of_its_flags() -> None:
    flags = {**FLAGS, "arch": "gfx90a,gfx908", "jobs": 3, "only": "flash,add"}
    request: BuildRequest = make_request(BuildRequest, flags)
    assert request.archs == ("gfx90a", "gfx908") and request.jobs == 3
    assert request.output == Path("out").absolute() and request.cache == Path("here").absolute()
    assert request.only == ("flash", "add")


@pytest.mark.parametrize(
    ("flag", "value", "error"),
    [
        ("arch", "gfx9o8", UnknownNameError),
        ("arch", "gfx908,", UnknownNameError),
        ("jobs", -1, UsageError),
        ("jobs", 0, UsageError),
    ],
)
def test_an_invalid_flag_is_refused(flag: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        make_request(BuildRequest, {**FLAGS, flag: value})


def test_pairs() -> None:
    assert pairs("a=1,b=x") == {"a": "1", "b": "x"} and pairs("") == {}
    with pytest.raises(UnsupportedError, match="is not a list of NAME=VALUE"):
        pairs("a=1,b")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_a_task_is_a_valid_call(name: str) -> None:
    task = find_task(name)
    shown = task_help(task)
    for line in example_lines(name):
        dev, own, *words = shlex.split(line)
        assert (dev, own) == ("./dev", name) and f"  {line}\n" in f"{shown}\n"
        if not task.forwards:
            parse_flags(task, words)
