"""Whatever arrives from an agent ends in a result or a named error; memory is bounded."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Mapping

import pytest

from aotforge.compile.pool import Frames
from aotforge.errors import AotforgeError, ExecutorError, LimitError
from aotforge.sandbox.executors.docker import DockerChannel
from aotforge.sandbox.executors.session import AgentConfig, AgentExit, Session
from aotforge.sandbox.executors.step import OutputTail, Step, StepLimits, StepResult
from tests.support.fuzzing import mutated

REPORT = {
    "status": 0, "signal": 0, "reason": "", "trouble": "", "cpu_seconds": 1.5, "peak_bytes": 4096, "oom_kills": 0,
    "refused_forks": 0,
}  # fmt: skip


class Canned:
    """A channel whose agent sends these bytes."""

    def __init__(self, data: bytes, piece: int = 4096) -> None:
        self._pieces = iter([data[at : at + piece] for at in range(0, len(data), piece)])

    def send(self, data: bytes) -> None:
        pass

    def receive(self) -> bytes:
        return next(self._pieces, b"")

    def ended(self) -> AgentExit:
        return AgentExit(text="it exited with 0")

    def counters(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        pass


def framed(kind: bytes, payload: bytes) -> bytes:
    return struct.pack("<cI", kind, len(payload)) + payload


def conversation(**changes: object) -> bytes:
    return (
        framed(b"R", b"{}")
        + framed(b"O", b"tar")
        + framed(b"1", b"text\n")
        + framed(b"O", b"end")
        + report(**changes)
    )


def report(**changes: object) -> bytes:
    return framed(b"X", json.dumps(REPORT | changes).encode())


def run(data: bytes, output_bytes: int = 1000, piece: int = 4096) -> tuple[StepResult, bytes]:
    printed = bytearray()
    limits = StepLimits(output_bytes=output_bytes, seconds=600)
    step = Step(name="a step", command=("true",), environment={}, inputs=b"", limits=limits)
    config = AgentConfig(folder="/tmp/work", sandboxed=False)
    session = Session(Canned(data, piece), step, config, lambda stream, data: printed.extend(data))
    return session.run(), bytes(printed)


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_a_result(piece: int) -> None:
    result, printed = run(conversation(status=3, signal=2), piece=piece)
    assert (result.status, result.signal, result.outputs, printed) == (3, 2, b"tarend", b"text\n")
    assert (result.cpu_seconds, result.peak_bytes) == (1.5, 4096)


def test_outputs_are_bounded() -> None:
    parts = framed(b"O", bytes(600))
    assert run(parts + report())[0].outputs == bytes(600)
    with pytest.raises(LimitError, match=r"a step needs more than its limit of .* GiB of output files"):
        run(parts * 2 + report())


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, json.dumps(REPORT | {"status": "0"}).encode(),
        json.dumps(REPORT | {"reason": "rain"}).encode(), json.dumps({k: v for k, v in REPORT.items() if k != "signal"}).encode(),
    ],
)  # fmt: skip
def test_a_report_that_is_not_valid(payload: bytes) -> None:
    with pytest.raises(ExecutorError, match="a step: the agent's report is not valid"):
        run(framed(b"X", payload))


CUT = (
    b"",
    b"X",
    report()[:-1],
    struct.pack("<cI", b"1", 1 << 20) + b"x",
    struct.pack("<cI", b"1", (1 << 20) + 1) + bytes((1 << 20) + 1) + report(),
)


@pytest.mark.parametrize("data", CUT)
def test_an_agent_that_ends_without_a_report(data: bytes) -> None:
    with pytest.raises(ExecutorError, match="exited without reporting a result"):
        run(data)


def test_hostile_frames_end_in_named_errors() -> None:
    dice, right, results = random.Random(1), conversation(), 0
    for _ in range(400):
        try:
            run(mutated(right, dice))
            results += 1
        except AotforgeError:
            pass
    assert 0 < results < 400


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("<II", (1 << 24) + 1, 0), "a frame of 16777217 and 0 bytes"),
        (struct.pack("<II", 0, (1 << 28) + 1), "a frame of 0 and 268435457 bytes"),
        (struct.pack("<II", 2, 0) + b"[]", "without a JSON object"),
        (struct.pack("<II", 1, 0) + b"\xff", "utf-8"),
    ],
)
def test_messages_of_workers_that_are_not_valid(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Frames().feed(data)


def test_the_end_of_an_endless_output_is_kept() -> None:
    tail = OutputTail(limit=10)
    for number in range(1000):
        tail.add(b"%d " % number)
    assert tail.text() == "7 998 999 "


class Attached:
    """A socket of the Docker Engine with the stderr of a container, of 64 MiB."""

    def __init__(self) -> None:
        self._frame = struct.pack(">BxxxI", 2, 1 << 16) + bytes(1 << 16)
        self._left = 1024

    def recv(self, size: int) -> bytes:
        self._left -= 1
        return self._frame if self._left >= 0 else b""


def test_the_agents_stderr_in_a_container_is_bounded() -> None:
    """A step has the agent's user, and writes to its /proc/PID/fd/2: the container's memory does not include it."""
    tracemalloc.start()
    try:
        assert DockerChannel(None, "", Attached()).receive() == b""
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
