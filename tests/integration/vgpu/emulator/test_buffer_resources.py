"""Buffer resources by the rules of the arch, and addresses of buffers and pointers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.integration.vgpu.emulator.bench import RUNNING, Bench
from tests.integration.vgpu.emulator.handwritten import Words, run
from tests.support.triton_kernels import compile_kernel, launch
from vgpu.emulator.address_space import AddressSpace
from vgpu.memory import Memory

TRITON_GFX9, TRITON_RDNA = 0x27000, 0x31027000
"""What Triton writes: a format that untyped accesses ignore; on RDNA RESOURCE_LEVEL and OOB_SELECT "raw" as
well."""
_STORE = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
s_mov_b32 s8, s6
s_or_b32 s9, s7, {word1:#x}
s_mov_b32 s10, {records}
s_mov_b32 s11, {word3:#x}
v_lshlrev_b32_e32 v1, 2, v0
v_mov_b32_e32 v2, 7
buffer_store_dword v2, v1, s[8:11], 0 offen
"""
_NAMES = {"s_load_dwordx4": "s_load_b128", "buffer_store_dword": "buffer_store_b32"}
_WRITTEN = np.repeat(np.array([7, 0], dtype=np.uint32), [64, 192])
_NOTHING = np.zeros(256, dtype=np.uint32)


def store(arch: str, word3: int, *, word1: int = 0, records: int = 256) -> Words:
    """64 lanes store words through a resource of 64 words."""
    body = _STORE.format(word1=word1, word3=word3, records=records)
    for old, new in _NAMES.items() if arch == "gfx1100" else ():
        body = body.replace(old, new)
    return run(body, arch, threads=64)


@pytest.mark.parametrize(
    ("arch", "word3"),
    [
        ("gfx908", TRITON_GFX9),
        ("gfx1030", TRITON_RDNA),
        ("gfx1036", TRITON_RDNA),
        ("gfx1100", TRITON_RDNA),
        ("gfx1030", 0x31016000),  # LLVM's: a format of 32-bit floats
        ("gfx1030", 0x31027FAC),  # components are selected
        ("gfx1030", 0x3D627000),  # swizzling's index stride, no allocation in the last level cache
        ("gfx1030", 0x11027000),  # the index alone is checked
        ("gfx1030", 0x21027000),  # nothing is checked
        ("gfx1100", 0x30027000),  # no RESOURCE_LEVEL any more
    ],
)
def test_resources_that_are_valid(arch: str, word3: int) -> None:
    assert np.array_equal(store(arch, word3), _WRITTEN)


@pytest.mark.parametrize(
    ("arch", "word3", "records"),
    [
        ("gfx1030", 0x01027000, 256),
        ("gfx1100", 0x00027000, 256),
        ("gfx1030", 0x21027000, 0),
        ("gfx1030", 0x11027000, 0),
    ],
)
def test_stores_that_the_hardware_drops(arch: str, word3: int, records: int) -> None:
    """OOB_SELECT 0 compares the offset with the stride, which is 0; 1 and 2 find an empty buffer."""
    assert np.array_equal(store(arch, word3, records=records), _NOTHING)


@pytest.mark.parametrize(
    ("arch", "word3", "word1"),
    [
        ("gfx908", TRITON_RDNA, 0),  # reserved bits of gfx9
        ("gfx908", 0x7000, 0),  # no data format
        ("gfx1030", TRITON_GFX9, 0),  # Triton's for RDNA1: no RESOURCE_LEVEL
        ("gfx1030", 0x31000000, 0),  # no format
        ("gfx1030", 0x71027000, 0),  # not a buffer
        ("gfx1030", 0x33027000, 0),  # a reserved bit
        ("gfx1030", 0x310A7000, 0),  # another one
        ("gfx1100", 0x71027000, 0),
        ("gfx1100", 0x31040000, 0),  # the format has 6 bits
    ],
)
def test_resources_that_are_not_valid(arch: str, word3: int, word1: int) -> None:
    with pytest.raises(ExecutionError, match=f"fourth word, {word3:#010x}, is not valid on this arch"):
        store(arch, word3, word1=word1)


@pytest.mark.parametrize("word1", [4 << 16, 1 << 30, 1 << 31])
def test_strides_and_swizzling_are_refused(word1: int) -> None:
    with pytest.raises(ExecutionError, match="not supported: strided"):
        store("gfx1030", TRITON_RDNA, word1=word1)


@pytest.mark.parametrize(("arch", "last"), [("gfx908", 0), ("gfx1030", 7), ("gfx1100", 0)])
def test_a_word_across_the_end(arch: str, last: int) -> None:
    """gfx10 compares where an access begins, other generations where it ends."""
    word3 = TRITON_GFX9 if arch == "gfx908" else TRITON_RDNA
    assert store(arch, word3, records=254)[62:65].tolist() == [7, last, 0]


KERNEL = """
@triton.jit
def kernel(table, x, y, seen, n):
    i = tl.arange(0, 64)
    from_table = tl.load(table + 1).to(tl.pointer_type(tl.float32))
    tl.store(from_table + i, tl.load(x + n + i) * 2)
    tl.store(seen + i, (x + i).to(tl.int64))
"""
TYPES = {"table": "*i64", "x": "*fp32", "y": "*fp32", "seen": "*i64", "n": "i32"}


@pytest.mark.parametrize("arch", ["gfx908", "gfx1201"])
def test_pointers_in_tensors_and_accesses_beyond_one(arch: str) -> None:
    program = compile_kernel(KERNEL, arch, TYPES, num_warps=1).load(arch)
    block = np.arange(192, dtype=np.float32)
    x, y = block[:64], block[64:]  # what follows x on the host is y
    y = y[:64].copy()
    table = np.array([x.ctypes.data, y.ctypes.data])
    seen = np.zeros(64, dtype=np.int64)
    launch(program, [table, x, y, seen, 0])
    assert np.array_equal(y, 2 * x)
    names = {f"argument {i}": one for i, one in enumerate([table, x, y, seen])}
    assert seen[0] == AddressSpace(Memory(names)).address(x.ctypes.data) != x.ctypes.data
    assert np.array_equal(seen, seen[0] + 4 * np.arange(64))
    again = np.zeros(64, dtype=np.int64)
    launch(program, [table.copy(), x.copy(), y, again, 0])
    assert np.array_equal(again, seen)
    after = block[64:128]
    with pytest.raises(ExecutionError, match="outside its buffers") as found:
        launch(program, [table, x, after, seen, 1])
    assert "+256 bytes from the start of argument 1, which has 256 bytes" in (found.value.cause or "")


def test_lanes_4_gib_apart(tmp_path: Path) -> None:
    """Offsets of 32 bits from the lowest address: those of lanes 0 and 1 seem to be neighbours, and the ones
    behind are not in the buffer."""
    apart = (1 << 32) - 4
    memory = np.memmap(tmp_path / "sparse", dtype=np.uint32, mode="w+", shape=(apart + 4096) // 4)
    memory[:64] = np.arange(64) + 1
    memory[apart // 4] = 1000
    bench = Bench("gfx908")
    bench.give(memory[: apart // 4 + 1])
    places = np.concatenate([[apart], 4 * np.arange(63)]).astype(np.uint64) + np.uint64(memory.ctypes.data)
    bench.v[0], bench.v[1] = places.astype(np.uint32), (places >> np.uint64(32)).astype(np.uint32)
    bench.run("global_load_dword v2, v[0:1], off")
    assert bench.wave.state == RUNNING
    assert bench.v[2].tolist() == [1000, *range(1, 64)]
