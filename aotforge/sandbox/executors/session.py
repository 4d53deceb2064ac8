"""Conversation with an agent: sends header and inputs, receives output and result."""

import json
import queue
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

from aotforge.errors import AotforgeError, ExecutorError
from aotforge.formats.untrusted_file import parse_json
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
"""Program of the Python in the rootfs: reads the agent from stdin."""

WORK = "/tmp/work"
"""Folder of a step's files in a container; /tmp is the only writable folder there."""

HEARTBEAT_TIMEOUT = 60.0
"""Seconds without a byte on stdin after which the agent exits: containerd's shim keeps stdin open after its engine died."""

KEEP_ALIVE_SECONDS = 8 * 3600
"""Time that a kept container waits for inspection."""

UID = 64042
"""UID of steps inside a container. Unique, so that per-user limits are not shared."""

_FRAME = struct.Struct("<cI")
_FRAME_LIMIT = 1 << 20
_PATIENCE_SECONDS = 20.0
_HEARTBEATS_PER_TIMEOUT = 10


def agent_command(python: str) -> tuple[str, ...]:
    """The command that starts the agent, isolated from the environment and from site packages."""
    return (python, "-I", "-S", "-u", "-c", BOOTSTRAP)


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Fields of the agent's header beyond the step; see agent.py."""

    folder: str
    sandboxed: bool
    uid: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    heartbeat_timeout: float = 0.0
    keep_alive: int = 0


class AgentReport(BaseModel):
    """The agent's last frame. It is not trusted: the step may have written to the agent's stdout."""

    model_config = ConfigDict(frozen=True, strict=True)

    status: int
    signal: int
    reason: Literal["", "memory", "seconds", "processes"]
    trouble: str
    cpu_seconds: float
    peak_bytes: int
    oom_kills: int
    refused_forks: int


@dataclass(frozen=True, kw_only=True)
class AgentExit:
    """What the engine knows about an agent that exited without a result: the limit that was exceeded, or ''; a sentence."""

    limit: str = ""
    text: str = ""


class Channel(Protocol):
    """Streams of a started agent."""

    def send(self, data: bytes) -> None:
        """Writes all of `data` to the agent's stdin. Raises OSError when it is gone."""

    def receive(self) -> bytes:
        """Some bytes of the agent's stdout; empty at its end. Raises OSError."""

    def ended(self) -> AgentExit:
        """Why the agent exited. Raises ExecutorError when the engine itself is gone."""

    def counters(self) -> Mapping[str, int]:
        """`oom_kills` and `refused_forks`, where the agent cannot read them itself."""

    def close(self) -> None:
        """Closes stdin, upon which the agent kills the step and exits."""


class Session:
    """Runs one step. Reading and writing have threads of their own, so that neither delays the time limit."""

    def __init__(self, channel: Channel, step: Step, config: AgentConfig, on_output: OnOutput) -> None:
        self._channel, self._step, self._config, self._on_output = channel, step, config, on_output
        self._frames: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue(maxsize=64)
        self._outputs = bytearray()
        self._over = threading.Event()
        self.has_result = False
        """The agent reported a result; it stays for inspection if it is configured to."""

    def run(self) -> StepResult:
        """Waits for the result. Raises LimitError, ExecutorError, and what `on_output` raises."""
        for body in (self._write, self._read):
            threading.Thread(target=body, daemon=True).start()
        # the agent enforces the time limit; this one is for an agent that is lost
        end = time.monotonic() + self._step.limits.seconds + _PATIENCE_SECONDS
        try:
            while True:
                try:
                    frame = self._frames.get(timeout=max(0.0, end - time.monotonic()))
                except queue.Empty:
                    raise limit_error(self._step.name, "seconds", self._step.limits) from None
                if frame is None:
                    raise self._lost_agent()
                kind, payload = frame
                if kind == b"X":
                    self.has_result = True
                    return self._result(self._report(payload))
                if kind == b"O":
                    self._outputs += payload
                    if len(self._outputs) > self._step.limits.output_bytes:
                        raise limit_error(self._step.name, "outputs", self._step.limits)
                elif kind in b"12":
                    self._on_output("stdout" if kind == b"1" else "stderr", payload)
        finally:
            self._over.set()

    def _report(self, payload: bytes) -> AgentReport:
        try:
            return AgentReport.model_validate(parse_json(payload))
        except ValueError:
            raise ExecutorError(
                f"{self._step.name}: the agent's report is not valid",
                cause="something in the step writes to the agent's stdout",
                hint="run it again; if it happens again, try another --executor",
            ) from None

    def _result(self, report: AgentReport) -> StepResult:
        step, status = self._step, report.status
        seen = self._channel.counters()
        count = {
            name: max(getattr(report, name), seen.get(name, 0)) for name in ("oom_kills", "refused_forks")
        }
        if report.reason:
            raise limit_error(step.name, report.reason, step.limits)
        if report.trouble:
            raise ExecutorError(
                f"{step.name} could not be started, or its outputs could not be read: {report.trouble}",
                hint=f"its files may take {step.limits.scratch_bytes >> 20} MiB: check the free space",
            )
        for limit, counter in (("memory", "oom_kills"), ("processes", "refused_forks")):
            if status and count[counter]:
                raise limit_error(step.name, limit, step.limits)
        return StepResult(
            status=status,
            signal=report.signal,
            outputs=bytes(self._outputs),
            cpu_seconds=report.cpu_seconds,
            peak_bytes=report.peak_bytes,
            oom_kills=count["oom_kills"],
        )

    def _lost_agent(self) -> AotforgeError:
        ended = self._channel.ended()
        if ended.limit:
            return limit_error(self._step.name, ended.limit, self._step.limits)
        return ExecutorError(
            f"{self._step.name}: the agent exited without reporting a result",
            cause=ended.text,
            hint="run it again; if it happens again, try another --executor",
        )

    def _write(self) -> None:
        step, config = self._step, self._config
        agent = Path(__file__).with_name("agent.py").read_bytes()
        header = asdict(config) | {
            "command": step.command,
            "environment": dict(step.environment),
            "outputs": step.outputs,
            "seconds": step.limits.seconds,
        }
        text = json.dumps(header).encode("ascii")
        with suppress(OSError, ValueError):  # an agent that is gone is found by the reader
            self._channel.send(b"%08x" % len(agent) + agent + struct.pack("<I", len(text)) + text)
            self._channel.send(struct.pack("<Q", len(step.inputs)))
            self._channel.send(step.inputs)
            interval = config.heartbeat_timeout / _HEARTBEATS_PER_TIMEOUT
            while interval and not self._over.wait(interval):
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
            return
        finally:
            self._put(None)

    def _put(self, frame: tuple[bytes, bytes] | None) -> None:
        while not self._over.is_set():
            with suppress(queue.Full):
                self._frames.put(frame, timeout=1)
                return
