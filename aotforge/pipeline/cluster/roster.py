"""The workers of a cluster that a build may use, kept up to date while workers join and leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from aotforge.errors import ClusterError, listed
from aotforge.pipeline.cluster.messages import Admission
from aotforge.pipeline.cluster.worker import admit

_UPDATE = 1.0
"""Seconds between two looks at the cluster's workers."""

_AGAIN = 60.0
"""Seconds after which a refused worker is checked again: what it lacked may have been repaired."""

_ANSWER = 120.0
"""Seconds that a worker may take to compare itself with the build."""

_RECONNECT = 120.0
"""Seconds that a build waits for a scheduler that it lost."""


@dataclass(kw_only=True)
class Roster:
    """Admits workers to a build. `order` is an encoded order without a job; `patience`: seconds without any usable worker.

    `session` is in the names of the build's Dask tasks. `revivals`: times that a worker was admitted while there was none.
    """

    client: Any
    order: str
    resource: str
    session: str
    patience: float
    note: Callable[[str], None]
    revivals: int = 0
    _slots: dict[str, int] = field(default_factory=dict)
    _pending: dict[str, Any] = field(default_factory=dict)
    _refused: dict[str, tuple[str, float]] = field(default_factory=dict)
    _answers: SimpleQueue[tuple[str, Any]] = field(default_factory=SimpleQueue)
    _looked: float = 0.0
    _usable: float = field(default_factory=time.monotonic)
    _noted: set[str] = field(default_factory=set)

    @property
    def slots(self) -> int:
        """Jobs that the admitted workers can run at a time."""
        return sum(self._slots.values())

    def update(self) -> None:
        """Checks new workers, forgets those that have left. Raises ClusterError without scheduler or workers for too long."""
        self._receive()
        now = time.monotonic()
        if now - self._looked < _UPDATE:
            return
        self._looked = now
        if self.client.status != "running":
            self._wait_for_scheduler(now)
            return
        try:
            present = set(self.client.scheduler_info(n_workers=-1)["workers"])
        except (OSError, TimeoutError):
            self._wait_for_scheduler(now)
            return
        for gone in (self._slots.keys() | self._pending.keys() | self._refused.keys()) - present:
            self._slots.pop(gone, None)
            self._refused.pop(gone, None)
            if gone in self._pending:
                self._pending.pop(gone).cancel()
        for address in [a for a, (_, since) in self._refused.items() if now - since > _AGAIN]:
            del self._refused[address]
        for address in present - self._slots.keys() - self._pending.keys() - self._refused.keys():
            self._check(address)
        if self._slots:
            self._usable = now
        elif now - self._usable > self.patience + (_ANSWER if self._pending else 0.0):
            raise self._no_workers()

    def _check(self, address: str) -> None:
        future = self.client.submit(
            admit,
            self.order,
            self.resource,
            key=f"admit-{self.session}-{address}-{time.monotonic_ns()}",
            workers=[address],
            allow_other_workers=False,
            pure=False,
            priority=100,
        )
        self._pending[address] = future
        future.add_done_callback(lambda done: self._answers.put((address, done)))

    def _receive(self) -> None:
        while True:
            try:
                address, future = self._answers.get_nowait()
            except Empty:
                return
            if address not in self._pending or self._pending[address] is not future:
                continue
            del self._pending[address]
            try:
                answer = Admission.decode(future.result(timeout=60))
            except Exception as error:  # noqa: BLE001 - a worker without aotforge, or one that is gone
                if future.status != "cancelled":
                    self._refuse(
                        address, Admission(worker=address, refused=f"{type(error).__name__}: {error}")
                    )
                continue
            if answer.refused:
                self._refuse(address, answer)
            else:
                self.revivals += not self._slots
                self._slots[address] = answer.slots

    def _refuse(self, address: str, answer: Admission) -> None:
        self._refused[address] = answer.refused, time.monotonic()
        host = f"{answer.worker.rpartition(':')[0]} {answer.refused}"
        if host not in self._noted:  # once for all workers of a machine
            self._noted.add(host)
            self.note(f"worker {address} ({answer.worker}) is not used: {answer.refused}")

    def _wait_for_scheduler(self, now: float) -> None:
        if self.client.status == "closed" or now - self._usable > max(_RECONNECT, self.patience):
            raise ClusterError(
                f"the connection to the scheduler {self.client.scheduler_address} is lost",
                cause="it has ended, or the network to it is down",
                hint="start it again and run the same command again, which resumes",
            )

    def _no_workers(self) -> ClusterError:
        refused = [f"{address}: {reason}" for address, (reason, _) in self._refused.items()]
        return ClusterError(
            f"the cluster has had no usable worker for {self.patience:.0f} s"
            + (f"; refused: {listed(refused)}" if refused else ""),
            cause="the refused workers have other versions, see above"
            if refused
            else "no worker has joined the scheduler",
            hint="start workers from this checkout (docs/scale.md), then run the same command again, which resumes",
        )
