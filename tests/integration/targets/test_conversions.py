"""Conversions between all element types, of all codes of up to 16 bits and special numbers: each is the
reference's, or a hazard of `manifests/hazards.yaml` that is named here and that cures leave none of."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from aotforge.compile.triton_compiler import lower
from aotforge.verify.interpreter.number_formats import DTYPES, STORAGE, Array, DType, decode, encode, is_exact
from aotforge.verify.specials import special_numbers
from tests.integration.ttcpu.features import loaded
from tests.support.cpu_launch import run
from tests.support.families import hazards
from tests.support.modules import load_module
from tests.support.triton_kernels import compile_text, launch

pytestmark = pytest.mark.compiler
FP8: tuple[DType, ...] = ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16")
TYPES = tuple(one for one in DTYPES if one != "i1")
BLOCK = 1024
ARCHS = ("gfx908", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
WIDENED = {("fp8e5", "bf16"): "fp8-to-bf16", ("fp8e4nv", "bf16"): "fp8-to-bf16"}
SOFTWARE = {
    **WIDENED,
    ("fp16", "fp8e4nv"): "fp16-to-fp8e4nv",
    ("fp32", "u8"): "float-to-u8",
    ("fp64", "u8"): "float-to-u8",
}
"""Pairs that deviate without a cure, and their hazards."""
INFINITIES = {(one, other): "infinity-to-fp8" for one in ("fp16", "bf16", "fp32") for other in FP8}
_FNUZ = ("fp8e4b8", "fp8e5b16")


def deviations(arch: str) -> dict[tuple[str, str], str]:
    """What is wrong on an arch without cures."""
    unsigned = {pair: name for pair, name in SOFTWARE.items() if name == "float-to-u8"}
    if arch == "gfx950":
        return unsigned | {pair: name for pair, name in INFINITIES.items() if pair[1] in _FNUZ}
    kept = {pair: name for pair, name in INFINITIES.items() if pair[1] == "fp8e5"}
    if arch != "gfx942":
        kept |= {pair: name for pair, name in INFINITIES.items() if pair[1] in _FNUZ}
    return SOFTWARE | kept


def convertible(source: str) -> tuple[DType, ...]:
    """The language has no conversions between 8-bit floats and integers, and Triton's lowering for AMD none
    between 8-bit floats and fp64."""
    if source in FP8:
        return ("fp16", "bf16", "fp32")
    return tuple(
        one for one in TYPES if one != source and (one not in FP8 or source in {"fp16", "bf16", "fp32"})
    )


def groups(source: str) -> list[tuple[DType, ...]]:
    """Targets by kernel: beside fp16, those of 8 bits set a mode that the virtual GPU lacks."""
    every = convertible(source)
    found = (tuple(x for x in every if x != "fp16"), tuple(x for x in every if x == "fp16"))
    return [one for one in found if one]


def kernel(targets: Sequence[str]) -> str:
    arguments = ", ".join(f"y_{one}" for one in targets)
    stores = "\n".join(f"    tl.store(y_{one} + at, x_.to(y_{one}.dtype.element_ty))" for one in targets)
    return (
        f"@triton.jit\ndef kernel(x, {arguments}, BLOCK: tl.constexpr):\n"
        f"    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    x_ = tl.load(x + at)\n{stores}\n"
    )


def inputs(dtype: DType) -> Array:
    """All codes of up to 16 bits; of wider types special numbers, the numbers of narrower floats, those
    halfway between, and random ones."""
    storage, rng = STORAGE[dtype], np.random.default_rng(0)
    if storage.itemsize <= 2:
        codes = np.arange(2 ** (8 * storage.itemsize), dtype=f"u{storage.itemsize}")
        return aligned(np.resize(codes, max(len(codes), BLOCK)).view(storage))
    count = 8 * BLOCK
    if is_exact(dtype):
        limits = np.iinfo(storage)
        numbers = rng.integers(limits.min, limits.max, count, storage, endpoint=True)
        edges = [sign * 2**bit + more for bit in range(64) for more in (-1, 0, 1) for sign in (1, -1)]
        kept = np.array([one for one in edges if limits.min <= one <= limits.max], dtype=storage)
    else:
        numbers = rng.standard_normal(count) * np.exp(rng.uniform(-20, 20, count))
        tables = [np.unique(special_numbers(one, "finite")) for one in (*FP8, "fp16", "bf16")]
        halves = [(one[1:] + one[:-1]) / 2 for one in tables]
        near = [one * (1 + step) for one in halves for step in (2.0**-20, -(2.0**-20))]
        kept = np.concatenate([*tables, *halves, *near, special_numbers(dtype)])
    numbers[: len(kept)] = kept
    return aligned(encode(rng.permutation(numbers), dtype))


def aligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    result = raw[start : start + array.nbytes].view(array.dtype)
    result[...] = array
    return result


def wrong(stored: Array, source: DType, result: Array, target: DType) -> npt.NDArray[np.bool_]:
    """Elements that differ from the reference, in the sign of zero too. An integer has no result for a float
    that it does not have."""
    numbers, found = decode(stored, source), decode(result, target)
    with np.errstate(all="ignore"):
        if is_exact(target) and not is_exact(source):
            limits = np.iinfo(STORAGE[target])
            truncated = np.trunc(numbers)
            known = (truncated >= limits.min) & (truncated < 2.0 ** (limits.bits - (limits.min < 0)))
            return np.asarray(known & (found != np.where(known, truncated, 0).astype(STORAGE[target])))
        if is_exact(target):
            return np.asarray(found != numbers.astype(STORAGE[target]))
        precise = numbers.astype(np.longdouble) if is_exact(source) and target == "fp64" else numbers
        right = decode(encode(precise, target), target)
    same = (found == right) & ((found != 0) | (np.signbit(found) == np.signbit(right)))
    return np.asarray(~(same | (np.isnan(found) & np.isnan(right))))


def deviating(
    folder: Path, arch: str, sources: Sequence[DType], cures: tuple[str, ...]
) -> dict[tuple[str, str], npt.NDArray[Any]]:
    """Pairs that deviate, with the wrong sources' numbers."""
    result: dict[tuple[str, str], npt.NDArray[Any]] = {}
    for source, target_group in ((one, group) for one in sources for group in groups(one)):
        stored = inputs(source)
        (place := folder / f"{source}-{target_group[0]}").mkdir(parents=True)
        types = {"x": f"*{source}", **{f"y_{one}": f"*{one}" for one in target_group}}
        compiled = compile_text(
            place, kernel(target_group), types, constants={"BLOCK": BLOCK}, arch=arch, cures=cures
        )
        results = {one: aligned(np.zeros(len(stored), STORAGE[one])) for one in target_group}
        grid = (len(stored) // BLOCK, 1, 1)
        launch(compiled.load(arch), [stored, *results.values()], grid=grid, lds=compiled.lds)
        for target, values in results.items():
            if (bad := wrong(stored, source, values, target)).any():
                result[source, target] = decode(stored, source)[bad]
    return result


SLOW = [pytest.param(arch, marks=pytest.mark.slow) for arch in ARCHS if arch != "gfx908"]


@pytest.mark.parametrize("arch", ["gfx908", *SLOW])
def test_what_deviates_on_amd_is_a_hazard_and_cures_leave_infinities(tmp_path: Path, arch: str) -> None:
    expected = deviations(arch)
    sources = tuple(dict.fromkeys(source for source, _ in expected))
    raw = deviating(tmp_path / "raw", arch, [one for one in TYPES if one in sources], ())
    assert raw.keys() == expected.keys()
    assert set(expected.values()) <= {*hazards().of(arch)}
    every = {name for name, one in hazards().hazards.items() if one.cure == "through-wider"}
    cured = deviating(tmp_path / "cured", arch, TYPES, tuple(sorted(every)))
    assert cured.keys() == {pair for pair, name in expected.items() if name == "infinity-to-fp8"}
    assert all(np.isinf(numbers).all() for numbers in cured.values())


def test_nothing_deviates_on_cpus(tmp_path: Path) -> None:
    for source in TYPES:
        targets, stored = convertible(source), inputs(source)
        module = load_module(
            tmp_path / f"{source}.py", "import triton\nimport triton.language as tl\n\n" + kernel(targets)
        )
        types = {"x": f"*{source}", **{f"y_{one}": f"*{one}" for one in targets}, "BLOCK": "constexpr"}
        made = loaded(module.kernel, types, {"BLOCK": BLOCK})
        results = {one: aligned(np.zeros(len(stored), STORAGE[one])) for one in targets}
        addresses = [stored.ctypes.data, *(one.ctypes.data for one in results.values())]
        run(made, (len(stored) // BLOCK, 1, 1), struct.pack(f"<{len(addresses)}Q", *addresses))
        for target, values in results.items():
            bad = wrong(stored, source, values, target)
            assert not bad.any(), (
                source,
                target,
                decode(stored, source)[bad][:5],
                decode(values, target)[bad][:5],
            )


@pytest.mark.parametrize(("source", "target"), [("fp8e5", "fp8e4nv"), ("fp64", "fp8e5"), ("fp8e4nv", "fp64")])
def test_triton_refuses_what_it_cannot_convert(tmp_path: Path, source: str, target: str) -> None:
    types = {"x": f"*{source}", f"y_{target}": f"*{target}"}
    with pytest.raises(RuntimeError):
        compile_text(tmp_path, kernel([target]), types, constants={"BLOCK": BLOCK})


@pytest.mark.parametrize("capability", [80, 90])
def test_nvidia_widens_through_fp16_with_the_cure(tmp_path: Path, capability: int) -> None:
    from triton.backends.compiler import GPUTarget

    module = load_module(
        tmp_path / "k.py", "import triton\nimport triton.language as tl\n\n" + kernel(["bf16"])
    )
    types = {"x": "*fp8e5", "y_bf16": "*bf16", "BLOCK": "constexpr"}
    texts: Mapping[str, str] = {
        name: lower(
            module.kernel,
            GPUTarget("cuda", capability, 32),
            types,
            {"BLOCK": BLOCK},
            {},
            {"num_warps": 4},
            cures,
        )[1]
        for name, cures in {"raw": (), "cured": ("fp8-to-bf16",)}.items()
    }
    assert "fp8-to-bf16" in hazards().cures(f"sm_{capability}", 1, {"fp8e5"})
    assert ".f32" in texts["cured"] and texts["raw"] != texts["cured"]
