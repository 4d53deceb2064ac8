"""Kernels launched through HIP's module interface compute, in streams, threads and several devices; faults
are errors that stay."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import signal
import threading
import time
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from aotforge.compile.model import KernelImage
from tests.integration.vgpu.emulator.handwritten import assembly_text
from tests.integration.vgpu.emulator.test_hidden_arguments import HIDDEN, hidden_kernel
from tests.integration.vgpu.emulator.test_host_calls import ASSERTS, prints
from tests.integration.vgpu.hip.conftest import Play
from tests.support.triton_kernels import compile_kernel
from tests.support.virtual_hip import Array, Hip, HipError, linked

pytestmark = pytest.mark.compiler

INVALID_VALUE, INVALID_CONFIGURATION, NOT_FOUND, INVALID_HANDLE, ILLEGAL_ADDRESS, TIME_OUT = (
    1,
    9,
    500,
    400,
    700,
    702,
)
LAUNCH_FAILURE = 719
N, THREADS, BLOCK = 5000, 256, 2048
GRID = (-(-N // BLOCK), 1, 1)


def numbers(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(N).astype(np.float16), rng.standard_normal(N).astype(np.float16)


def added(hip: Hip, function: c_void_p, seed: int, stream: c_void_p | None = None) -> bool:
    x, y = numbers(seed)
    buffers = [hip.upload(v) for v in (x, y, np.zeros_like(x))]
    hip.launch(function, GRID, THREADS, [*buffers, c_int64(N), c_void_p(), c_void_p()], stream=stream)
    hip.hipStreamSynchronize(stream)
    right = bool((hip.download(buffers[2], x) == x + y).all())
    for buffer in buffers:
        hip.hipFree(buffer)
    return right


def test_add(play: Play, add: KernelImage, texts: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    hip = play(texts=str(texts), record=str(record))
    assert added(hip, hip.function(add.binary, "add"), 1)
    load, launch = map(json.loads, record.read_text().splitlines())
    assert (load["event"], load["image"], load["kernel"]) == ("load", add.digest, "add")
    assert (launch["event"], launch["grid"], launch["ok"]) == ("launch", [3, 1, 1], True)
    # one device, one schedule or another: the same sums
    hip = play(texts=str(texts), schedule="5", seed="7", threads="1")
    assert added(hip, hip.function(add.binary, "add"), 2)


def test_packed_arguments_files_and_host_memory(
    play: Play, add: KernelImage, texts: Path, tmp_path: Path
) -> None:
    hip = play(texts=str(texts))
    file = tmp_path / "add.hsaco"
    file.write_bytes(add.binary)
    module, function = c_void_p(), c_void_p()
    hip.hipModuleLoad(byref(module), str(file).encode())
    hip.hipModuleGetFunction(byref(function), module, b"add")
    assert hip.library.hipModuleGetFunction(byref(c_void_p()), module, b"sub") == NOT_FOUND
    x, y = numbers()
    out = np.full(N, 9, dtype=np.float16)
    hip.hipHostRegister(out.ctypes.data_as(c_void_p), c_size_t(out.nbytes), 0)
    packed = np.array([hip.upload(x).value, hip.upload(y).value, out.ctypes.data, N, 0, 0], dtype=np.uint64)
    size = c_size_t(packed.nbytes)
    extra = (c_void_p * 5)(1, packed.ctypes.data, 2, ctypes.addressof(size), 3)
    hip.hipModuleLaunchKernel(function, *GRID, THREADS, 1, 1, 0, None, None, extra)
    hip.hipDeviceSynchronize()
    assert (out == x + y).all()
    hip.hipModuleUnload(module)
    with pytest.raises(HipError, match="98"):
        hip.launch(function, GRID, THREADS, [c_void_p()] * 6)


def test_streams_events_and_threads(play: Play, add: KernelImage, texts: Path) -> None:
    hip = play(texts=str(texts))
    function = hip.function(add.binary, "add")
    results: list[bool] = []

    def work(seed: int) -> None:
        stream, start, end, took = c_void_p(), c_void_p(), c_void_p(), c_float()
        hip.hipStreamCreateWithFlags(byref(stream), 1)
        for event in (start, end):
            hip.hipEventCreate(byref(event))
        hip.hipEventRecord(start, stream)
        right = all(added(hip, function, seed * 10 + i, stream) for i in range(3))
        hip.hipEventRecord(end, stream)
        hip.hipEventSynchronize(end)
        hip.hipEventElapsedTime(byref(took), start, end)
        hip.hipStreamDestroy(stream)
        results.append(
            right and took.value > 0 and hip.library.hipStreamSynchronize(stream) == INVALID_HANDLE
        )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    for default in (None, c_void_p(1), c_void_p(2)):
        assert added(hip, function, 50, default)


_SPINS = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
v_mov_b32 v1, 0
v_mov_b32 v2, 1
global_store_dword v1, v2, s[6:7]
again:
global_load_dword v3, v1, s[4:5] glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s8, v3
s_cmp_eq_u32 s8, 0
s_cbranch_scc1 again
"""


