"""The order of a check: faults, a device that is lost, a process that does not end; rows of times;
PyTorch's answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from aotforge.deliver.hardware import check as tool
from aotforge.deliver.hardware import device
from aotforge.deliver.hardware.times import operator_rows
from aotforge.deliver.hardware.torch_attention import times as torch_times
from aotforge.errors import DeviceError, ExecutionError
from aotforge.verify.device.messages import DeviceResult, ShownDevice, Time
from tests.support.families import PROJECT
from tests.unit.verify import test_device

MI100 = ShownDevice(vendor="amd", number=0, name="MI100", arch="gfx908", version="HIP 7.0.0")
REQUEST = tool.CheckRequest(root=PROJECT, cache=Path("/nonexistent"), date="2026-11-22")
TASK = test_device.task()


def result(outcome: Any) -> DeviceResult:
    return DeviceResult.ended(TASK, outcome, "why")


@pytest.mark.parametrize(
    ("outcome", "free", "after", "expected"),
    [
        ("passed", True, (), ""),
        ("fault", True, (MI100,), ""),
        ("hang", True, (), "after add.add:sm_90:0: the GPU is not available any more (no device)"),
        ("hang", False, (MI100,), "the process of add.add:sm_90:0 does not end: restart the machine"),
    ],
)
def test_a_lost_device_ends_the_check(
    monkeypatch: pytest.MonkeyPatch, outcome: Any, free: bool, after: Any, expected: str
) -> None:
    monkeypatch.setattr(tool, "check_on_device", lambda request, limits: (result(outcome), free))
    monkeypatch.setattr(device, "shown_devices", lambda library: (after, ("no device",)))
    found, ended = tool._checked(REQUEST, TASK, MI100, "")
    assert (found.outcome, ended) == (outcome, expected)
    if expected:
        following, still = tool._checked(REQUEST, TASK, MI100, ended)
        assert (following.outcome, following.failure, still) == ("not executed", expected, expected)


def test_a_driver_that_does_not_answer_after_a_fault_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(library: str | None) -> None:
        raise ExecutionError("the GPU's driver does not list its devices: no end after 120 s")

    monkeypatch.setattr(tool, "check_on_device", lambda request, limits: (result("fault"), True))
    monkeypatch.setattr(device, "shown_devices", silent)
    assert tool._checked(REQUEST, TASK, MI100, "")[1].endswith("no end after 120 s")


def test_the_device_is_the_first_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ShownDevice(vendor="amd", number=0, name="Vega", arch="gfx900", version="HIP 7.0.0")
    second = ShownDevice(vendor="amd", number=1, name="MI100", arch="gfx908", version="HIP 7.0.0")
    monkeypatch.setattr(device, "shown_devices", lambda library: ((old, second), ()))
    assert device.choose_device(PROJECT) == second
    with pytest.raises(DeviceError, match="no GPU of this machine fits: none is gfx90a") as caught:
        device.choose_device(PROJECT, arch="gfx90a")
    assert "0: Vega (gfx900), 1: MI100 (gfx908)" in caught.value.cause
    monkeypatch.setattr(
        device, "shown_devices", lambda library: ((), ("libamdhip64.so.7: cannot open", "libcuda"))
    )
    with pytest.raises(DeviceError, match="no GPU was found") as none:
        device.choose_device(PROJECT)
    assert none.value.cause == "libamdhip64.so.7: cannot open; libcuda"


CALL = "batch=1, heads_q=2, heads_k=2, seqlen_q=64, seqlen_k=64"


def time(kernel: str, milliseconds: float, **keys: int) -> Time:
    operator = "attn_fwd" if kernel == "attn_fwd" else "attn_bwd"
    return Time(
        operator=operator,
        kernel=kernel,
        functional="f",
        keys=tuple(keys.items()),
        call=CALL,
        milliseconds=milliseconds,
    )


def test_a_backward_call_is_the_sum_of_its_kernels_and_incomplete_ones_have_no_row() -> None:
    times = [
        time("attn_fwd", 1.0, dtype=2, width=64, mask=0, dropout=0),
        time("bwd_preprocess", 0.5, dtype=2, width=64),
        time("bwd_preprocess", 0.6, dtype=3, width=64),
        time("bwd_dk_dv", 2.0, dtype=2, width=64, mask=0, dropout=0),
        time("bwd_dk_dv", 3.0, dtype=2, width=64, mask=1, dropout=0),
        time("bwd_dk_dv", 9.0, dtype=3, width=64, mask=0, dropout=0),
        time("bwd_dq", 4.0, dtype=2, width=64, mask=0, dropout=0),
        time("bwd_dq", 5.0, dtype=2, width=64, mask=1, dropout=0),
    ]
    rows = [(row.operator, row.keys["mask"], row.milliseconds) for row in operator_rows(times)]
    assert rows == [("attn_fwd", 0, 1.0), ("attn_bwd", 0, 6.5), ("attn_bwd", 1, 8.5)]


def test_without_pytorch_the_program_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "PyTorch was not timed: " in torch_times({"number": 0, "problems": []})["torch"]
