"""Addresses that kernels see: pointers in tensors, accesses beyond a tensor, the same numbers in every
launch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.integration.vgpu.emulator.bench import RUNNING, Bench
from tests.support.triton_kernels import compile_kernel, launch
from vgpu.emulator.address_space import AddressSpace
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
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
