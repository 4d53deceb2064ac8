"""Records of builds in the cache folder: stages, jobs, verdicts and their times.

`<cache>/builds/<started>-<id>.json` is written when a build begins, every few seconds and when it ends. A
running build holds a lock on its record, so one that was killed is recognised.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path

from aotforge.base.files import make_folders
from aotforge.compile.model import CompileEvent
from aotforge.errors import AotforgeError
from aotforge.pipeline.display import BuildObserver
from aotforge.publish.stores.store import redact_urls
from aotforge.verify.verdict import VerifyEvent

FOLDER = "builds"
KEPT = 50
"""Records of builds that ended; older ones are removed."""

_FORMAT = 1
_WRITE_SECONDS = 2.0
_WRITE_SHARE = 0.01
"""Most of a build's time that is spent in writing its record: one of many jobs is written less often."""
_NOTES = 100


@dataclass(kw_only=True)
class Stage:
    """A stage of a build. `seconds` from its begin to that of the next one."""

    name: str
    seconds: float = 0.0


@dataclass(kw_only=True)
class TimedJob:
    """A job that was compiled, or an image that was executed. `began`: seconds after the build's begin."""

    label: str
    seconds: float
    peak_bytes: int = 0
    began: float | None = None


@dataclass(kw_only=True)
class BuildRecord:
    """A build. `state`: running, finished, failed, interrupted, or killed. Times are seconds since 1970.

    `cpu_seconds` are of the build and of its processes that have ended. `cached` and `known` are images and
    verdicts of caches, `shared` images that another build compiled.
    """

    name: str
    command: list[str]
    folder: str
    pid: int
    started: float
    ended: float = 0.0
    state: str = "running"
    error: str = ""
    release: str = ""
    done: int = 0
    total: int = 0
    cached: int = 0
    shared: int = 0
    damaged: int = 0
    known: int = 0
    cpu_seconds: float = 0.0
    stages: list[Stage] = field(default_factory=list)
    compiled: list[TimedJob] = field(default_factory=list)
    executed: list[TimedJob] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """From its begin to its end, or until now."""
        return (self.ended or time.time()) - self.started

    def line(self) -> str:
        """One line for people."""
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        images = f"{len(self.compiled)} compiled, {self.cached} cached"
        images += f"; {len(self.executed)} executed, {self.known} known"
        running = self.state == "running" and self.stages
        stage = f"; {self.stages[-1].name} {self.done}/{self.total}" if running else ""
        error = f"; {self.error.splitlines()[0]}" if self.error else ""
        return f"{self.name}  {began}  {self.state:11}  {self.seconds:8.1f} s  {images}{stage}{error}"


