"""Argument segments of a launch."""

from __future__ import annotations

import pytest

from aotforge.errors import ExecutionError
from vgpu.emulator.arguments import Geometry, KernelParameter, segment

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
