"""Queue of the jobs that a build runs on a Dask cluster, with retries of those that are lost.

Dask decides which worker runs a job. A job needs a Dask resource that only admitted workers have: those whose toolchain and sources are the
build's. Few more jobs are sent than there are slots, so that a worker that joins has work at once, and one that is lost takes little with it.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from aotforge.base.object_cache import DamagedObjectError
from aotforge.errors import ClusterError
from aotforge.pipeline.cluster.messages import Order, Result
from aotforge.pipeline.cluster.roster import Roster
from aotforge.pipeline.cluster.worker import run_order
from aotforge.publish.cache.reader import WrongBytesError, fetch_object
from aotforge.publish.stores.store import Store, StoreError

LOSSES = 5
"""Times that a job may be lost with its worker, connection or object before the build ends with an error."""

AHEAD = 2
"""Jobs that are sent, per job that the workers can run at a time."""

_SLOW, _SLOW_FACTOR = 20.0, 4.0
"""A job is sent a second time when no other is waiting and it takes this many seconds and times the median."""

_THREADS = 8
_TICK = 0.2


class Sink(Protocol):
    """Destination of results; called in the thread that runs the queue."""

    def done(self, order: Order, result: Result, data: bytes) -> None:
        """The verified object of an order. Raises DamagedObjectError for bytes that are not valid."""

    def failed(self, order: Order, result: Result) -> bool:
        """The job itself failed; True to try it again."""

    def lost(self, order: Order, reason: str) -> None:
        """The job is sent again."""


@dataclass(frozen=True, kw_only=True)
class _End:
    """The end of one attempt: `reason` when it was lost."""

    number: int
    result: Result | None = None
    data: bytes = b""
    reason: str = ""
    damaged: bool = False


@dataclass(kw_only=True)
class _Attempt:
    order: Order
    future: Any
    since: float


@dataclass(kw_only=True)
class JobQueue:
    """Runs orders on the cluster of `client`, a `distributed.Client`. `deadline`: seconds after which an attempt is lost.

    `function` runs an order on a worker; another one than `run_order` adds kinds of jobs of its own.
    """

    client: Any
    roster: Roster
    store: Store
    deadline: float
    ahead: int = AHEAD
    function: Callable[[str], str] = run_order
    _attempts: dict[int, _Attempt] = field(default_factory=dict)
    _ends: SimpleQueue[_End] = field(default_factory=SimpleQueue)
    _losses: dict[str, int] = field(default_factory=dict)
    _seconds: list[float] = field(default_factory=list)
    _number: int = 0
    _revivals: int = 0

    def run(self, orders: Iterable[Order], sink: Sink) -> None:
        """Work until every order is done or has failed. Raises ClusterError, and what the sink raises."""
        waiting = deque(orders)
        open_keys = {order.key for order in waiting}
        with ThreadPoolExecutor(_THREADS, "cluster objects") as threads:
            try:
                while open_keys:
                    self.roster.update()
                    self._revive(waiting, open_keys)
                    self._submit(waiting, threads)
                    for end in self._next_ends():
                        self._handle(end, waiting, open_keys, sink)
                    self._check_attempts(waiting, open_keys, threads)
            finally:
                self._cancel(list(self._attempts))

    def _revive(self, waiting: deque[Order], open_keys: set[str]) -> None:
        """Sends all jobs again after every worker was lost: Dask gives a job that no worker can run only to workers that join with
        its resource, not to those that get the resource later."""
        if self._revivals == self.roster.revivals:
            return
        self._revivals = self.roster.revivals
        again = {one.order.key: one.order for one in self._attempts.values() if one.order.key in open_keys}
        self._cancel(list(self._attempts))
        waiting.extendleft(reversed(again.values()))

    def _submit(self, waiting: deque[Order], threads: ThreadPoolExecutor) -> None:
        free = self.ahead * self.roster.slots - len(self._attempts)
        if waiting and free > 0:
            self.send([waiting.popleft() for _ in range(min(free, len(waiting)))], threads)

    def send(self, orders: Sequence[Order], threads: ThreadPoolExecutor) -> None:
        """Sends orders in one message, which costs the scheduler less than one for each."""
        numbers = range(self._number + 1, self._number + 1 + len(orders))
        self._number += len(orders)
        futures = self.client.map(
            self.function,
            [order.encode() for order in orders],
            key=[f"{o.kind}-{self.roster.session}-{n}" for o, n in zip(orders, numbers, strict=True)],
            resources={self.roster.resource: 1},
            pure=False,
        )
        for number, order, future in zip(numbers, orders, futures, strict=True):
            self._attempts[number] = _Attempt(order=order, future=future, since=time.monotonic())
            future.add_done_callback(partial(self._on_done, number, threads))

    def _on_done(self, number: int, threads: ThreadPoolExecutor, future: Any) -> None:
        """In Dask's thread."""
        with suppress(RuntimeError):  # the build has ended
            threads.submit(self._collect, number, future)

    def _collect(self, number: int, future: Any) -> None:
        """In a thread of the pool: the result and its object."""
        try:
            result = Result.decode(future.result(timeout=self.deadline))
            if result.state == "lost":
                self._ends.put(
                    _End(number=number, reason=f"worker {result.worker}: {result.detail}", damaged=True)
                )
                return
            data = fetch_object(self.store, result.object.shared) if result.object else b""
        except (WrongBytesError, StoreError) as error:
            what = error.what if isinstance(error, StoreError) else f"its object {error}"
            self._ends.put(_End(number=number, reason=what, damaged=True))
        except Exception as error:  # noqa: BLE001 - a worker that was killed, a connection, a version that cannot read the job
            self._ends.put(_End(number=number, reason=f"{type(error).__name__}: {error}"))
        else:
            self._ends.put(_End(number=number, result=result, data=data))

    def _next_ends(self) -> list[_End]:
        """Those that have come; waits for the first for a moment."""
        found = []
        try:
            found.append(self._ends.get(timeout=_TICK))
            while True:
                found.append(self._ends.get_nowait())
        except Empty:
            return found

    def _handle(self, end: _End, waiting: deque[Order], open_keys: set[str], sink: Sink) -> None:
        attempt = self._attempts.pop(end.number, None)
        if attempt is None:
            return
        attempt.future.release()
        order = attempt.order
        if order.key not in open_keys:  # another attempt was faster
            return
        if end.result is None:
            self._lose(order, end.reason, waiting, sink, damaged=end.damaged)
        elif end.result.state == "failed":
            if sink.failed(order, end.result):
                waiting.append(order)
            else:
                self._finish(order, open_keys)
        else:
            try:
                sink.done(order, end.result, end.data)
            except DamagedObjectError as error:
                self._lose(
                    order, f"worker {end.result.worker}: its result is damaged: {error}", waiting, sink
                )
            else:
                self._seconds.append(end.result.seconds)
                self._finish(order, open_keys)

    def _finish(self, order: Order, open_keys: set[str]) -> None:
        open_keys.discard(order.key)
        self._cancel([n for n, other in self._attempts.items() if other.order.key == order.key])

    def _lose(
        self, order: Order, reason: str, waiting: deque[Order], sink: Sink, *, damaged: bool = False
    ) -> None:
        self._losses[order.key] = self._losses.get(order.key, 0) + 1
        if self._losses[order.key] >= LOSSES:
            raise ClusterError(
                f"{order.label} was lost {LOSSES} times on the cluster; the last time: {reason}",
                cause="its workers are killed, or they cannot reach the shared cache; their log has more",
                hint="repair that and run the same command again, which resumes; --engine local uses this machine",
            )
        sink.lost(order, reason)
        waiting.appendleft(replace(order, replace=order.replace or damaged))

    def _check_attempts(
        self, waiting: deque[Order], open_keys: set[str], threads: ThreadPoolExecutor
    ) -> None:
        """Gives up attempts beyond the deadline; at the end of a stage, sends slow jobs a second time."""
        now = time.monotonic()
        for number, attempt in list(self._attempts.items()):
            if now - attempt.since > self.deadline:
                self._ends.put(_End(number=number, reason=f"no answer in {self.deadline:.0f} s"))
        free = self.roster.slots - len(self._attempts)
        if waiting or free <= 0 or not self._seconds:
            return
        limit = max(_SLOW, _SLOW_FACTOR * statistics.median(self._seconds))
        twice = [attempt.order.key for attempt in self._attempts.values()]
        slow = [a for a in self._attempts.values() if now - a.since > limit and twice.count(a.order.key) == 1]
        if slow:
            oldest = sorted(slow, key=lambda each: each.since)[:free]
            self.send([attempt.order for attempt in oldest], threads)

    def _cancel(self, numbers: Iterable[int]) -> None:
        futures = [self._attempts.pop(number).future for number in numbers]
        if futures and self.client.status == "running":
            self.client.cancel(futures, force=True)
