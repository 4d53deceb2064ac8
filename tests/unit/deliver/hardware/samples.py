"""A report as a check on an MI100 would make it; the numbers are invented."""

from __future__ import annotations

from aotforge.base.hardware import HardwareReport, ReportedDevice, ReportedImage, ReportedTime

MI100 = ReportedDevice(vendor="amd", name="AMD Instinct MI100", arch="gfx908", version="HIP 7.0.51831")
ADD = ReportedImage(
    digest="a" * 64,
    label="add.add:gfx908:dtype=fp16:0",
    outcome="passed",
    cases=5,
    launches=10,
    worst=0.8,
    exact=True,
    elements=100,
    same=100,
)
FORWARD = ReportedImage(
    digest="b" * 64,
    label="flash.attn_fwd:gfx908:dtype=fp16,width=64:0",
    outcome="passed",
    cases=9,
    launches=18,
    worst=0.5,
    elements=100,
    same=97,
)
TIME = ReportedTime(
    operator="attn_fwd",
    functional="dtype=fp16,width=64",
    keys={"dtype": 2, "width": 64},
    call="batch=2, seqlen_q=1024",
    milliseconds=0.5,
    torch=2.0,
)


def report(**changes: object) -> HardwareReport:
    fields: dict[str, object] = {
        "date": "2026-11-22", "release": "0.11.2b-r1", "profile": "core", "pack": "amd-gfx908",
        "sums": "c" * 64,
        "device": MI100,
        "rocm": "7.0", "module": "6.14.14", "kernel": "6.8.0", "torch": "2.11.0+rocm7.0",
        "images": (ADD, FORWARD),
        "times": (TIME,),
        "seconds": 12.5,
    }  # fmt: skip
    return HardwareReport.model_validate(fields | changes)
