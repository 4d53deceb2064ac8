"""Settings with their sources, and the tasks that show builds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tasks  # noqa: F401 - registers every task
from aotforge.cli.command import TASKS
from aotforge.cli.program import run
from aotforge.errors import TrustError, UnknownNameError, UsageError
from tests.unit.pipeline.test_build_record import build


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[str, str]]:
    run(["config.show", *words, "--json"])
    found: Sequence[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return {one["name"]: (one["value"], one["source"]) for one in found}


def test_a_setting_has_the_source_that_the_task_uses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTFORGE_CACHE", "/of/environment")
    monkeypatch.delenv("AOTFORGE_CACHE_FROM", raising=False)
    found = shown(capsys, "build", "--arch", "gfx908", "-j", "3")
    assert found["--arch"] == ("gfx908", "flag")
    assert found["--jobs"] == ("3", "flag")
    assert found["--cache"] == ("/of/environment", "environment AOTFORGE_CACHE")
    assert found["--profile"] == ("core", "project file manifests/profiles.yaml")
    assert found["--cache-from"] == ("not set", "default")
    assert shown(capsys, "build", "--cache", "/flag")["--cache"] == ("/flag", "flag")
    assert set(found) == {f"--{flag.name}" for flag in TASKS["build"].flags}


def test_settings_of_all_tasks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTFORGE_CACHE_FROM", "https://user:pa55@host/cache?token=pa55")
    monkeypatch.setenv("AOTFORGE_KEYS", "-----BEGIN PRIVATE KEY-----\npa55\n")
    monkeypatch.setenv("AOTFORGE_SIGNING_KEY", "pa55")  # of one line: a key in an unknown form
    found = shown(capsys)
    assert found["AOTFORGE_CACHE_FROM"] == ("https://host/cache", "environment")
    assert found["AOTFORGE_KEYS"] == ("set, not shown", "environment")
    assert found["AOTFORGE_SIGNING_KEY"] == ("set, not shown", "environment")
    assert found["triton"][1] == "project file requirements/build.in"
    assert "pa55" not in str(found)
    # a variable that a flag's help names is there
    assert {"AOTFORGE_CACHE_TO", "AOTFORGE_CACHE_ROOT", "AOTFORGE_FROM", "AOTFORGE_SIGNING_KEY"} <= set(found)


@pytest.mark.parametrize(
    ("given", "shown_as"),
    [
        ("https://h/simple https://u2:pa55@h2/simple", "https://h/simple https://h2/simple"),
        ("https://h/a,https://u2:pa55@h2/b?token=pa55", "https://h/a,https://h2/b"),
        ("\thttps://u:pa55@h/simple\t", "\thttps://h/simple\t"),
        ("https://u:pa55@[h", "(an address that is not valid)"),
        ("/of/environment", "/of/environment"),
    ],
)
def test_no_address_is_shown_with_its_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: str, shown_as: str
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", given)
    assert shown(capsys)["PIP_INDEX_URL"] == (shown_as, "environment")


def test_a_shared_cache_without_a_root_of_trust_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aotforge.cli.cache.ROOT", tmp_path)
    monkeypatch.delenv("AOTFORGE_CACHE_ROOT", raising=False)
    with pytest.raises(TrustError, match="shared cache http://host/x with") as caught:
        run(["cache.show", "--cache", str(tmp_path), "--cache-from", "http://user:pa55@host/x?token=pa55"])
    assert "pa55" not in str(caught.value)


def test_an_invalid_command_line_is_refused() -> None:
    with pytest.raises(UsageError):
        run(["config.show", "build", "--archs", "gfx908"])


def test_status_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = ("--cache", str(tmp_path / "cache"))
    run(["status", *cache])
    assert capsys.readouterr().out == "no builds\n"
    record = build(tmp_path / "cache")
    run(["status", "--json", *cache])
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["state"], found["compiled"], found["known"]) == (
        record.name,
        "finished",
        1,
        1,
    )
    page = tmp_path / "page.html"
    run(["report", "--output", str(page), *cache])
    assert record.name in page.read_text()
    with pytest.raises(UnknownNameError, match="unknown build other"):
        run(["report", "other", *cache])
