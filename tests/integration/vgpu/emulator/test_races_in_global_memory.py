"""The check of data races in global memory: between waves, between workgroups, through atomics; and caches
that are not invalidated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotforge.errors import ExecutionError, UnsupportedError
from tests.integration.vgpu.emulator.handwritten import kernel, without
from tests.support.triton_kernels import compile_kernel, compile_text, launch
from vgpu.cli import main
from vgpu.emulator.debugger.locations import DebugInfo, source_lines
from vgpu.emulator.program import LaunchRequest
from vgpu.emulator.races import _smallest_access
from vgpu.emulator.targets import emulated_targets
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx1151", "gfx1100", "gfx1201")
UNORDERED = r"data race in global memory|may read an old value"

NEIGHBOURS = """
v_lshlrev_b32_e32 v1, 2, v0
v_xor_b32_e32 v2, 0x80, v1
{load_pointer} s[4:5], s[0:1], 0x0
{wait_scalar}
{store} v1, v0, s[4:5]
{waited}
{barrier}
{invalidated}
{load} v3, v2, s[4:5]
{wait_load}
"""
"""Each wave of 32 lanes stores to its place, and reads the one of its neighbour."""
GFX11 = {
    "load_pointer": "s_load_b64", "wait_scalar": "s_waitcnt lgkmcnt(0)", "store": "global_store_b32",
    "waited": "s_waitcnt_vscnt null, 0x0", "barrier": "s_barrier", "invalidated": "buffer_gl0_inv",
    "load": "global_load_b32", "wait_load": "s_waitcnt vmcnt(0)",
}  # fmt: skip
GFX12 = {
    **GFX11, "wait_scalar": "s_wait_kmcnt 0x0", "waited": "s_wait_storecnt 0x0",
    "barrier": "s_barrier_signal -1\ns_barrier_wait -1", "invalidated": "global_inv scope:SCOPE_SE",
    "wait_load": "s_wait_loadcnt 0x0",
}  # fmt: skip
GFX10 = {
    **GFX11, "load_pointer": "s_load_dwordx2", "store": "global_store_dword", "load": "global_load_dword",
}  # fmt: skip
GFX9 = {
    **GFX11, "load_pointer": "s_load_dwordx2", "store": "global_store_dword", "load": "global_load_dword",
    "waited": "s_nop 0", "invalidated": "s_nop 0",
}  # fmt: skip
NEIGHBOURS_9 = NEIGHBOURS.replace("0x80", "0x100")  # waves of 64 lanes


def _run(body: str, arch: str, **options: Any) -> None:
    lanes = emulated_targets()[arch].lanes
    program = kernel(body, arch, threads=2 * lanes)
    x = np.zeros(2 * lanes, dtype=np.uint32)
    address = int(x.ctypes.data)
    program.launch(
        LaunchRequest(grid=(1, 1, 1), arguments=[address] * 2, memory=Memory({"x": x}), races=True, **options)
    )


@pytest.mark.parametrize(
    ("arch", "words", "text"),
    [
        ("gfx1030", GFX10, NEIGHBOURS),
        ("gfx1100", GFX11, NEIGHBOURS),
        ("gfx1201", GFX12, NEIGHBOURS),
        ("gfx908", GFX9, NEIGHBOURS_9),
    ],
)
@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_waves_of_a_workgroup(arch: str, words: dict[str, str], text: str, schedule: int | None) -> None:
    body = text.format(**words)
    _run(body, arch, schedule=schedule)
    with pytest.raises(
        ExecutionError, match="data race in global memory: two waves touch the 4 bytes"
    ) as found:
        _run(without(body, words["barrier"]), arch, schedule=schedule)
    cause = str(found.value.cause)
    assert "global_store" in cause and "global_load" in cause and "bytes from the start of x" in cause
    assert "workgroup (0, 0, 0), wave 0" in cause and "workgroup (0, 0, 0), wave 1" in cause
    if arch == "gfx908":
        return  # the memory of a CU is in order, and its waves share a cache
    with pytest.raises(ExecutionError, match="data race in global memory"):
        _run(without(body, words["waited"]), arch, schedule=schedule)
    with pytest.raises(ExecutionError, match="may read an old value of the 4 bytes") as found:
        _run(without(body, words["invalidated"]), arch, schedule=schedule)
    assert "fence of global memory" in str(found.value.hint)


SHARED = """
@triton.jit
def kernel(x, y):
    i = tl.arange(0, 256)
    tl.store(y + i, tl.load(x + i) + {value})
"""
PARTS = """
@triton.jit
def kernel(x, y):
    i = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(y + i, tl.load(x + i) + 1)
