"""Texts that kernels print reach the streams of a program that uses the virtual HIP, as with HIP."""

from __future__ import annotations

import hashlib
import re
from ctypes import c_int, c_void_p
from pathlib import Path

import numpy as np
import pytest

from tests.integration.vgpu.emulator.test_host_calls import ASSERTS, prints
from tests.integration.vgpu.hip.conftest import Play
from tests.support.triton_kernels import compile_kernel

pytestmark = pytest.mark.compiler
LAUNCH_FAILURE = 719


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
