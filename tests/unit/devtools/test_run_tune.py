"""A tune of all of a profile: its functionals, their shares of the time, what is skipped and what is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.devtools.selection import choose, find_kernel
from aotforge.devtools.tune import run_tune as tool
from aotforge.devtools.tune.device_times import OnDevice
from aotforge.devtools.tune.run_tune import TuneRequest, tune
from aotforge.errors import DeviceError, ExecutionError, UnsupportedError
from tests.support.families import PROJECT
from tests.unit.devtools.test_tune import found

REQUEST = TuneRequest(root=PROJECT, cache=Path("/nonexistent"), images=(), arch="gfx908", seconds=100.0)
WANTED = [("add.add", {"dtype": one}) for one in ("fp16", "bf16", "fp32", "fp64")]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds since the start, which a search moves."""
    now = [0.0]
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(tool, "_functionals", lambda request: iter(WANTED))
    return now


def searches(monkeypatch: pytest.MonkeyPatch, clock: list[float], takes: float) -> list[tuple[str, float]]:
    """Which functional had how much time. That of bf16 has no setting."""
    had: list[tuple[str, float]] = []

    def one(request: TuneRequest, *rest: Any) -> Any:
        had.append((request.keys["dtype"], request.seconds))
        clock[0] += takes
        if request.keys["dtype"] == "bf16":
            raise UnsupportedError("add has no setting on gfx908")
        return found({}, 1.0, request.keys)

    monkeypatch.setattr(tool, "_one", one)
    return had


def test_each_functional_has_its_share_of_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    had = searches(monkeypatch, clock, takes=10.0)
    reports = tune(REQUEST)
    assert had == [("fp16", 25.0), ("bf16", 30.0), ("fp32", 40.0), ("fp64", 70.0)]
    assert len(reports.reports) == 3 and reports.left == 0
    assert reports.skipped == ("add.add dtype=bf16: add has no setting on gfx908",)
    assert reports.fields()["skipped"] == list(reports.skipped) and len(reports.fields()["functionals"]) == 3


def test_what_the_time_does_not_suffice_for_is_counted(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    had = searches(monkeypatch, clock, takes=60.0)
    reports = tune(REQUEST)
    assert [name for name, _ in had] == ["fp16", "bf16"] and reports.left == 2
    assert reports.lines()[-1] == "2 functionals are left: the same command with a larger --budget continues"


def test_a_lost_device_ends_the_tune(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    def lost(*arguments: Any) -> None:
        raise ExecutionError("after add: the GPU is not available any more")

    monkeypatch.setattr(tool, "_one", lost)
    with pytest.raises(ExecutionError, match="not available"):
        tune(REQUEST)

    def none(root: Path, **wanted: Any) -> None:
        raise DeviceError("no GPU was found on this machine")

    monkeypatch.setattr(tool, "choose_device", none)
    with pytest.raises(DeviceError):
        tune(replace(REQUEST, device=OnDevice()))


def test_the_functionals_of_a_profile_are_named_by_their_options() -> None:
    every = list(tool._functionals(replace(REQUEST, profile="quick")))
    kernels = {name for name, _ in every}
    assert {"add.add", "flash.attn_fwd", "flash.bwd_dq"} <= kernels
    for name, keys in every:
        _, kernel = find_kernel(PROJECT, name)
        chosen = choose(kernel, keys)
        assert {choice: str(option) for choice, option in chosen.items()} == keys
    assert len({(name, *keys.items()) for name, keys in every}) == len(every)
