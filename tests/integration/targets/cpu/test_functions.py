"""Accuracy of the elementary functions that the CPU back end writes itself: within 2 units in the last place of float32."""

from __future__ import annotations

import importlib.util
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotforge.targets.cpu.launch import load, run
from aotforge.targets.cpu.levels import host_level
from tests.integration.targets.cpu.features import compile_kernel

pytestmark = pytest.mark.compiler
COUNT, BLOCK = 1 << 16, 1024
SOURCE = """import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, {function}(tl.load(x + i)))
"""
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3e38, -3e38, 1e-45]
Function = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("function", "exact", "low", "high"),
    [
        ("tl.exp", np.exp, -104.0, 88.8),
        ("tl.exp2", np.exp2, -150.0, 128.0),
        ("tl.log", np.log, 1e-3, 1e3),
        ("tl.log", np.log, 0.5, 2.0),
        ("tl.log2", np.log2, 1e-3, 1e3),
        ("tl.log2", np.log2, 0.5, 2.0),
        ("libdevice.tanh", np.tanh, -12.0, 12.0),
        ("libdevice.tanh", np.tanh, -1.0, 1.0),
    ],
)
def test_two_units_in_the_last_place(
    function: str, exact: Function, low: float, high: float, tmp_path: Path
) -> None:
    path = tmp_path / "function_kernel.py"
    path.write_text(SOURCE.format(function=function))
    spec = importlib.util.spec_from_file_location("function_kernel", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["function_kernel"] = module
    spec.loader.exec_module(module)
    signature = {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    made = compile_kernel(module.kernel, signature, {"BLOCK": BLOCK}, host_level())
    x = np.random.default_rng(0).uniform(low, high, COUNT).astype(np.float32)
    x[: len(SPECIAL)] = SPECIAL
    found = np.empty_like(x)
    loaded = load(made.name, made.code, made.scratch, made.messages)
    run(loaded, (COUNT // BLOCK, 1, 1), struct.pack("<QQ", x.ctypes.data, found.ctypes.data))
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64))
        rounded = wanted.astype(np.float32)
        units = np.abs(found - wanted) / np.spacing(np.abs(rounded)).astype(np.float64)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    assert np.all(same | (units <= 2.0)), (x[~same][np.argmax(units[~same])], np.nanmax(units[~same]))


@pytest.mark.parametrize("fused", [False, True])
def test_a_product_is_rounded_before_a_sum_unless_fusion_is_enabled(fused: bool, tmp_path: Path) -> None:
    path = tmp_path / "fusion_kernel.py"
    path.write_text(
        SOURCE.format(function="").replace("(tl.load(x + i))", "tl.load(x + i) * 1.1 - tl.load(x)")
    )
    spec = importlib.util.spec_from_file_location("fusion_kernel", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["fusion_kernel"] = module
    spec.loader.exec_module(module)
    signature = {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    made = compile_kernel(module.kernel, signature, {"BLOCK": BLOCK}, "x86-64-v3", enable_fp_fusion=fused)
    x = np.random.default_rng(0).uniform(1, 2, BLOCK).astype(np.float32)
    out = np.zeros_like(x)
    loaded = load(made.name, made.code, made.scratch, made.messages)
    run(loaded, (1, 1, 1), struct.pack("<QQ", x.ctypes.data, out.ctypes.data))
    rounded = x * np.float32(1.1) - x[0]
    once = (x.astype(np.float64) * np.float64(np.float32(1.1)) - x[0]).astype(np.float32)
    assert np.array_equal(out, once if fused else rounded)
    assert not np.array_equal(once, rounded)
