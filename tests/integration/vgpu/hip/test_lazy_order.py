"""Lazy order: work is executed when something waits for it, so every wait that a program forgets shows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from aotforge.compile.model import KernelImage
from tests.integration.vgpu.hip.conftest import Play
from tests.support.virtual_hip import TO_HOST, Array, Hip, HipError

pytestmark = pytest.mark.compiler

NOT_READY, ILLEGAL_ADDRESS, INVALID_HANDLE, NON_BLOCKING = 600, 700, 400, 1
N = 2048


class Sum:
    """x + y on a device, with the kernel queued by `launch`."""

    def __init__(self, hip: Hip, function: c_void_p) -> None:
        self.hip, self.function = hip, function
        self.x, self.y = (np.random.default_rng(i).standard_normal(N).astype(np.float16) for i in range(2))
        self.buffers = [hip.upload(v) for v in (self.x, self.y, np.full_like(self.x, np.nan))]

    def launch(self, stream: c_void_p | None, *, swap: bool = False) -> None:
        """out = x + y; with `swap` x = out + y."""
        x, y, out = self.buffers
        arguments = [out, y, x] if swap else [x, y, out]
        self.hip.launch(
            self.function, (1, 1, 1), 256, [*arguments, c_int64(N), c_void_p(), c_void_p()], stream=stream
        )

    def pinned(self, stream: c_void_p | None, which: int = 2) -> Array:
        """Pinned host memory that a buffer is being copied to."""
        at = c_void_p()
        self.hip.hipHostMalloc(byref(at), c_size_t(2 * N), 0)
        self.hip.hipMemcpyAsync(at, self.buffers[which], c_size_t(2 * N), TO_HOST, stream)
        return np.ctypeslib.as_array(
            (np.ctypeslib.as_ctypes_type(np.uint16) * N).from_address(at.value or 0)
        ).view(np.float16)

    def right(self, found: Array) -> bool:
        return bool((found == self.x + self.y).all())


@pytest.fixture
def hip(play: Play, texts: Path) -> Hip:
    return play(texts=str(texts), order="lazy")


@pytest.fixture
def sum_(hip: Hip, add: KernelImage) -> Sum:
    return Sum(hip, hip.function(add.binary, "add"))


def stream_of(hip: Hip, flags: int = NON_BLOCKING) -> c_void_p:
    made = c_void_p()
    hip.hipStreamCreateWithFlags(byref(made), flags)
    return made


def event_of(hip: Hip, stream: c_void_p) -> c_void_p:
    made = c_void_p()
    hip.hipEventCreate(byref(made))
    hip.hipEventRecord(made, stream)
    return made


def test_nothing_happens_before_it_is_waited_for(hip: Hip, sum_: Sum) -> None:
    stream = stream_of(hip)
    sum_.launch(stream)
    seen = sum_.pinned(stream)
    assert np.isnan(seen).all()
    hip.hipStreamSynchronize(None)  # another one
    assert np.isnan(seen).all()
    hip.hipStreamSynchronize(stream)
    assert sum_.right(seen)


def test_streams_meet_at_events_only(hip: Hip, sum_: Sum) -> None:
    first, second = stream_of(hip), stream_of(hip)
    sum_.launch(first)
    forgotten = sum_.pinned(second)
    hip.hipStreamSynchronize(second)
    assert np.isnan(forgotten).all()
    hip.hipStreamWaitEvent(second, event_of(hip, first), 0)
    sum_.launch(first, swap=True)  # behind the event
    seen, later = sum_.pinned(second), sum_.pinned(second, 0)
    hip.hipStreamSynchronize(second)
    assert sum_.right(seen) and (later == sum_.x).all()
    hip.hipDeviceSynchronize()
    assert not (hip.download(sum_.buffers[0], sum_.x) == sum_.x).all()


def test_the_null_stream_takes_turns_with_blocking_streams(hip: Hip, sum_: Sum) -> None:
    blocking, free = stream_of(hip, 0), stream_of(hip)
    sum_.launch(blocking)
    seen = sum_.pinned(None)  # the null stream waits for the launch
    sum_.launch(blocking, swap=True)
    unmoved = sum_.pinned(free, 0)
    hip.hipStreamSynchronize(free)
    assert (unmoved == sum_.x).all() and np.isnan(seen).all()
    hip.hipStreamSynchronize(None)
    assert sum_.right(seen)


def test_programs_that_poll_come_to_an_end(hip: Hip, sum_: Sum) -> None:
    stream = stream_of(hip)
    sum_.launch(stream)
    event = event_of(hip, stream)
    assert [hip.library.hipEventQuery(event) for _ in range(2)] == [NOT_READY, 0]
    sum_.launch(stream)
    assert [hip.library.hipStreamQuery(stream) for _ in range(2)] == [NOT_READY, 0]
    assert sum_.right(hip.download(sum_.buffers[2], sum_.x))


def test_freeing_waits_and_faults_come_with_the_wait(hip: Hip, sum_: Sum) -> None:
    stream = stream_of(hip)
    sum_.launch(stream)
    hip.hipFree(sum_.buffers[0])  # waits: the kernel still reads it
    assert sum_.right(hip.download(sum_.buffers[2], sum_.x))
    other = Sum(hip, sum_.function)
    hip.hipFreeAsync(other.buffers[0], stream)  # in order: before the kernel
    other.launch(stream)
    assert hip.library.hipGetLastError() == 0
    with pytest.raises(HipError) as error:
        hip.hipStreamSynchronize(stream)
    assert error.value.code == ILLEGAL_ADDRESS


def test_streams_come_and_go_while_another_thread_waits_for_the_device(hip: Hip, sum_: Sum) -> None:
    def churn() -> None:
        for _ in range(200):
            hip.hipStreamDestroy(stream_of(hip))

    with ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(churn) for _ in range(2)]
        while not all(thread.done() for thread in threads):
            hip.hipDeviceSynchronize()
    for thread in threads:
        thread.result()
    last = stream_of(hip)
    sum_.launch(last)
    hip.hipStreamDestroy(last)  # finishes what is queued
    assert sum_.right(hip.download(sum_.buffers[2], sum_.x))
    assert hip.library.hipStreamDestroy(last) == INVALID_HANDLE
