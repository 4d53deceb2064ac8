"""Levels of x86-64: the highest that a processor has, and those that it lacks."""

from __future__ import annotations

import pytest

from ttcpu import levels
from ttcpu.errors import UnsupportedError


def _processor(monkeypatch: pytest.MonkeyPatch, name: str, chosen: str = "", without: str = "") -> None:
    flags = levels.level_named(name).flags - {without}
    monkeypatch.setattr(levels, "_cpu_flags", lambda: flags)
    monkeypatch.setenv("AOTFORGE_CPU_LEVEL", chosen)


@pytest.mark.parametrize("name", [level.name for level in levels.LEVELS])
def test_a_processor_has_its_level_and_those_below(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _processor(monkeypatch, name)
    names = [level.name for level in levels.LEVELS]
    assert levels.host_levels() == tuple(names[names.index(name) :])
    assert levels.host_level() == name


def test_a_missing_instruction_set_lowers_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    _processor(monkeypatch, "x86-64-v4", without="avx512vl")
    assert levels.host_level() == "x86-64-v3"


def test_a_level_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    _processor(monkeypatch, "x86-64-v4", chosen="x86-64-v3")
    assert levels.host_level() == "x86-64-v3"


def test_a_level_that_the_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _processor(monkeypatch, "x86-64-v3", chosen="x86-64-v4")
    with pytest.raises(UnsupportedError, match="does not have the level x86-64-v4") as caught:
        levels.host_level()
    assert "avx512f" in caught.value.cause


def test_a_name_that_is_no_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _processor(monkeypatch, "x86-64-v3", chosen="avx2")
    with pytest.raises(UnsupportedError, match="avx2 is not a level of x86-64"):
        levels.host_level()


def test_a_processor_below_all_levels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _processor(monkeypatch, "x86-64-v2", without="sse4_2")
    with pytest.raises(UnsupportedError, match="below x86-64-v2") as caught:
        levels.host_level()
    assert "sse4_2" in caught.value.cause
