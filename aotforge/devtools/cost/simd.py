"""Times of the waves of one SIMD together. Pure.

Each issues in order, as soon as what it needs is there and its unit is free.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from aotforge.devtools.cost.steps import LOCAL, MATRIX, MEMORY, NONE, VECTOR, Step

_COUNTERS, _UNITS = 5, 6
_QUEUED = 8
"""Instructions of a SIMD that a unit for memory has accepted and not finished."""
Wave = Sequence[Step]
Bundle = Sequence[Wave]
"""Waves of one workgroup on the SIMD, which meet at barriers."""


class _Running:
    """A timed wave. `ready`: earliest time of its next instruction; lower `order` goes first."""

    __slots__ = ("at", "bundle", "left", "order", "ready", "results", "sums", "wave")

    def __init__(self, wave: Wave, bundle: _Meeting, order: int, begin: float) -> None:
        self.wave, self.bundle, self.order, self.ready, self.at = wave, bundle, order, begin, 0
        self.left: list[deque[float]] = [deque() for _ in range(_COUNTERS)]
        self.results: dict[int, float] = {}
        self.sums: dict[int, float] = {}

    def prepare(self) -> None:
        """Sets `ready` to when the next instruction has all that it needs, but for its unit."""
        step, ready = self.wave[self.at], self.ready
        for number in step.needs:
            if self.results.get(number, 0.0) > ready:
                ready = self.results[number]
        for number in step.sums:
            if self.sums.get(number, 0.0) > ready:
                ready = self.sums[number]
        for counter, most in step.waits:
            left = self.left[counter]
            while len(left) > most:
                ready = max(ready, left.popleft())
        self.ready = ready


class _Meeting:
    """The waves of a bundle: who waits at the barrier, who has not ended."""

    def __init__(self, slot: int, begin: float, waves: int) -> None:
        self.slot, self.begin, self.running = slot, begin, waves
        self.waiting: list[_Running] = []


def durations(slots: Sequence[Sequence[Bundle]], *, sharing: float, stagger: float = 0.0) -> list[float]:
    """How long bundles take on the SIMD, while each slot executes its own one after another, again and again,
    until each has finished all of them: of those, without the first where a slot has several.

    `sharing`: SIMDs that use the units that they share, all in the same way. `stagger`: time between the
    slots' beginnings.
    """
    simd = _Simd(slots, sharing)
    for slot in range(len(slots)):
        simd.begin(slot, slot * stagger)
    return simd.run()


class _Simd:
    """Events: waves that have what they need, and units (-1 - unit) that take the oldest waiting one."""

    def __init__(self, slots: Sequence[Sequence[Bundle]], sharing: float) -> None:
        self._slots, self._sharing = slots, sharing
        self._free = [0.0] * _UNITS
        self._queued = {unit: deque([0.0] * _QUEUED, maxlen=_QUEUED) for unit in (LOCAL, MEMORY)}
        self._events: list[tuple[float, int, _Running | None]] = []
        self._waiting: list[list[tuple[int, _Running]]] = [[] for _ in range(_UNITS)]
        self._begun = [0] * len(slots)
        self._unfinished = sum(map(len, slots))
        self._order = 0
        self._found: list[float] = []

    def begin(self, slot: int, time: float) -> None:
        """Starts the slot's next bundle."""
        bundles = self._slots[slot]
        bundle = bundles[self._begun[slot] % len(bundles)]
        self._begun[slot] += 1
        meeting = _Meeting(slot, time, len(bundle))
        for wave in bundle:
            self._order += 1
            self._push(_Running(wave, meeting, self._order, time))

    def _push(self, wave: _Running) -> None:
        wave.prepare()
        heapq.heappush(self._events, (wave.ready, wave.order, wave))

    def run(self) -> list[float]:
        """Until every slot has finished its bundles."""
        events = self._events
        while self._unfinished > 0:
            time, order, wave = heapq.heappop(events)
            if wave is None:
                self._serve(-1 - order, time)
                continue
            step = wave.wave[wave.at]
            waiting, begin = self._waiting[step.unit], self._accepts(step.unit)
            if not waiting and begin <= time:
                self._issue(wave, step, time)
                continue
            if not waiting:
                heapq.heappush(events, (begin, -1 - step.unit, None))
            heapq.heappush(waiting, (wave.order, wave))
        return self._found

    def _serve(self, unit: int, time: float) -> None:
        """A unit with waiting waves takes the oldest, unless another one has used the port."""
        waiting, begin = self._waiting[unit], self._accepts(unit)
        if begin <= time:
            _, wave = heapq.heappop(waiting)
            self._issue(wave, wave.wave[wave.at], time)
            begin = self._accepts(unit)
        if waiting:
            heapq.heappush(self._events, (begin, -1 - unit, None))

    def _accepts(self, unit: int) -> float:
        """When a unit takes its next instruction. Those of vector and matrix units come from one port."""
        if unit == NONE:
            return 0.0
        if unit in self._queued:
            return self._queued[unit][0]
        return max(self._free[unit], self._free[VECTOR]) if unit == MATRIX else self._free[unit]

    def _issue(self, wave: _Running, step: Step, begin: float) -> None:
        free, unit = self._free, step.unit
        end = begin + step.busy
        if unit in (LOCAL, MEMORY):
            end = free[unit] = max(begin, free[unit]) + step.shared * self._sharing
            self._queued[unit].append(end)
        elif unit != NONE:
            free[unit] = end
            if unit == MATRIX:
                free[VECTOR] = begin + step.issue
        for number in step.results:
            wave.results[number] = end + step.latency
            wave.sums[number] = end
        if step.counter:
            left = wave.left[step.counter]
            done = end + step.latency
            left.append(max(done, left[-1]) if left else done)
        wave.ready = begin + step.issue
        wave.at += 1
        if step.barrier or wave.at == len(wave.wave):
            self._meet(wave, ended=wave.at == len(wave.wave))
        else:
            self._push(wave)

    def _meet(self, wave: _Running, *, ended: bool) -> None:
        """A wave has ended, or arrived at a barrier, behind which all of its bundle resume together."""
        bundle = wave.bundle
        if ended:
            bundle.running -= 1
        else:
            bundle.waiting.append(wave)
        if bundle.running and len(bundle.waiting) < bundle.running:
            return
        if not bundle.running:
            self._end(bundle, wave.ready)
            return
        time = max(waiting_wave.ready for waiting_wave in bundle.waiting)
        together, bundle.waiting = bundle.waiting, []
        for waiting_wave in together:
            waiting_wave.ready = time
            self._push(waiting_wave)

    def _end(self, bundle: _Meeting, time: float) -> None:
        mine, slot = self._begun[bundle.slot], bundle.slot
        count = len(self._slots[slot])
        if mine <= count:
            self._unfinished -= 1
            if mine > 1 or count == 1:
                self._found.append(time - bundle.begin)
        self.begin(slot, time)
