"""Rounds: turns and their order, medians of medians, drift of the reference, images and references that
end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from aotforge.devtools.tune.rounds import EndedError, Timing, interleaved
from aotforge.errors import ExecutionError
from aotforge.verify.device.messages import DeviceResult
from tests.unit.verify import test_device

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
    assert (found.milliseconds("a", 0), found.ratio("a", 0)) == (1.25, 0.625)  # of 1, 9, 1, 1.5
    assert (found.ratio("b", 0), found.reference(0)) == (1.5, 2.0)
    assert (len(found.good), found.discarded) == (4, 0)
    two = interleaved(Image("rules", lambda turn: 2.0), {"b": Image("b", lambda turn: 3.0)}, 2, TIMING)
    assert (two.milliseconds("b", 1), two.ratio("b", 1), two.reference(1)) == (6.0, 1.5, 4.0)


def test_a_round_in_which_the_clock_drifts_is_repeated_and_counted() -> None:
    """The third round's second time is 10 % longer, and what the candidate took in it does not count."""
    drifting = Image("rules", lambda turn: 2.2 if turn == 5 else 2.0)
    one = Image("a", lambda turn: 0.1 if turn == 2 else 1.0)
    found = interleaved(drifting, {"a": one}, 1, TIMING)
    assert (len(found.good), found.discarded) == (4, 1)
    assert [each.times["a"] for each in found.good] == [(1.0,)] * 4


def test_a_clock_that_falls_from_round_to_round_does_not_change_shares() -> None:
    """Both halve over the rounds: in each round they are compared with each other."""
    found = interleaved(
        Image("rules", lambda turn: 8.0 / 2 ** (turn // 2)),
        {"a": Image("a", lambda turn: 4.0 / 2**turn)},
        1,
        TIMING,
    )
    assert found.ratio("a", 0) == 0.5 and found.discarded == 0


def test_a_clock_that_drifts_in_most_rounds_is_an_error_that_names_it() -> None:
    shaky = Image("rules", lambda turn: 1.0 + turn % 2)
    with pytest.raises(ExecutionError, match=r"clock drifts: in 4 of 4 rounds .* up to 100%") as caught:
        interleaved(shaky, {}, 1, TIMING)
    assert "--drift" in caught.value.hint
    assert len(interleaved(shaky, {}, 1, Timing(drift=2.0)).good) == 7


def test_the_first_process_that_ends_is_named() -> None:
    """What ends behind it, the reference too, may end because of it."""
    images = {"a": Image("a", lambda turn: 1.0, end=1), "b": Image("b", lambda turn: 3.0)}
    with pytest.raises(EndedError, match="a ended") as caught:
        interleaved(Image("rules", lambda turn: 2.0, end=3), images, 1, TIMING)
    assert caught.value.key == "a"
    with pytest.raises(EndedError, match="rules ended") as caught:
        interleaved(Image("rules", lambda turn: 2.0, end=1), {}, 1, TIMING)
    assert caught.value.key == ""