class RecordingObserver:
    """Passes a build's events on and keeps them in its record, if its folder can be written."""

    release = ""

    def __init__(self, observer: BuildObserver, record: BuildRecord, file: Path) -> None:
        self._observer, self._record, self._file = observer, record, file
        self._began = self._stage_began = self._written = time.monotonic()
        self._interval = _WRITE_SECONDS
        self._lock: BufferedWriter | None = None
        self._staged = False

    def stage(self, text: str) -> None:
        """A stage begins."""
        if not self._staged:
            self._staged = True
            with suppress(OSError):
                make_folders(self._file.parent)
                self._lock = self._file.open("xb")
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._end_stage()
        self._record.stages.append(Stage(name=text))
        self._record.done = self._record.total = 0
        self._write()
        self._observer.stage(text)

    def note(self, text: str) -> None:
        """A fact that must stay visible."""
        if len(self._record.notes) < _NOTES:
            self._record.notes.append(text)
        self._observer.note(text)

    def event(self, event: CompileEvent) -> None:
        """A compile job changed its state."""
        record = self._record
        record.done, record.total = event.done, event.total
        if event.kind == "compiled":
            record.compiled.append(self._timed(event.label, event.seconds, event.peak_bytes))
        elif event.kind == "scanned":
            record.cached += event.done
        elif event.kind == "shared":
            record.shared += 1
        elif event.kind == "damaged":
            record.damaged += 1
        self._write_sometimes()
        self._observer.event(event)

    def verdict(self, event: VerifyEvent) -> None:
        """An image has its verdict."""
        self._record.done, self._record.total = event.done, event.total
        if event.verdict.cached:
            self._record.known += 1
        else:
            self._record.executed.append(self._timed(event.verdict.label, event.verdict.seconds))
        self._write_sometimes()
        self._observer.verdict(event)

    def end(self, state: str, error: str = "") -> None:
        """The build has ended."""
        self._end_stage()
        times = os.times()
        self._record.cpu_seconds = times.user + times.system + times.children_user + times.children_system
        self._record.state, self._record.error, self._record.release = state, error, self.release
        self._record.ended = time.time()
        self._write()

    def close(self) -> None:
        """Releases the lock; earlier records are removed."""
        if self._lock:
            self._lock.close()
            _remove_old(self._file.parent)

    def _timed(self, label: str, seconds: float, peak_bytes: int = 0) -> TimedJob:
        """A job that has ended now."""
        began = max(0.0, time.monotonic() - self._began - seconds)
        return TimedJob(label=label, seconds=seconds, peak_bytes=peak_bytes, began=round(began, 3))

    def _end_stage(self) -> None:
        now = time.monotonic()
        if self._record.stages:
            self._record.stages[-1].seconds = now - self._stage_began
        self._stage_began = now

    def _write_sometimes(self) -> None:
        if time.monotonic() - self._written > self._interval:
            self._write()

    def _write(self) -> None:
        """In place: the lock is on the file, and half a text is only read from a killed build."""
        began = self._written = time.monotonic()
        if self._lock is None:
            return
        data = json.dumps({"format": _FORMAT, **vars(self._record)}, default=vars).encode()
        with suppress(OSError):
            self._lock.seek(0)
            self._lock.write(data)
            self._lock.truncate()
            self._lock.flush()
        self._written = time.monotonic()
        self._interval = max(_WRITE_SECONDS, (self._written - began) / _WRITE_SHARE)


@contextmanager
def recorded(
    cache: Path, command: Sequence[str], folder: Path, observer: BuildObserver
) -> Iterator[RecordingObserver]:
    """Records the build in the block, which calls `end` when it succeeds."""
    now = time.time()
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(3)}"
    record = BuildRecord(
        name=name, command=[*map(redact_urls, command)], folder=str(folder), pid=os.getpid(), started=now
    )
    file = cache / FOLDER / f"{name}.json"
    record.stages.append(Stage(name="planning"))
    recording = RecordingObserver(observer, record, file)
    try:
        yield recording
    except AotforgeError as error:
        recording.end("failed", error.what)
        raise
    except BaseException as error:
        recording.end("interrupted", type(error).__name__)
        raise
    finally:
        recording.close()


def read_records(cache: Path) -> list[BuildRecord]:
    """Records of builds, the newest first."""
    records = (_read(path) for path in _record_files(cache / FOLDER))
    return [record for record in records if record is not None]


def _read(path: Path) -> BuildRecord | None:
    """None for a record that is removed, of another format, or written in part by a killed build."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - a build writes records only

    try:
        with path.open("rb") as file:
            running = _is_locked(file.fileno())
            fields = json.load(file)
        if fields.pop("format") != _FORMAT:
            return None
        record = TypeAdapter(BuildRecord).validate_python(fields)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if record.state == "running" and not running:
        record.state, record.ended = "killed", path.stat().st_mtime
    return record


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _record_files(folder: Path) -> list[Path]:
    """The newest first."""
    return sorted(folder.glob("????????-??????-??????.json"), reverse=True)


def _remove_old(folder: Path) -> None:
    with suppress(OSError):
        for path in _record_files(folder)[KEPT:]:
            with path.open("rb") as file:
                if not _is_locked(file.fileno()):
                    path.unlink()
