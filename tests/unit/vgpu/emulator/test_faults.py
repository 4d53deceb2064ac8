"""Texts of the interpreter's faults."""

from __future__ import annotations

from types import SimpleNamespace

from vgpu.emulator.decoded import Line
from vgpu.emulator.faults import KernelNames, explain


def test_lds_out_of_bounds_names_the_launch_s_dynamic_lds() -> None:
    line = Line(number=7, text="ds_read_b32 v0, v1", name="ds_read_b32", encoding="", operands=())
    place = {"group": (0, 0, 0), "wave": 0, "lane": 3, "instruction": 0, "other": 0, "other_wave": 0}
    fault = SimpleNamespace(code=3, bytes=4, address=0, detail=0, **place)
    error = explain(fault, [line], KernelNames(kernel="sum", absent={}), [], None)
    assert error.what == "sum touches 4 bytes of LDS from 0x0 on, outside of what the workgroup has"
    assert "metadata.shared (`vgpu run --lds`)" in error.hint
