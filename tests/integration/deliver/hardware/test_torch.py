"""PyTorch beside images: a program for another Python, which may lack PyTorch or fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aotforge.deliver.hardware.times import call_times
from aotforge.verify.device.messages import DeviceResult
from tests.unit.deliver.hardware.test_check import MI100, time


@pytest.mark.parametrize(
    ("program", "torch", "expected"),
    [
        (
            "import sys, json; q = json.load(sys.stdin); "
            "print(json.dumps({'times': [7.0] * len(q['problems']), 'torch': '2.11'}))",
            7.0,
            "2.11",
        ),
        ("print('{')", None, "PyTorch was not timed: "),
        ("raise SystemExit(1)", None, "PyTorch was not timed: "),
        ('print(\'{"times": [], "torch": "PyTorch was not timed: no module"}\')', None, "no module"),
    ],
)
def test_pytorch_is_timed_by_a_python_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, torch: float | None, expected: str
) -> None:
    path = tmp_path / "program.py"
    path.write_text(program)
    monkeypatch.setattr("aotforge.deliver.hardware.times._PROGRAM", path)
    images = DeviceResult(key="k", digest="d", label="l", outcome="passed", times=(
        time("attn_fwd", 1.0, dtype=2, width=64, mask=1, dropout=0),
        time("attn_fwd", 1.0, dtype=2, width=64, mask=2, dropout=0),
    ))  # fmt: skip
    rows, version = call_times([images], MI100, Path(sys.executable))
    assert [row.torch for row in rows] == [torch, None] and expected in version
