"""Functions that a build calls on the workers of a cluster: `admit` and `run_order`.

A worker process holds one compile worker per thread and one pool of verification workers, and ends those that had nothing to do for
a minute. Its cache folder (AOTFORGE_CACHE) has compiled helpers only: finished images and verdicts go to the place of the shared cache.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from aotforge.base.files import make_folders, open_lock
from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache import Cache
from aotforge.compile.cache_entry import decode as decode_entry
from aotforge.compile.model import Resources
from aotforge.compile.pool import CompileWorkers, worker_count
from aotforge.errors import AotforgeError, ToolchainError
from aotforge.pipeline.cluster.messages import (
    ROOT,
    Admission,
    Identity,
    Order,
    Reference,
    Result,
    Session,
    difference,
    source_digests,
    source_identity,
)
from aotforge.plan.model import CompileJob, build
from aotforge.publish.cache.index import object_name
from aotforge.publish.cache.reader import WrongBytesError, fetch_object
from aotforge.publish.cache.writer import put_object
from aotforge.publish.session import open_store
from aotforge.publish.stores.store import StoreError
from aotforge.toolchain.allocator import build_allocator
from aotforge.toolchain.triton import pinned_triton, read_toolchain
from vgpu.cache import check_cache, default_cache

if TYPE_CHECKING:
    from aotforge.verify.pool import Pool

IDLE_SECONDS = 60.0
"""Time without a job after which compile and verification workers end: a cluster has other users, too."""

_KERNELS = ROOT / "kernels"
_LOADED = source_digests()
"""Of the sources that this process has imported: the files may be replaced while it runs."""


class JobFailedError(Exception):
    """The job itself failed; `result` describes it."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.detail)
        self.result = result


def admit(text: str, resource: str) -> str:
    """Compares this worker with the build, and gives it the Dask resource that the build's jobs need.

    `text` is an order without a job. Returns an encoded `Admission`.
    """
    from distributed import get_worker  # noqa: PLC0415 - 0.5 s, and only workers have it
    from distributed.utils import sync  # noqa: PLC0415 - as above

    worker = get_worker()
    try:
        order = Order.decode(text)
        session = read_session(order.place, order.session)
        refused = _difference(session)
        check_cache(default_cache())
        build_allocator(default_cache())
    except (AotforgeError, StoreError, WrongBytesError, OSError, ValueError, LookupError, TypeError) as error:
        refused = f"{type(error).__name__}: {_text(error)}"
    if refused:
        return Admission(worker=_name(), refused=refused).encode()
    threads = worker.state.nthreads
    slots = worker_count(threads, session.limits, wanted=threads)
    sync(worker.loop, worker.set_resources, **{resource: slots})
    return Admission(worker=_name(), slots=slots).encode()


def _difference(session: Session) -> str:
    own = own_identity(session.identity.toolchain.triton_version)
    found = difference(session.identity, own)
    if not found and own.sources != _LOADED:
        return "its sources were changed after it was started; start it again"
    return found


def own_identity(pinned: str) -> Identity:
    """The identity of this worker. Raises ToolchainError for another version than its own checkout pins or the build has."""
    own = pinned_triton(ROOT / "requirements" / "build.in")
    if own != pinned:
        raise ToolchainError(f"its checkout pins Triton {own}, the build has {pinned}")
    return source_identity(_toolchain(pinned))


_toolchain = cache(read_toolchain)


def run_order(text: str) -> str:
    """Runs one job and puts its object into the place. Returns an encoded `Result`; raises nothing but programming errors."""
    began = time.monotonic()
    try:
        order = Order.decode(text)
        session = read_session(order.place, order.session)
        with TOOLS.in_use():
            data, result = JOBS[order.kind](order, session)
        put_object(
            open_store(order.place), object_name(Reference.to(data).sha256), data, replace=order.replace
        )
    except JobFailedError as error:
        return replace(error.result, seconds=time.monotonic() - began).encode()
    except (AotforgeError, StoreError, WrongBytesError, OSError) as error:
        return Result(state="lost", worker=_name(), detail=_text(error)).encode()
    return replace(result, object=Reference.to(data), seconds=time.monotonic() - began).encode()


def _text(error: BaseException) -> str:
    return error.what if isinstance(error, AotforgeError | StoreError) else str(error)


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@lru_cache(maxsize=4)
def read_session(place: str, reference: Reference) -> Session:
    """The session of a job. Raises StoreError, WrongBytesError."""
    return Session.decode(fetch_object(open_store(place), reference.shared))


