"""The transcendental unit's functions: the nearest floats, the same bits from every compiler and processor,
no library behind them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from vgpu.cache import default_cache
from vgpu.emulator.generate import NATIVE
from vgpu.emulator.interpreter_library import build_library

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

Floats = npt.NDArray[np.float32]
Wide = npt.NDArray[np.longdouble]
NAMES = ("exp2_f32", "log2_f32", "turns_sin", "turns_cos")
FLAGS = ["-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-w"]
WAYS = {
    "as-the-emulator": ["cc", "-O2", "-ftree-vectorize", "-march=native"],
    "plain": ["cc", "-O0", "-march=x86-64"],
    "fused-multiply-add": ["cc", "-O3", "-march=haswell"],
    "clang": ["clang", "-O2", "-march=x86-64-v3"],
}
EXACT = {
    "ceilf", "floorf", "fma", "fmaf", "ldexpf", "rint", "rintf", "sqrt", "sqrtf", "trunc", "truncf", "floor",
    "ceil",
    "frexp", "ldexp", "snprintf", "strchr", "strcspn", "strlen", "strncmp", "strnlen", "strpbrk", "strspn",
    "aligned_alloc",
    "calloc", "free", "malloc", "memcpy", "memset", "memmove", "memchr",
    "memcmp", "realloc", "read", "write", "poll", "close", "qsort",
    "__errno_location", "__stack_chk_fail", "sched_yield", "abort",
}  # fmt: skip
"""What IEEE 754 or C defines to the bit, and what computes no numbers."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transcendental")


def _compile(folder: Path, way: str) -> ctypes.CDLL:
    (wanted, *flags), made = WAYS[way], folder / f"{way}.so"
    if made.exists():
        return ctypes.CDLL(str(made))
    compiler = next((name for name in (wanted, f"{wanted}-19", f"{wanted}-14") if shutil.which(name)), None)
    if compiler is None:
        pytest.skip(f"no {wanted}")
    if way == "fused-multiply-add" and "fma" not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip("this processor has no fused multiply-add")
    source = folder / f"{way}.c"
    parts = [
        "#define LANES 64",
        *((NATIVE / f"{name}.h").read_text() for name in ("machine", "arithmetic", "transcendental")),
    ]
    parts += [
        f"void many_{name}(const float *a, float *r, long n) {{ for (long i = 0; i < n; "
        f"i++) r[i] = {name}(a[i]); }}"
        for name in NAMES
    ]
    source.write_text("\n".join(parts))
    subprocess.run([compiler, *flags, *FLAGS, "-o", str(made), str(source), "-lm"], check=True)
    return ctypes.CDLL(str(made))


def _apply(library: ctypes.CDLL, name: str, inputs: Floats) -> Floats:
    result = np.empty_like(inputs)
    function = library[f"many_{name}"]
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    function(inputs.ctypes.data, result.ctypes.data, inputs.size)
    return result


def _inputs() -> Floats:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32)
    near = (rng.integers(-600, 600, 100_000) / 4 + rng.normal(0, 1e-3, 100_000)).astype(np.float32)
    spread = rng.uniform(-160, 160, 300_000).astype(np.float32)
    ones = (1 + rng.normal(0, 1, 100_000) * 2.0 ** rng.integers(-24, 0, 100_000)).astype(np.float32)
    all_ = np.concatenate([bits, near, spread, ones, np.arange(-300, 300, 0.25, dtype=np.float32)])
    return np.asarray(all_[np.isfinite(all_) & ((np.abs(all_) >= 2.0**-126) | (all_ == 0))], dtype=np.float32)


def _turns(x: Wide) -> Wide:
    """Within half a turn of zero, exactly."""
    return np.asarray(x - np.rint(x), dtype=np.longdouble)


def _sine(r: Wide) -> Wide:
    """sin(2 pi r) by the argument that is nearest to zero, so that pi's last bits do not matter."""
    pi = np.longdouble("3.14159265358979323846264338327950288")
    folded = np.where(np.abs(r) > 0.25, np.copysign(np.longdouble(0.5), r) - r, r)
    return np.asarray(np.sin(2 * pi * folded))


EXPECTED: dict[str, Callable[[Wide], Wide]] = {
    "exp2_f32": np.exp2,
    "log2_f32": np.log2,
    "turns_sin": lambda x: _sine(_turns(x)),
    "turns_cos": lambda x: _sine(np.longdouble(0.25) - np.abs(_turns(x))),
}


@pytest.mark.parametrize("name", NAMES)
def test_results_are_the_nearest_floats(name: str, folder: Path) -> None:
    inputs = _inputs()
    found = _apply(_compile(folder, "as-the-emulator"), name, inputs)
    with np.errstate(all="ignore"):
        expected = EXPECTED[name](inputs.astype(np.longdouble)).astype(np.float32)
    wrong = np.flatnonzero((found != expected) & ~(np.isnan(found) & np.isnan(expected)))
    assert [
        (inputs[i].item().hex(), found[i].item().hex(), expected[i].item().hex()) for i in wrong[:4]
    ] == []


@pytest.mark.parametrize("way", [way for way in WAYS if way != "as-the-emulator"])
def test_every_compiler_and_processor_gives_the_same_bits(way: str, folder: Path) -> None:
    bits = np.random.default_rng(6).integers(0, 2**32, 400_000, dtype=np.uint32).view(np.float32)
    inputs = np.concatenate([_inputs(), bits[~np.isnan(bits)]])
    usual, other = _compile(folder, "as-the-emulator"), _compile(folder, way)
    for name in NAMES:
        one, two = (_apply(library, name, inputs) for library in (usual, other))
        assert np.array_equal(one.view(np.uint32), two.view(np.uint32)), name


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("exp2_f32", 0x7F800000, 0x7F800000),
        ("exp2_f32", 0xFF800000, 0x00000000),
        ("exp2_f32", 0x80000000, 0x3F800000),
        ("exp2_f32", 0x43000000, 0x7F800000),  # 128
        ("exp2_f32", 0xC2FC0000, 0x00800000),  # -126
        ("exp2_f32", 0x7FC12345, 0x7FC12345),
        ("log2_f32", 0x00000000, 0xFF800000),
        ("log2_f32", 0x80000000, 0xFF800000),
        ("log2_f32", 0xC0800000, 0xFFC00000),  # of -4
        ("log2_f32", 0xFF800000, 0xFFC00000),
        ("log2_f32", 0x7F800000, 0x7F800000),
        ("log2_f32", 0x3F800000, 0x00000000),
        ("log2_f32", 0x7FC12345, 0x7FC12345),
        ("turns_sin", 0x80000000, 0x80000000),
        ("turns_sin", 0x3E800000, 0x3F800000),  # a quarter
        ("turns_sin", 0x3F000000, 0x00000000),  # a half
        ("turns_sin", 0x7F7FFFFF, 0x00000000),
        ("turns_cos", 0x3E800000, 0x00000000),
        ("turns_cos", 0x3F000000, 0xBF800000),
        ("turns_cos", 0x7F7FFFFF, 0x3F800000),
    ],
)
def test_special_values(name: str, given: int, expected: int, folder: Path) -> None:
    inputs = np.full(64, given, dtype=np.uint32).view(np.float32)
    found = _apply(_compile(folder, "as-the-emulator"), name, inputs).view(np.uint32)
    assert [hex(x) for x in np.unique(found)] == [hex(expected)]


def test_the_interpreter_calls_no_function_whose_result_a_library_chooses() -> None:
    library = build_library(64, default_cache())
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines() if " U " in line}
    assert names <= EXACT
