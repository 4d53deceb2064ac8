"""Times on a device: which candidates are timed, what a wrong one, a fault, a lost device and a wrong
reference lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.base.object_cache import NOT_SHARED
from aotforge.devtools.cost.candidates import Candidate
from aotforge.devtools.tune import device_times as tool
from aotforge.devtools.tune.device_times import (
    DeviceTimes,
    EndedError,
    OnDevice,
    Timing,
    interleaved,
    milliseconds,
    ratio,
)
from aotforge.devtools.tune.search import EstimateStore
from aotforge.devtools.tune.tune_report import TunedCost
from aotforge.errors import CompileError, ExecutionError, VerifyError
from aotforge.verify.device.messages import DeviceResult, ShownDevice
from tests.unit.devtools.test_tune import request
from tests.unit.verify import test_device
from tests.unit.verify.test_verdicts import RESOURCES

MI100 = ShownDevice(vendor="amd", number=0, name="MI100", arch="gfx908", version="HIP 7.0.0")


def result(outcome: Any) -> DeviceResult:
    return DeviceResult.ended(test_device.task(), outcome, f"why {outcome}")


def candidate(name: str) -> Candidate:
    job: Any = SimpleNamespace(key=name, spills="reject", label=name)
    plan: Any = SimpleNamespace(jobs=())
    return Candidate(name=name, plan=plan, job=job, folder="add")


@dataclass
class Machine:
    """A device on which each image is checked with an outcome (default: passed) and takes milliseconds
    (default: 2).

    `faults` name images whose next timed call ends every process.
    """

    outcomes: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    spilled: Sequence[str] = ()
    checked: list[str] = field(default_factory=list)
    open: list[Session] = field(default_factory=list)

    def images(self, one: Candidate, call: Any) -> Any:
        if one.name == "does not compile":
            raise CompileError("error: no such thing")
        scratch = 64 if one.name in self.spilled else 0
        used = SimpleNamespace(**{**vars(RESOURCES), "scratch_bytes": scratch})
        return {one.job.key: SimpleNamespace(digest=one.name, resources=used)}

    def session(self, times: Any, calls: Any, one: Any) -> Session:
        return Session(machine=self, name=one.candidate.name)


@dataclass
class Session:
    machine: Machine
    name: str
    free: bool = True
    ended: bool = False

    def check(self) -> DeviceResult:
        self.machine.checked.append(self.name)
        self.machine.open.append(self)
        return result(self.machine.outcomes.get(self.name, "passed"))

    def milliseconds(self, shape: int, launches: int) -> tuple[float, ...] | DeviceResult:
        machine = self.machine
        if self.name in machine.faults:
            machine.faults.remove(self.name)
            for one in machine.open:
                one.ended = True
        return result("fault") if self.ended else (machine.times.get(self.name, 2.0),)

    def close(self) -> None:
        if self in self.machine.open:
            self.machine.open.remove(self)


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Times candidates on a machine beside rules that take 2 ms; returns what the store then has."""

    def run(machine: Machine, *names: str) -> dict[str, TunedCost]:

        def session(times: DeviceTimes, calls: Any, one: Any) -> Session:
            return machine.session(times, calls, one)

        monkeypatch.setattr(DeviceTimes, "_session", session)
        monkeypatch.setattr(tool, "all_images", machine.images)
        monkeypatch.setattr(tool, "compile_together", lambda found, call: None)
        monkeypatch.setattr(tool, "lost", lambda library, device: "")
        monkeypatch.setattr(tool, "driver_versions", lambda vendor: ())
        call = request(tmp_path)
        store = EstimateStore(tmp_path, NOT_SHARED, made_by="a test")
        every = [candidate(name) for name in names]
        how = OnDevice(timing=Timing(rounds=3))
        with DeviceTimes(device=MI100, how=how, library=Path(), scratch=tmp_path) as times:
            times.reference([call], [candidate("rules")], store)
            times.fill([call], every, store)
        assert machine.open == [], "a process was left"
        stored = {name: store.load(name, call) for name in ("rules", *names)}
        return {name: cost for name, cost in stored.items() if cost}

    return run


def test_right_images_have_times_and_shares_and_the_rules_are_the_measure(timed: Any) -> None:
    found = timed(Machine(times={"a": 1.0, "b": 3.0}), "a", "b")
    assert [(one.milliseconds, one.ratio) for one in found.values()] == [(2.0, 1.0), (1.0, 0.5), (3.0, 1.5)]


@pytest.mark.parametrize("outcome", ["failed", "fault", "hang", "unverified"])
def test_an_image_that_is_not_right_has_no_time_however_fast(timed: Any, outcome: str) -> None:
    found = timed(Machine(outcomes={"a": outcome}, times={"a": 0.01}), "a", "b")
    assert not found["a"].usable and not found["a"].measure
    assert found["a"].refused == f"{outcome} on the GPU: why {outcome}"
    assert found["b"].ratio == 1.0


def test_images_that_spill_or_do_not_compile_never_reach_the_device(timed: Any) -> None:
    machine = Machine(spilled=["a"])
    found = timed(machine, "a", "does not compile", "b")
    assert found["a"].scratch_bytes == 64 and not found["a"].usable
    assert "no such thing" in found["does not compile"].refused
    assert machine.checked == ["rules", "b"]


def test_rules_that_spill_have_times_which_nothing_makes_again(timed: Any) -> None:
    machine = Machine(spilled=["rules"], times={"a": 1.0})
    found = timed(machine, "a")["rules"]
    assert (found.scratch_bytes, found.ratio) == (64, 1.0) and not found.usable
    assert timed(machine)["rules"] == found and machine.checked == ["rules", "a"]