@pytest.mark.parametrize("stream", [False, True])
def test_a_child_forked_during_a_launch_launches(play: Play, tmp_path: Path, stream: bool) -> None:
    """The kernel writes `started` and ends when it reads `go`."""
    text = assembly_text(_SPINS, "gfx908", threads=64)
    image = linked(text, "gfx908", tmp_path)
    (tmp_path / f"{hashlib.sha256(image).hexdigest()}.s").write_text(text)
    hip = play(texts=str(tmp_path), limit=str(1 << 60))
    function, queue = hip.function(image, "kernel"), c_void_p()
    if stream:
        hip.hipStreamCreate(byref(queue))
    go, started = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    for buffer in (go, started):
        hip.hipHostRegister(buffer.ctypes.data_as(c_void_p), c_size_t(4), 0)

    def launch() -> None:
        arguments = [c_void_p(go.ctypes.data), c_void_p(started.ctypes.data)]
        hip.launch(function, (1, 1, 1), 64, arguments, stream=queue)

    thread = threading.Thread(target=launch)
    thread.start()
    while not started[0]:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # it ends the child if the stream is busy
        go[0], started[0] = 1, 0
        launch()
        hip.hipStreamSynchronize(queue)
        os._exit(int(started[0]) + 2)
    status = os.waitpid(child, 0)[1]
    go[0] = 1
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 3
    hip.hipStreamSynchronize(queue)


@pytest.mark.parametrize("order", ["eager", "lazy"])
def test_times_of_events_can_count_instructions(
    play: Play, add: KernelImage, texts: Path, tmp_path: Path, order: str
) -> None:
    """A nanosecond each, on every machine the same: of two launches between events, and of none."""
    record = tmp_path / "record"
    hip = play(texts=str(texts), record=str(record), clock="instructions", order=order)
    function = hip.function(add.binary, "add")
    added(hip, function, 0)  # not between the events
    events = [c_void_p() for _ in range(3)]
    for event in events:
        hip.hipEventCreate(byref(event))
    hip.hipEventRecord(events[0], None)
    hip.hipEventRecord(events[1], None)
    assert added(hip, function, 1) and added(hip, function, 2)
    hip.hipEventRecord(events[2], None)
    hip.hipEventSynchronize(events[2])
    took = [c_float(), c_float()]
    for one, begin, end in zip(took, events, events[1:], strict=False):
        hip.hipEventElapsedTime(byref(one), begin, end)
    executed = [json.loads(line).get("instructions", 0) for line in record.read_text().splitlines()]
    assert took[0].value == 0
    assert took[1].value == pytest.approx(sum(executed[-2:]) / 1e6) and executed[-1] > 100


def test_shapes_that_hip_refuses(play: Play, add: KernelImage, texts: Path) -> None:
    hip = play(texts=str(texts))
    function = hip.function(add.binary, "add")
    arguments = [c_void_p(), c_void_p(), c_void_p(), c_int64(0), c_void_p(), c_void_p()]
    for grid, threads, lds in (
        ((0, 1, 1), 256, 0),
        ((1, 65537, 1), 256, 0),
        ((1, 1, 1), 512, 0),
        ((1, 1, 1), 256, 65537),
    ):
        with pytest.raises(HipError) as error:
            hip.launch(function, grid, threads, arguments, lds=lds)
        assert error.value.code == INVALID_CONFIGURATION
    with pytest.raises(HipError, match="801"):
        hip.launch(function, GRID, 128, arguments)
    assert "workgroups of 256" in hip.report()
    assert (
        hip.library.hipModuleLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, None, None, None) == INVALID_VALUE
    )


