"""Accuracy of the elementary functions that the CPU back end writes itself: within 2 units in the last place
of float32."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

from tests.integration.ttcpu.features import compile_kernel, loaded
from tests.support.cpu_launch import Loaded, load, run
from tests.support.modules import load_module

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


@functools.cache
def _loaded(function: str, kind: str, folder: Path) -> Loaded:
    module = load_module(folder / "function_kernel.py", SOURCE.format(function=function))
    return loaded(module.kernel, {"x": f"*{kind}", "out": f"*{kind}", "BLOCK": "constexpr"}, {"BLOCK": BLOCK})


def _run(function: str, x: Any, folder: Path) -> Any:
    """Results of a function for float32 or float64 numbers, by the back end."""
    found = np.empty_like(x)
    kernel = _loaded(function, {4: "fp32", 8: "fp64"}[x.itemsize], folder)
    run(kernel, (x.size // BLOCK, 1, 1), struct.pack("<QQ", x.ctypes.data, found.ctypes.data))
    return found


def _units(found: Any, wanted: Any) -> Any:
    """Distances from float64 results in units in the last place of the type; 0 for the nearest number and
    where both are NaN."""
    with np.errstate(all="ignore"):
        rounded = wanted.astype(found.dtype)
        units = np.abs(found - wanted) / np.spacing(np.abs(rounded)).astype(np.float64)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    return np.where(same, 0.0, np.where(np.isnan(units), np.inf, units))


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
    x = np.random.default_rng(0).uniform(low, high, COUNT).astype(np.float32)
    x[: len(SPECIAL)] = SPECIAL
    found = _run(function, x, tmp_path)
    with np.errstate(all="ignore"):
        units = _units(found, exact(x.astype(np.float64)))
    assert units.max() <= 2.0, (x[np.argmax(units)], units.max())


@pytest.mark.parametrize("fused", [False, True])
def test_a_product_is_rounded_before_a_sum_unless_fusion_is_enabled(fused: bool, tmp_path: Path) -> None:
    text = SOURCE.format(function="").replace("(tl.load(x + i))", "tl.load(x + i) * 1.1 - tl.load(x)")
    module = load_module(tmp_path / "fusion_kernel.py", text)
    signature = {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    made = compile_kernel(module.kernel, signature, {"BLOCK": BLOCK}, "x86-64-v3", enable_fp_fusion=fused)
    x = np.random.default_rng(0).uniform(1, 2, BLOCK).astype(np.float32)
    out = np.zeros_like(x)
    run(
        load(made.name, made.code, made.scratch, made.messages),
        (1, 1, 1),
        struct.pack("<QQ", x.ctypes.data, out.ctypes.data),
    )
    rounded = x * np.float32(1.1) - x[0]
    once = (x.astype(np.float64) * np.float64(np.float32(1.1)) - x[0]).astype(np.float32)
    assert np.array_equal(out, once if fused else rounded)
    assert not np.array_equal(once, rounded)


_REFERENCES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "erfinv": (lambda x: mpmath.erfinv(x) if abs(x) < 1 else x * mpmath.inf, 2.0),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), 2.5),
    "cyl_bessel_i0": (lambda x: mpmath.besseli(0, x), 8.0),
    "cyl_bessel_i1": (lambda x: mpmath.besseli(1, x), 8.0),
}
"""By mpmath, and how far float64 results may be from them in units in the last place."""


@pytest.mark.torch  # mpmath comes with it
@pytest.mark.parametrize("name", list(_REFERENCES))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_functions_that_the_c_library_lacks(name: str, kind: type, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ranges: list[Any] = [
        rng.uniform(-1, 1, 60),
        1 - 10.0 ** rng.uniform(-16, -1, 40),
        10.0 ** rng.uniform(-30, 0, 40),
    ]
    if name != "erfinv":
        ranges += [
            rng.uniform(-26, 30, 80),
            rng.uniform(-90, 90, 40),
            10.0 ** rng.uniform(1, 5, 20),
            [20.0, 25.0],
        ]
    x: Any = np.resize(np.concatenate([*ranges, [0.0, -0.0, 1.0]]).astype(kind), BLOCK)
    found = _run(f"libdevice.{name}", x, tmp_path)
    exact, limit = _REFERENCES[name]
    with mpmath.workdps(40):
        for value, got in zip(x[:300].tolist(), found[:300].tolist(), strict=True):
            wanted = exact(mpmath.mpf(value))
            with np.errstate(over="ignore"):
                nearest = float(kind(float(wanted)))
            if np.isfinite(nearest):
                unit = float(np.spacing(kind(abs(nearest))))
                units = abs(mpmath.mpf(got) - wanted) / unit
                assert units <= (0.51 if kind is np.float32 else limit), (value, got)
            else:
                assert got == nearest, value
    special = _run(f"libdevice.{name}", np.resize(np.array([np.nan, np.inf], kind), BLOCK), tmp_path)
    assert np.isnan(special[0])
    assert np.isnan(special[1]) if name == "erfinv" else special[1] == (0.0 if name == "erfcx" else np.inf)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name", ["exp", "exp2", "log", "log2", "tanh", "erfinv", "erfcx", "cyl_bessel_i0", "cyl_bessel_i1"]
)
def test_every_64th_number_of_float32(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Against the C library's float64 function, or our own one, which the test above compares with mpmath."""
    worst = (0.0, 0.0)
    for start in range(0, 1 << 32, 1 << 28):
        x = np.arange(start, start + (1 << 28), 64, dtype=np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            wide = _run(f"libdevice.{name}", x.astype(np.float64), tmp_path)
        units = _units(_run(f"libdevice.{name}", x, tmp_path), wide)
        worst = max(worst, (float(units.max()), float(x[np.argmax(units)])))
    record_property(name, f"{worst[0]:.2f} units at {worst[1]:.8g}")
    assert worst[0] <= 2.0, worst