def _compile(order: Order, session: Session) -> tuple[bytes, Result]:
    job = build(CompileJob, {**order.body, "toolchain": session.toolchain_tree()})
    attempt = TOOLS.compiler(session).compile(job)
    if attempt.failure:
        raise JobFailedError(
            Result(state="failed", worker=_name(), detail=attempt.failure, output=attempt.output)
        )
    return attempt.data, Result(state="done", worker=_name(), peak_bytes=attempt.peak_bytes)


def _verify(order: Order, session: Session) -> tuple[bytes, Result]:
    """The file of a verdict store with the verdict on an image, a failed one as well."""
    from aotforge.verify.interpreter.dispatch import Use  # noqa: PLC0415 - as above
    from aotforge.verify.verdict import ImageTask  # noqa: PLC0415 - numpy and the emulator: workers that compile need neither
    from aotforge.verify.verdict_store import store_verdict, verdict_key  # noqa: PLC0415 - as above

    body = order.body
    data = fetch_object(open_store(order.place), Reference(**body["image"]).shared)
    try:
        entry = decode_entry(data, order.key)
    except DamagedObjectError as error:
        raise WrongBytesError(str(error)) from error
    task = ImageTask(
        key=order.key,
        label=order.label,
        arch=body["arch"],
        digest=entry.summary.digest,
        binary=entry.binary,
        asm=entry.asm(),
        resources=build(Resources, body["resources"]),
        folder=body["folder"],
        verifier_digest=body["verifier_digest"],
        uses=tuple(build(Use, use) for use in body["uses"]),
    )
    if (key := verdict_key(task)) != body["verdict"]:
        raise ToolchainError(
            f"this worker's verdict would be {key[:12]}, the build needs {body['verdict'][:12]}"
        )
    verdict = TOOLS.verifiers(session).check(task)
    with tempfile.TemporaryDirectory() as folder:
        store_verdict(Path(folder), key, verdict)
        (file,) = Path(folder).glob(f"*/*/{key}")
        return file.read_bytes(), Result(state="done", worker=_name())


JOBS: dict[str, Callable[[Order, Session], tuple[bytes, Result]]] = {
    "compile": _compile,
    "verify": _verify,
}


@dataclass
class Tools:
    """Worker processes that this process keeps between jobs."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _compilers: dict[int, CompileWorkers] = field(default_factory=dict)
    _pool: Pool | None = None
    _cache: Cache | None = None
    _users: int = 0
    _last: float = 0.0
    _watch: threading.Thread | None = None
    _prepared: set[object] = field(default_factory=set)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Nothing ends while a job is inside."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._last = time.monotonic()
                if self._watch is None:
                    self._watch = threading.Thread(target=self._end_idle, daemon=True, name="idle workers")
                    self._watch.start()

    def _end_idle(self) -> None:
        while True:
            with self._lock:
                left = self._last + IDLE_SECONDS - time.monotonic()
                if not self._users and left <= 0:
                    self._watch = None
                    break
            time.sleep(max(left, 1.0))
        self.close_idle()

    def close_idle(self) -> None:
        """Ends the processes unless a job is inside."""
        with self._lock:
            if self._users:
                return
            compilers, pool = list(self._compilers.values()), self._pool
            self._compilers.clear()
            self._pool = None
        for compiler in compilers:
            compiler.close()
        if pool:
            pool.close()

    def compiler(self, session: Session) -> CompileWorkers:
        """The compile worker of the calling thread: the kernel ends it with the thread that started it."""
        folder, thread = default_cache(), threading.get_ident()
        with self._lock:
            if self._cache is None:
                self._cache = Cache(folder)
            found = self._compilers.get(thread)
            if found is None or found.limits != session.limits:
                if found:
                    found.close()
                found = self._compilers[thread] = CompileWorkers(
                    kernels_root=_KERNELS,
                    allocator=build_allocator(folder),
                    temporary=self._cache.temporary(),
                    limits=session.limits,
                )
            return found

    def verifiers(self, session: Session) -> Pool:
        """The verification workers, with an interpreter for all images of the session."""
        from aotforge.verify.pool import Pool  # noqa: PLC0415 - as in _verify

        folder = default_cache()
        with self._lock:
            for lanes, names in session.instructions:
                if (lanes, names) not in self._prepared:
                    _build_interpreter(folder, lanes, names)
                    self._prepared.add((lanes, names))
            if self._pool is None:
                self._pool = Pool(kernels_root=_KERNELS, cache=folder, timeout=session.verify_seconds)
            return self._pool


def _build_interpreter(folder: Path, lanes: int, names: tuple[str, ...]) -> None:
    """One process of this machine compiles it; the others wait. Raises ToolchainError, CacheError."""
    from vgpu.emulator.interpreter_library import build_library  # noqa: PLC0415 - as in _verify

    make_folders(folder)
    with os.fdopen(open_lock(folder / "cluster.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_library(lanes, folder, "checks", names)


TOOLS = Tools()