"""
LOCK = """
@triton.jit
def kernel(x, lock):
    while tl.atomic_cas(lock, 0, 1{acquire}) == 1:
        pass
    tl.store(x, tl.load(x) + 1)
    tl.debug_barrier()
    {release}
"""
LAST = """
@triton.jit
def kernel(parts, counter, total, N: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, 128)
    tl.store(parts + p * 128 + i, i + p)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1{sem}) == N - 1:
        sum = tl.zeros((128,), tl.int32)
        for k in range(N):
            sum += tl.load(parts + k * 128 + i)
        tl.store(total + i, sum)
"""
I32 = {"x": "*i32", "y": "*i32"}


def _launched(
    source: str, arch: str, types: dict[str, str], arrays: list[Any], grid: int, **more: Any
) -> None:
    compiled = compile_kernel(source, arch, types, constants=more)
    launch(compiled.load(arch), arrays, grid=(grid, 1, 1), lds=compiled.lds, checks=False, races=True)


@pytest.mark.parametrize("arch", ARCHS)
def test_workgroups_on_the_same_and_on_their_own_places(arch: str) -> None:
    x, y = np.arange(1024, dtype=np.int32), np.zeros(1024, dtype=np.int32)
    _launched(PARTS, arch, I32, [x, y], 4)
    assert np.array_equal(y, x + 1)
    _launched(SHARED.format(value=1), arch, I32, [x, y], 4)  # all store the same values
    with pytest.raises(ExecutionError, match="data race in global memory") as found:
        _launched(SHARED.format(value="tl.program_id(0)"), arch, I32, [x, y], 4)
    assert "workgroup (0, 0, 0)" in str(found.value.cause) and "workgroup (1, 0, 0)" in str(found.value.cause)
    with pytest.raises(ExecutionError, match="data race"):  # one reads what the other one stores
        _launched(SHARED.format(value=1), arch, I32, [x, x], 2)


@pytest.mark.parametrize("kind", ["i8", "fp16"])
def test_neighbours_of_less_than_a_word_are_apart(kind: str) -> None:
    source = PARTS.replace("* 256 + tl.arange(0, 256)", "+ tl.arange(0, 1)").replace(" + 1)", ")")
    x = np.arange(64).astype(np.int8 if kind == "i8" else np.float16)
    for arch in ("gfx908", "gfx1201"):
        y = np.zeros_like(x)
        _launched(source, arch, {"x": f"*{kind}", "y": f"*{kind}"}, [x, y], 64)
        assert np.array_equal(x, y)


@pytest.mark.parametrize("arch", ARCHS)
def test_locks(arch: str) -> None:
    types = {"x": "*i32", "lock": "*i32"}

    def locked(acquire: str, release: str) -> None:
        x, lock = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
        _launched(LOCK.format(acquire=acquire, release=release), arch, types, [x, lock], 8)
        assert x[0] == 8

    locked("", "tl.atomic_xchg(lock, 0)")
    locked(', sem="acquire"', 'tl.atomic_xchg(lock, 0, sem="release")')
    with pytest.raises(ExecutionError, match="data race in global memory"):
        locked("", "tl.store(lock, 0)")
    with pytest.raises(ExecutionError, match=UNORDERED):
        locked(', sem="relaxed"', 'tl.atomic_xchg(lock, 0, sem="relaxed")')


@pytest.mark.parametrize("arch", ARCHS)
def test_the_last_workgroup_reads_what_all_have_stored(arch: str) -> None:
    types = {"parts": "*i32", "counter": "*i32", "total": "*i32"}
    for sem, right in (("", True), (', sem="release"', False), (', sem="relaxed"', False)):
        arrays = [np.zeros(n, dtype=np.int32) for n in (5 * 128, 1, 128)]
        if right:
            _launched(LAST.format(sem=sem), arch, types, arrays, 5, N=5)
            assert np.array_equal(arrays[2], 5 * np.arange(128) + 10)
            continue
        with pytest.raises(ExecutionError, match=UNORDERED):
            _launched(LAST.format(sem=sem), arch, types, arrays, 5, N=5)


READ_AND_COUNT = """
@triton.jit
def kernel(x, counter):
    before = tl.load(counter)
    tl.store(x + tl.program_id(0), before)
    tl.atomic_add(counter, 1)
"""
MAXIMUM = """
@triton.jit
def kernel(x, most):
    tl.atomic_max(most + tl.arange(0, 64), tl.load(x + tl.program_id(0) * 64 + tl.arange(0, 64)))
"""
REPLICATED = """
@triton.jit
def kernel(x, y):
    i = tl.arange(0, 16)
    tl.store(x + i, tl.load(x + i) + 1)
