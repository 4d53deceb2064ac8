"""A step over any channel to an agent: header and inputs go in, output and the end come out, limits become errors."""

from __future__ import annotations

import json
import queue
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aotforge.errors import AotforgeError, ExecutorError
from aotforge.sandbox.executors.step import OnOutput, Step, StepResult, limit_error

BOOTSTRAP = (
    "import sys\n"
    "read = sys.stdin.buffer.raw.read\n"
    "text = b''\n"
    "size = int(read(8), 16)\n"
    "while len(text) < size:\n"
    "    piece = read(size - len(text))\n"
    "    if not piece: sys.exit(1)\n"
    "    text += piece\n"
    "exec(compile(text, 'aotforge_agent', 'exec'), {'__name__': 'aotforge_agent'})\n"
)
"""What Python in the root is given as its program: it reads the agent from stdin."""

WORK = "/tmp/work"
"""Where a step's files lie in a container; /tmp is the one place there that can be written."""

HEARTBEAT_TIMEOUT = 60.0
"""An engine that dies may hold a container's stdin open for ever (containerd's shim does): after so long without a byte the agent leaves."""

KEEP_ALIVE_SECONDS = 8 * 3600
"""So long a kept container waits for somebody to look at it."""

UID = 64042
"""Whom steps run as in a container: nobody's number, so that no limit per user is shared with anybody."""

_FRAME = struct.Struct("<cI")
_FRAME_LIMIT = 1 << 26
_PATIENCE_SECONDS = 20.0
_BEATS = 10


def agent_command(python: str) -> tuple[str, ...]:
    """Starts the agent: isolated from the environment and from execution packages, which it does not need."""
    return (python, "-I", "-S", "-u", "-c", BOOTSTRAP)


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """What the agent is told beyond the step: where to work, whom to become, what to watch itself, after how
    much silence of its client to leave, how long to stay after a failure."""

    folder: str
    contained: bool
    uid: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    silence: float = 0.0
    linger: int = 0


@dataclass(frozen=True, kw_only=True)
class AgentExit:
    """What the engine knows about how an agent ended without a word, and about limits: the limit that was met, or ''; a sentence."""

    limit: str = ""
    text: str = ""


class Channel(Protocol):
    """An agent that has been started."""

    def send(self, data: bytes) -> None:
        """All of it to the agent's stdin. Raises OSError when it is gone."""

    def receive(self) -> bytes:
        """Some bytes of the agent's stdout; empty at its end. Raises OSError."""

    def ended(self) -> AgentExit:
        """After the end. Raises ExecutorError when the engine itself is gone."""

    def counters(self) -> Mapping[str, int]:
        """`oom_kills` and `refused_forks`, where the agent cannot see them itself."""


class Session:
    """One step's conversation. Reading and writing have threads of their own, so that the clock is looked at whatever blocks."""

    def __init__(self, channel: Channel, step: Step, setting: AgentConfig, on_output: OnOutput) -> None:
        self._channel, self._step, self._setting, self._tell = channel, step, setting, on_output
        self._arrived: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue(maxsize=64)
        self._outputs: list[bytes] = []
        self._over = threading.Event()
        self.answered = False
        """Whether the agent said how the step ended; it stays then, if it was told to."""

    def run(self) -> StepResult:
        """Until the step has ended. Raises LimitError, ExecutorError, and whatever `on_output` raises."""
        for body in (self._write, self._read):
            threading.Thread(target=body, daemon=True).start()
        # the agent keeps the time; this is for one that is lost
        end = time.monotonic() + self._step.limits.seconds + _PATIENCE_SECONDS
        try:
            while True:
                try:
                    frame = self._arrived.get(timeout=max(0.0, end - time.monotonic()))
                except queue.Empty:
                    raise limit_error(self._step.name, "seconds", self._step.limits) from None
                if frame is None:
                    raise self._lost()
                if frame[0] == b"X":
                    self.answered = True
                    return self._finished(json.loads(frame[1]))
                self._take(*frame)
        finally:
            self._over.set()

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"1":
            self._tell("stdout", payload)
        elif kind == b"2":
            self._tell("stderr", payload)
        elif kind == b"O":
            self._outputs.append(payload)

    def _finished(self, end: dict[str, Any]) -> StepResult:
        step = self._step
        counted = self._channel.counters()
        oom_kills = max(int(end["oom_kills"]), counted.get("oom_kills", 0))
        if end["reason"]:
            raise limit_error(step.name, str(end["reason"]), step.limits)
        if end["trouble"]:
            raise ExecutorError(
                f"{step.name} could not be started or its outputs not be read: {end['trouble']}",
                hint=f"its files may take {step.limits.scratch_bytes >> 20} MiB; is there room for them?",
            )
        if end["status"] and oom_kills:
            raise limit_error(step.name, "memory", step.limits)
        if end["status"] and max(int(end["refused_forks"]), counted.get("refused_forks", 0)):
            raise limit_error(step.name, "processes", step.limits)
        return StepResult(
            status=int(end["status"]),
            signal=int(end["signal"]),
            outputs=b"".join(self._outputs),
            cpu_seconds=float(end["cpu_seconds"]),
            peak_bytes=int(end["peak_bytes"]),
            oom_kills=oom_kills,
        )

    def _lost(self) -> AotforgeError:
        """The error for an agent that ended without a word."""
        ended = self._channel.ended()
        if ended.limit:
            return limit_error(self._step.name, ended.limit, self._step.limits)
        return ExecutorError(
            f"{self._step.name}: what ran it ended without an answer",
            cause=ended.text,
            hint="run it again; if it happens again, try another --executor",
        )

    def _write(self) -> None:
        step, setting = self._step, self._setting
        agent = Path(__file__).with_name("agent.py").read_bytes()
        header = {
            "command": step.command,
            "environment": dict(step.environment),
            "outputs": step.outputs,
            "seconds": step.limits.seconds,
            "folder": setting.folder,
            "contained": setting.contained,
            "uid": setting.uid,
            "memory_bytes": setting.memory_bytes,
            "processes": setting.processes,
            "silence": setting.silence,
            "linger": setting.linger,
        }
        text = json.dumps(header).encode("ascii")
        with suppress(OSError, ValueError):  # an agent that is gone is found by the reader
            self._channel.send(b"%08x" % len(agent) + agent + struct.pack("<I", len(text)) + text)
            self._channel.send(struct.pack("<Q", len(step.inputs)))
            self._channel.send(step.inputs)
            while setting.silence and not self._over.wait(setting.silence / _BEATS):
                self._channel.send(b".")

    def _read(self) -> None:
        buffer = bytearray()
        try:
            while piece := self._channel.receive():
                buffer += piece
                while len(buffer) >= _FRAME.size:
                    kind, size = _FRAME.unpack_from(buffer)
                    if size > _FRAME_LIMIT:
                        return
                    end = _FRAME.size + size
                    if len(buffer) < end:
                        break
                    self._put((kind, bytes(buffer[_FRAME.size : end])))
                    del buffer[:end]
        except (OSError, ValueError):
            pass
        finally:
            self._put(None)

    def _put(self, frame: tuple[bytes, bytes] | None) -> None:
        while not self._over.is_set():
            with suppress(queue.Full):
                self._arrived.put(frame, timeout=1)
                return
