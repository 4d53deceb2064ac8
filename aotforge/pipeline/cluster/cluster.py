"""Connection of a build to a Dask cluster and to the place through which its objects come.

Workers need no key: they put objects into the place under their SHA-256 and return that digest. The build reads each object, verifies it,
and alone signs the index that other readers trust.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from aotforge.compile.pool import WorkerLimits
from aotforge.errors import ClusterError
from aotforge.pipeline.cluster.messages import (
    Identity,
    Order,
    Reference,
    Session,
    resource_name,
    source_identity,
)
from aotforge.pipeline.requests import CachedRequest
from aotforge.publish.cache.index import object_name
from aotforge.publish.cache.writer import CacheWriter, put_object
from aotforge.publish.stores.store import StoreError
from aotforge.toolchain.triton import Toolchain

_CONNECT = 30.0
_DAY = 86_400.0
_GRACE = 120.0
"""Seconds that an attempt may take beyond the limit of its job: a worker starts, an object is sent."""


def check_encrypted(address: str, *, trusted: bool) -> None:
    """Refuses a connection without encryption and certificates, unless the user trusts all who reach it. Raises ClusterError.

    Who reaches a scheduler executes code on it, on its workers and on this machine: on a loopback address, every user of the machine.
    """
    if trusted or address.startswith("tls://"):
        return
    raise ClusterError(
        f"the connection to the scheduler {address} is not encrypted, and the scheduler does not know who connects",
        cause="a process that reaches a Dask scheduler executes code on its workers and on this machine",
        hint="tls://HOST:8786 with certificates (docs/scale.md); --trust-network where every user of the network, and of "
        "these machines, may act as you",
    )


def _connect(address: str) -> Any:
    from distributed import Client  # noqa: PLC0415 - 0.5 s, and a build that finds everything in its cache needs no cluster

    try:
        return Client(address, timeout=_CONNECT, set_as_default=False)
    except Exception as error:
        raise ClusterError(
            f"the scheduler {address} cannot be used: {error}",
            cause="no scheduler is at this address, its certificates do not fit, or it has another version of Dask",
            hint="start one from this checkout: ./dev python -m dask scheduler (docs/scale.md)",
        ) from error


@dataclass(kw_only=True)
class Cluster:
    """The cluster of one command. `writer`: the place of the shared cache."""

    address: str
    writer: CacheWriter
    request: CachedRequest
    note: Callable[[str], None]
    _client: Any = None
    _rosters: dict[str, Any] = field(default_factory=dict)
    _identity: Identity | None = None

    @property
    def place(self) -> str:
        """Address of the shared cache, as workers use it."""
        return self.writer.store.url

    def close(self) -> None:
        """Ends the connection."""
        if self._client is not None:
            self._client.close(timeout=5)

    def session(self, toolchain: Toolchain, limits: WorkerLimits, **values: Any) -> Session:
        """A stage's session, which must be sent with `put`."""
        if self._identity is None or self._identity.toolchain != toolchain:
            self._identity = source_identity(toolchain, self.request.root)
        limits = replace(limits, job_seconds=min(limits.job_seconds, _DAY))
        return Session(identity=self._identity, limits=limits, **values)

    def put(self, data: bytes, *, replace: bool = False) -> Reference:
        """Puts an object into the place. Raises ClusterError."""
        reference = Reference.to(data)
        try:
            put_object(self.writer.store, object_name(reference.sha256), data, replace=replace)
        except StoreError as error:
            raise ClusterError(
                f"the shared cache {self.place} cannot be written: {error.what}",
                cause=error.cause or "workers receive their jobs' objects through it",
                hint=error.hint or "check the place and run the same command again",
            ) from error
        return reference

    def adopt(self, kind: str, key: str, reference: Reference) -> None:
        """A verified object of a worker becomes part of the signed index at the end."""
        self.writer.adopt((kind, key), reference.shared)

    def queue(self, session: Session, reference: Reference, seconds: float) -> Any:
        """The queue of a stage whose jobs take at most `seconds` each."""
        from aotforge.pipeline.cluster.job_queue import JobQueue  # noqa: PLC0415 - imports what only workers need, too
        from aotforge.pipeline.cluster.roster import Roster  # noqa: PLC0415 - as above

        if self._client is None:
            self._client = _connect(self.address)
        resource = resource_name(session.identity, self.place)
        if resource not in self._rosters:
            empty = Order(kind="compile", key="", label="", place=self.place, session=reference)
            self._rosters[resource] = Roster(
                client=self._client,
                order=empty.encode(),
                resource=resource,
                session=f"{reference.sha256[:8]}-{time.time_ns():x}",
                patience=self.request.worker_minutes * 60,
                note=self.note,
            )
        return JobQueue(
            client=self._client,
            roster=self._rosters[resource],
            store=self.writer.store,
            deadline=2 * (seconds + session.limits.start_seconds) + _GRACE,
        )