def test_a_fault_is_an_error_that_stays_with_its_device(
    play: Play, add: KernelImage, texts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hip = play("gfx908,gfx908", texts=str(texts), log="error")
    function = hip.function(add.binary, "add")
    x, y = numbers()
    short = hip.upload(np.zeros(N - 8, dtype=np.float16))
    hip.launch(
        function, GRID, THREADS, [hip.upload(x), hip.upload(y), short, c_int64(N), c_void_p(), c_void_p()]
    )
    assert hip.library.hipDeviceSynchronize() == ILLEGAL_ADDRESS
    report = hip.report()
    assert (
        "writes" in report and "outside its buffers" in report and "_store_" in report and "line " in report
    )
    assert f"allocation #0, which has {2 * (N - 8)} bytes" in report
    assert report in capfd.readouterr().err
    assert hip.library.hipMalloc(byref(c_void_p()), c_size_t(4)) == ILLEGAL_ADDRESS
    assert hip.library.hipStreamSynchronize(None) == ILLEGAL_ADDRESS
    hip.hipSetDevice(1)  # another device is not concerned
    assert added(hip, hip.function(add.binary, "add"), 3)
    hip.hipSetDevice(0)
    hip.hipDeviceReset()
    assert added(hip, hip.function(add.binary, "add"), 3)


def test_memory_of_another_device_and_freed_memory_are_out_of_reach(
    play: Play, add: KernelImage, texts: Path
) -> None:
    x, y = numbers()
    for spoil in ("other", "freed"):
        hip = play("gfx908,gfx908", texts=str(texts))
        hip.hipSetDevice(1)
        other = hip.upload(x)
        hip.hipSetDevice(0)
        mine = hip.upload(x)
        bad = other if spoil == "other" else mine
        out, last = hip.upload(y), hip.upload(y)
        if spoil == "freed":
            hip.hipFree(mine)
        function = hip.function(add.binary, "add")
        hip.launch(function, GRID, THREADS, [bad, last, out, c_int64(N), c_void_p(), c_void_p()])
        assert hip.library.hipDeviceSynchronize() == ILLEGAL_ADDRESS, spoil
        assert "reads" in hip.report()


def test_an_endless_kernel_times_out(play: Play, add: KernelImage, texts: Path) -> None:
    hip = play(texts=str(texts), limit="20")
    function = hip.function(add.binary, "add")
    with pytest.raises(HipError) as error:
        added(hip, function, 1)
    assert error.value.code == TIME_OUT


def test_injected_failures(play: Play, add: KernelImage, texts: Path) -> None:
    hip = play(texts=str(texts), fail="hipMalloc:2:2;hipModuleGetFunction:1:500")
    found = c_void_p()
    assert [hip.library.hipMalloc(byref(found), c_size_t(8)) for _ in range(3)] == [0, 2, 0]
    assert hip.library.hipGetLastError() == 2
    with pytest.raises(HipError, match="500"):
        hip.function(add.binary, "add")
    function = hip.function(add.binary, "add")
    hip.library.aotforge_virtual_fail(b"hipModuleLaunchKernel:0:719")
    for _ in range(2):
        with pytest.raises(HipError, match="719"):
            added(hip, function, 1)
    hip.library.aotforge_virtual_fail(b"")
    assert added(hip, function, 1)
    assert hip.library.hipGetDevice(byref(c_int())) == 0


def test_checks_find_a_wait_that_allows_too_much(play: Play, add: KernelImage, tmp_path: Path) -> None:
    """A new image, text and all: one load less is waited for, which plain execution cannot see."""
    text = add.asm.replace("s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(1)")
    assert text != add.asm
    image = linked(text, "gfx908", tmp_path)
    (tmp_path / f"{hashlib.sha256(image).hexdigest()}.s").write_text(text)
    plain = play(texts=str(tmp_path))
    assert added(plain, plain.function(image, "add"), 1)
    checking = play(texts=str(tmp_path), checks="1")
    with pytest.raises(HipError) as error:
        added(checking, checking.function(image, "add"), 1)
    assert error.value.code == LAUNCH_FAILURE
    assert "before the load into it has been waited for" in checking.report()
    assert "buffer_load_dwordx4" in checking.report()


def test_checks_find_device_memory_that_was_not_written(play: Play, add: KernelImage, texts: Path) -> None:
    hip = play(texts=str(texts), checks="1")
    function = hip.function(add.binary, "add")
    x, y = numbers()
    half = 2 * N // 2  # bytes
    source, copied, out = hip.upload(y), c_void_p(), c_void_p()
    for buffer in (copied, out):
        hip.hipMalloc(byref(buffer), c_size_t(2 * N))
    arguments = [hip.upload(x), copied, out, c_int64(N), c_void_p(), c_void_p()]
    hip.hipMemcpy(copied, source, c_size_t(half), 3)
    hip.hipMemset(c_void_p((copied.value or 0) + half), 0, c_size_t(half))
    hip.launch(function, GRID, THREADS, arguments)
    hip.hipDeviceSynchronize()
    assert (hip.download(out, x)[: N // 2] == (x + y)[: N // 2]).all()
    hip.hipMalloc(byref(source), c_size_t(2 * N))
    hip.hipMemcpy(copied, source, c_size_t(2), 3)  # one element, copied from memory that was not written
    hip.launch(function, GRID, THREADS, arguments)
    assert hip.library.hipDeviceSynchronize() == LAUNCH_FAILURE
    assert "stores uninitialised data to global memory" in hip.report()


@pytest.mark.parametrize(
    "kind", ["hidden_group_size_x", "hidden_group_size_y", "hidden_grid_dims", "hidden_dynamic_lds_size"]
)
def test_hidden_arguments_are_those_of_the_emulator(play: Play, tmp_path: Path, kind: str) -> None:
    size, value = HIDDEN[kind]
    image, text = hidden_kernel(kind, size)
    (tmp_path / f"{hashlib.sha256(image).hexdigest()}.s").write_text(text)
    hip = play(texts=str(tmp_path))
    function, like = hip.function(image, "kernel"), np.zeros(1, dtype=np.uint32)
    out = hip.upload(like)
    arguments = (c_void_p * 1)(ctypes.addressof(out))
    hip.hipModuleLaunchKernel(function, 5, 6, 7, 64, 1, 1, 512, None, arguments, None)
    hip.hipDeviceSynchronize()
    assert int(hip.download(out, like)[0]) & (1 << 8 * size) - 1 == value


def test_prints_are_on_standard_output(play: Play, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = prints("gfx942")
    (tmp_path / f"{hashlib.sha256(made.binary).hexdigest()}.s").write_text(made.asm)
    hip = play("gfx942", texts=str(tmp_path), checks="1")
    x = hip.upload(np.arange(384, dtype=np.int32))
    hip.launch(hip.function(made.binary, "kernel"), (3, 1, 1), 128, [x, c_int(5), c_void_p(), c_void_p()])
    hip.hipDeviceSynchronize()
    lines = re.findall(r"pid \(2, 0, 0\) idx \( *127\) value: (\S+)", capfd.readouterr().out)
    assert lines == ["1915"]


def test_an_assertion_is_on_standard_error_and_ends_the_launch(
    play: Play, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = compile_kernel(ASSERTS, "gfx942", {"x": "*i32"}, num_warps=4, debug=True)
    (tmp_path / f"{hashlib.sha256(made.binary).hexdigest()}.s").write_text(made.asm)
    hip = play("gfx942", texts=str(tmp_path))
    x = hip.upload(np.full(256, 11, dtype=np.int32))
    hip.launch(hip.function(made.binary, "kernel"), (1, 1, 1), 256, [x, c_void_p(), c_void_p()])
    assert hip.library.hipDeviceSynchronize() == LAUNCH_FAILURE
    assert "device assertion failed: 'v is large'" in capfd.readouterr().err
