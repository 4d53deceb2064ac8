"""Addresses and arguments that kernels see, and faults that name them."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from aotforge.errors import ExecutionError, UnsupportedError
from vgpu.emulator.address_space import AddressSpace
from vgpu.emulator.arguments import Geometry, KernelParameter, segment
from vgpu.emulator.decoded import Line
from vgpu.emulator.descriptor import SCRATCH_TAG
from vgpu.emulator.faults import explain
from vgpu.memory import Memory

FAR = 1 << 36


def buffers(*sizes: int) -> dict[str, np.ndarray]:
    return {f"b{i}": np.arange(size, dtype=np.uint8) for i, size in enumerate(sizes)}


def test_addresses_depend_on_order_and_sizes_only() -> None:
    first, held, second = buffers(100, 5000, 8), np.zeros(1000), buffers(100, 5000, 8)
    assert held.size
    a, b = AddressSpace(Memory(first)), AddressSpace(Memory(second))
    assert a.spans() == b.spans()
    assert [name for name, *_ in a.spans()] == ["b0", "b1", "b2"]
    backwards = AddressSpace(Memory(dict(reversed(first.items()))))
    assert backwards.spans()[0][0] == "b2"
    assert backwards.address(first["b2"].ctypes.data) - FAR < a.address(first["b1"].ctypes.data)


def test_buffers_are_far_apart_and_cross_a_multiple_of_4_gib() -> None:
    spans = AddressSpace(Memory(buffers(200, 1 << 20, 300))).spans()
    for _, low, high, _ in spans:
        assert low >> 32 < high >> 32
        assert low % 16 == 0 and high < SCRATCH_TAG
    lows = sorted(low for _, low, *_ in spans)
    gaps = [after - before for before, after in pairwise(lows)]
    assert min(gaps) > FAR and all(gap & (gap - 1) for gap in gaps)


def test_pointers_lead_to_their_bytes() -> None:
    made = buffers(64, 256)
    space = AddressSpace(Memory(made))
    for name, low, high, writable in space.spans():
        host = made[name].ctypes.data
        assert writable and high - low == made[name].nbytes
        assert space.address(host) == low and space.address(host + 5) == low + 5
        assert space.read(low + 3, low + 7) == bytes([3, 4, 5, 6])
        assert space.read(high - 1, high + 1) is None
    assert space.address(0) == 0 and space.address(64) == 64


def test_an_unaligned_view_keeps_what_it_is_off() -> None:
    block = np.zeros(64, dtype=np.uint8)
    ((_, low, *_),) = AddressSpace(Memory({"x": block[4:20]})).spans()
    assert low % 16 == (block.ctypes.data + 4) % 16


def test_buffers_that_share_bytes_share_addresses() -> None:
    block = np.zeros(1000, dtype=np.uint8)
    apart = np.zeros(8, dtype=np.uint8)
    parts = {"all": block, "tail": block[900:], "again": block, "apart": apart}
    spans = {name: (low, high) for name, low, high, _ in AddressSpace(Memory(parts)).spans()}
    assert spans["again"] == spans["all"]
    assert spans["tail"] == (spans["all"][0] + 900, spans["all"][1])
    assert spans["apart"][0] > spans["all"][1] + FAR // 2


def test_more_buffers_than_addresses_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="a launch with 513 buffers: at most 512"):
        AddressSpace(Memory({str(i): np.zeros(4) for i in range(513)}))


PLACE = Geometry(grid=(1, 1, 1), threads=64, lds_bytes=0)


def parameters(*kinds: str) -> list[KernelParameter]:
    return [
        KernelParameter(offset=8 * number, size=8 if kind == "global_buffer" else 4, kind=kind)
        for number, kind in enumerate(kinds)
    ]


def test_a_missing_argument_is_named_by_its_place_and_kind() -> None:
    taken = parameters("global_buffer", "by_value", "by_value", "global_buffer", "global_buffer")
    assert len(segment("scale", taken, 40, [0x1000, 3, 0.5], PLACE)) == 40
    assert len(segment("scale", taken, 40, [0x1000, 3, 0.5, 0, 0], PLACE)) == 40
    with pytest.raises(ExecutionError, match=r"scale takes 3 arguments, 2 given") as caught:
        segment("scale", taken, 40, [0x1000, 3], PLACE)
    assert caught.value.cause == "they are 1: a pointer, 2: a number of 4 bytes, 3: a number of 4 bytes"
    assert "Triton's two scratch pointers" in caught.value.hint


def test_lds_out_of_bounds_names_the_launch_s_dynamic_lds() -> None:
    line = Line(number=7, text="ds_read_b32 v0, v1", name="ds_read_b32", encoding="", operands=())
    place = {"group": (0, 0, 0), "wave": 0, "lane": 3, "instruction": 0, "other": 0, "other_wave": 0}
    fault = SimpleNamespace(code=3, bytes=4, address=0, detail=0, **place)
    error = explain(fault, [line], [], None, kernel="sum", absent={})
    assert error.what == "sum touches 4 bytes of LDS from 0x0 on, outside of what the workgroup has"
    assert "metadata.shared (`vgpu run --lds`)" in error.hint