"""


@pytest.mark.parametrize("arch", ["gfx908", "gfx1201"])
def test_a_load_of_what_others_count_is_reported_where_it_is(arch: str) -> None:
    arrays = [np.zeros(4, dtype=np.int32), np.zeros(1, dtype=np.int32)]
    with pytest.raises(ExecutionError, match="data race in global memory") as found:
        _launched(READ_AND_COUNT, arch, {"x": "*i32", "counter": "*i32"}, arrays, 4)
    cause = str(found.value.cause)
    assert re.search(r"line \d+: (s|global|buffer)_load", cause) and "atomic_add" in cause


@pytest.mark.parametrize("arch", ["gfx908", "gfx1201"])
@pytest.mark.parametrize("kind", ["fp32", "i32"])
def test_compare_and_swap_checks_what_a_load_before_it_got(arch: str, kind: str) -> None:
    """LLVM makes atomics that the arch lacks of a load and a loop."""
    x = np.arange(256).astype(np.float32 if kind == "fp32" else np.int32)
    most = np.zeros(64, dtype=x.dtype)
    _launched(MAXIMUM, arch, {"x": f"*{kind}", "most": f"*{kind}"}, [x, most], 4)
    assert np.array_equal(most, x[192:])


@pytest.mark.parametrize("arch", ["gfx908", "gfx1201"])
@pytest.mark.parametrize("schedule", [None, 1, 2, 3, 4])
def test_waves_that_hold_the_same_tensor_do_not_race(arch: str, schedule: int | None) -> None:
    compiled = compile_kernel(REPLICATED, arch, I32, num_warps=8)
    x = np.zeros(16, dtype=np.int32)
    launch(compiled.load(arch), [x, x], checks=False, races=True, schedule=schedule)
    assert (x == 1).all()


def test_an_acquire_for_the_workgroup_does_not_reach_the_device() -> None:
    """The scope is too small: only the CU's cache is invalidated, or none."""
    types = {"parts": "*i32", "counter": "*i32", "total": "*i32"}
    for arch in ("gfx942", "gfx1151", "gfx1201"):
        arrays = [np.zeros(n, dtype=np.int32) for n in (5 * 128, 1, 128)]
        with pytest.raises(ExecutionError, match=UNORDERED):
            _launched(LAST.format(sem=', scope="cta"'), arch, types, arrays, 5, N=5)


def test_both_source_lines_are_named(tmp_path: Path) -> None:
    text = SHARED.format(value="tl.program_id(0)")
    compiled = compile_text(tmp_path, text, {"x": "*i32", "y": "*i32"}, constants={})
    program = compiled.load("gfx908")
    info = DebugInfo(program=program, source=source_lines(compiled.asm, program.listing))
    x, y = np.arange(256, dtype=np.int32), np.zeros(256, dtype=np.int32)
    with pytest.raises(ExecutionError) as found:
        launch(program, [x, y], grid=(2, 1, 1), checks=False, races=True, source=info)
    assert str(found.value.cause).count("source.py:8") == 2


def test_it_is_off_by_default_and_a_flag_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = compile_kernel(SHARED.format(value="tl.program_id(0)"), "gfx908", I32)
    image, asm = compiled.write(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros(256, dtype=np.int32))
    arguments = ["run", str(image), "--asm", str(asm), "--grid", "2", "--arg", f"in:{tmp_path}/x.npy"]
    arguments += ["--arg", f"zero:i32:256:{tmp_path}/y.npy"]
    assert main(arguments) == 0
    assert main([*arguments, "--races"]) != 0
    assert "data race in global memory" in capsys.readouterr().err
    assert main([*arguments, "--races", "--checks"]) != 0
    assert "launch it twice" in capsys.readouterr().err


def test_what_it_cannot_follow_is_refused() -> None:
    x = np.zeros(256, dtype=np.int32)
    with pytest.raises(UnsupportedError, match="follows 262144 waves, not 280000"):
        _launched(SHARED.format(value=1), "gfx908", I32, [x, x.copy()], 70000)


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("global_load_dword v1, v0, s[4:5]", 4),
        ("global_load_dwordx4 v[4:7], v0, s[4:5]", 4),
        ("global_store_short v0, v1, s[4:5]", 2),
        ("global_load_short_d16_hi v1, v0, s[4:5]", 2),
        ("global_load_sbyte v1, v0, s[4:5]", 1),
        ("global_load_ubyte_d16 v1, v0, s[4:5]", 1),
    ],
)
def test_units_are_the_smallest_access(body: str, size: int) -> None:
    assert _smallest_access(kernel(body, "gfx908", threads=64).lines) == size
