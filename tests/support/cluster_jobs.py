"""Kinds of cluster jobs for tests and benchmarks, which workers load with `--preload tests.support.cluster_jobs`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from aotforge.publish.cache.index import object_name

from aotforge.pipeline.cluster import worker
from aotforge.pipeline.cluster.messages import Order, Reference, Result, Session
from aotforge.publish.stores.store import ErrorKind, StoreError

DONE = Result(state="done", worker="")


def _text(order: Order) -> bytes:
    return f"object of {order.key}".encode()


def _first(order: Order) -> bool:
    """True once per folder of the order's body."""
    try:
        (Path(order.body["folder"]) / order.key).mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _sleep(order: Order, session: Session) -> tuple[bytes, Result]:
    time.sleep(order.body.get("seconds", 0.0))
    return _text(order), DONE


def _crash(order: Order, session: Session) -> tuple[bytes, Result]:
    """Ends the worker's process the first time."""
    if _first(order):
        os._exit(1)
    return _text(order), DONE


def _damage(order: Order, session: Session) -> tuple[bytes, Result]:
    """Another program has put other bytes of the same size under the object's name."""
    if _first(order):
        path = Path(order.place) / object_name(Reference.to(_text(order)).sha256)
        path.write_bytes(bytes(len(_text(order))))
    return _text(order), DONE


def _lose(order: Order, session: Session) -> tuple[bytes, Result]:
    raise StoreError(ErrorKind.UNAVAILABLE, "the place does not answer")


def _fail(order: Order, session: Session) -> tuple[bytes, Result]:
    raise worker.JobFailedError(
        Result(state="failed", worker="here", detail="does not compile", output="log")
    )


worker.JOBS.update(sleep=_sleep, crash=_crash, damage=_damage, lose=_lose, fail=_fail)