def test_a_fault_while_timed_refuses_that_image_and_tries_those_again_that_it_ended(timed: Any) -> None:
    """The first fault is the image's own; b, c and the reference, which it ends, are started again."""
    machine = Machine(faults=["a"], times={"b": 1.0, "c": 1.0})
    found = timed(machine, "a", "b", "c")
    assert "fault on the GPU" in found["a"].refused
    assert (found["b"].ratio, found["c"].ratio) == (0.5, 0.5)
    assert machine.checked.count("a") == 1 and machine.checked.count("b") == 2


def test_a_wrong_image_in_force_is_an_error(timed: Any) -> None:
    with pytest.raises(
        VerifyError, match=r"serves the call now, is not right on this GPU: failed: why"
    ) as caught:
        timed(Machine(outcomes={"rules": "failed"}), "a")
    assert "hardware.check" in caught.value.hint
    with pytest.raises(VerifyError, match="fault"):
        timed(Machine(faults=["rules"]), "a")


def test_a_device_that_is_lost_ends_the_search_and_names_the_image(
    timed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(outcomes={"a": "fault"})
    original = Machine.session

    def session(self: Machine, times: Any, calls: Any, one: Any) -> Session:
        monkeypatch.setattr(tool, "lost", lambda library, device: "the GPU is not available any more")
        return original(self, times, calls, one)

    monkeypatch.setattr(Machine, "session", session)
    with pytest.raises(ExecutionError, match="after a: the GPU is not available any more") as caught:
        timed(machine, "a", "b")
    assert "same command then continues" in caught.value.hint and "b" not in machine.checked


# ---- rounds ----

TIMING = Timing(rounds=4, launches=3, drift=0.05, least=2)


@dataclass
class Image:
    """Times by `time`, of the number of the turn from 0 on; `log` gets its name at each turn. It ends at turn
    `end`."""

    name: str
    time: Callable[[int], float]
    log: list[str] = field(default_factory=list)
    end: int = -1
    turn: int = 0

    def milliseconds(self, shape: int, launches: int) -> tuple[float, ...] | DeviceResult:
        self.log.append(self.name)
        if self.turn == self.end:
            return DeviceResult.ended(test_device.task(), "fault", f"{self.name} ended")
        found = self.time(self.turn) * (1 + shape)
        self.turn += 1
        return (found * 50, found, found / 2)[:launches]  # the median is `found`


def test_candidates_take_turns_between_two_times_of_the_reference() -> None:
    log: list[str] = []
    rules = Image("rules", lambda turn: 2.0, log)
    a, b = Image("a", lambda turn: (1.0, 9.0, 1.0, 1.5)[turn % 4], log), Image("b", lambda turn: 3.0, log)
    found = interleaved(rules, {"a": a, "b": b}, 1, TIMING)
    assert log == ["rules", "a", "b", "rules"] * 4
    assert (milliseconds(found, "a", 0), ratio(found, "a", 0)) == (1.25, 0.625)  # of 1, 9, 1, 1.5
    assert (ratio(found, "b", 0), milliseconds(found, "", 0)) == (1.5, 2.0)
    assert len(found) == 4
    two = interleaved(Image("rules", lambda turn: 2.0), {"b": Image("b", lambda turn: 3.0)}, 2, TIMING)
    assert (milliseconds(two, "b", 1), ratio(two, "b", 1), milliseconds(two, "", 1)) == (6.0, 1.5, 4.0)


def test_a_round_in_which_the_clock_drifts_is_repeated_and_counted() -> None:
    """The third round's second time is 10 % longer, and what the candidate took in it does not count."""
    drifting = Image("rules", lambda turn: 2.2 if turn == 5 else 2.0)
    one = Image("a", lambda turn: 0.1 if turn == 2 else 1.0)
    found = interleaved(drifting, {"a": one}, 1, TIMING)
    assert (len(found), one.turn) == (4, 5)
    assert [each["a"] for each in found] == [(1.0,)] * 4


def test_a_clock_that_falls_from_round_to_round_does_not_change_shares() -> None:
    """Both halve over the rounds: in each round they are compared with each other."""
    one = Image("a", lambda turn: 4.0 / 2**turn)
    found = interleaved(Image("rules", lambda turn: 8.0 / 2 ** (turn // 2)), {"a": one}, 1, TIMING)
    assert ratio(found, "a", 0) == 0.5 and len(found) == one.turn


def test_a_clock_that_drifts_in_most_rounds_is_an_error_that_names_it() -> None:
    shaky = Image("rules", lambda turn: 1.0 + turn % 2)
    with pytest.raises(ExecutionError, match=r"clock drifts: in 4 of 4 rounds .* up to 100%") as caught:
        interleaved(shaky, {}, 1, TIMING)
    assert "--drift" in caught.value.hint
    assert len(interleaved(shaky, {}, 1, Timing(drift=2.0))) == 7


def test_the_first_process_that_ends_is_named() -> None:
    """What ends behind it, the reference too, may end because of it."""
    images = {"a": Image("a", lambda turn: 1.0, end=1), "b": Image("b", lambda turn: 3.0)}
    with pytest.raises(EndedError, match="a ended") as caught:
        interleaved(Image("rules", lambda turn: 2.0, end=3), images, 1, TIMING)
    assert caught.value.key == "a"
    with pytest.raises(EndedError, match="rules ended") as caught:
        interleaved(Image("rules", lambda turn: 2.0, end=1), {}, 1, TIMING)
    assert caught.value.key == ""
