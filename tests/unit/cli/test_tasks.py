"""Tasks: requests are made of flags and aotforge.toml, examples are valid, docs/tasks.md is up to date."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from pathlib import Path

import pytest
from invoke.parser import Parser

import tasks
from aotforge.cli import settings
from aotforge.cli.flags import TASKS, make_request
from aotforge.cli.program import run
from aotforge.cli.settings import ROOT, VARIABLES
from aotforge.cli.values import pairs
from aotforge.errors import ManifestError, UnknownNameError, UnsupportedError, UsageError
from aotforge.pipeline.requests import BuildRequest
from tests.support.task_page import PAGE, task_page

FLAGS = {
    "arch": "gfx90a,gfx908",
    "cache": "here",
    "jobs": 3,
    "output": "out",
    "only": "flash,add",
    "verify": True,
}
MOST_WORDS, MOST_VARIABLES = 3100, 18


def test_the_page_of_tasks_is_generated_and_every_flag_has_help() -> None:
    page = task_page()
    assert PAGE.read_text(encoding="utf-8") == page, "run python -m tests.support.task_page"
    assert len(page.split()) <= MOST_WORDS
    assert all(one.help for task in TASKS.values() for one in task.get_arguments())
    assert all(task.__doc__ for task in TASKS.values())


def test_a_request_has_the_values_of_its_flags() -> None:
    request: BuildRequest = make_request(BuildRequest, FLAGS)
    assert request.archs == ("gfx90a", "gfx908") and request.jobs == 3
    assert request.output == Path("out").absolute() and request.cache == Path("here").absolute()
    assert request.only == ("flash", "add") and request.verify and request.executor == "local"


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


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose aotforge.toml is read."""
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    settings.load_settings.cache_clear()
    return tmp_path / "aotforge.toml"


def test_a_flag_comes_before_a_variable_and_a_variable_before_the_file(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.write_text('jobs = 1\nprofile = "quick"\ncache-limit = 5\ncache_from = "/srv"\nverify = false\n')
    request = make_request(BuildRequest, FLAGS)
    assert (request.jobs, request.profile, request.cache_limit) == (3, "quick", 5.0)
    assert (request.cache_from, request.verify) == ("/srv", False)
    monkeypatch.setenv("AOTFORGE_CACHE_FROM", "/elsewhere")
    assert make_request(BuildRequest, FLAGS).cache_from is None  # who reads the cache takes the variable
    assert make_request(BuildRequest, {**FLAGS, "profile": "smoke"}).profile == "smoke"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profil = 'quick'", "unknown key profil\n(.|\n)*perhaps you meant profile"),
        ("jobs = 'many'", "jobs = 'many' is not an integer"),
        ("jobs =", "is not valid TOML"),
    ],
)
def test_an_invalid_file_of_settings_is_refused(checkout: Path, text: str, message: str) -> None:
    checkout.write_text(text)
    with pytest.raises(ManifestError, match=message):
        make_request(BuildRequest, FLAGS)


def test_pairs() -> None:
    assert pairs("a=1,b=x") == {"a": "1", "b": "x"} and pairs("") == {}
    with pytest.raises(UnsupportedError, match="is not a list of NAME=VALUE"):
        pairs("a=1,b")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_example_of_a_task_is_a_valid_call(name: str) -> None:
    lines = re.findall(r"^ *\./dev (.*)$", inspect.getdoc(TASKS[name]) or "", re.MULTILINE)
    for line in lines:
        contexts = Parser(contexts=tasks.namespace.to_contexts()).parse_argv(shlex.split(line))
        assert name in {contexts[0].name, *contexts[0].aliases}


def test_settings_are_shown_with_their_source_and_without_secrets(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.write_text('cache-from = "https://user:pa55@host/x?token=pa55"')
    monkeypatch.setattr(
        "aotforge.cli.images.load_settings", lambda _: settings.load_settings(checkout.parent)
    )
    monkeypatch.setenv("AOTFORGE_SIGNING_KEY", "pa55")
    monkeypatch.setenv("AOTFORGE_CACHE", "/srv/cache")
    run(tasks.namespace, ["status", "--settings", "--json"])
    text = capsys.readouterr().out
    rows = {row["name"]: (row["value"], row["source"]) for row in json.loads(text)}
    assert "pa55" not in text and rows["AOTFORGE_CACHE"] == ("/srv/cache", "environment")
    assert rows["AOTFORGE_SIGNING_KEY"] == ("set, not shown", "environment")
    assert rows["cache-from"][1] == "aotforge.toml" and rows["triton"][1] == "requirements/build.txt"


def test_every_variable_that_a_program_reads_is_listed() -> None:
    """Ours, by what reads them: Python's and C's environments, the library's own functions, `dev`."""
    reads = re.compile(
        r"(?:environ(?:ment)?(?:\.get\(|\[)|getenv\(|(?:trusted|short)_variable\(|^[A-Z_]+ = )"
        r"['\"]((?:AOTFORGE|AOTRITON|TRITON_CPU)_[A-Z_]+)['\"]",
        re.MULTILINE,
    )
    paths = [path for top in ("aotforge", "vgpu", "ttcpu") for path in (ROOT / top).rglob("*.[ch]*")]
    paths += [path for top in ("aotforge", "vgpu", "ttcpu") for path in (ROOT / top).rglob("*.py")]
    paths += [*(ROOT / "runtime" / "src").rglob("*.[ch]*")]
    read = {
        name for path in paths for name in reads.findall(path.read_text(encoding="utf-8", errors="replace"))
    }
    read |= set(re.findall(r"\$\{(AOTFORGE_[A-Z_]+)", (ROOT / "dev").read_text()))
    written = {"AOTFORGE_CACHE_KEY", "AOTRITON_FLASH_BLOCK_DMODEL"}  # the latter for AOTriton's generator
    assert read - written <= VARIABLES.keys() and len(VARIABLES) <= MOST_VARIABLES
    assert VARIABLES.keys() - read <= {"AOTFORGE_PARTIAL_PACK"}
