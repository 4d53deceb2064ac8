"""Every vector instruction of the table against its model, on edge cases and random operands."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from tests.integration.vgpu.emulator.bench import Bench
from tests.integration.vgpu.emulator.models.numbers import (
    DTYPES,
    Array,
    draw,
    fused,
    fused_double,
    same_bits,
)
from tests.integration.vgpu.emulator.models.vector import MODELS, UNITS
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.entry import WORDS, Entry, Slot

NAMES = [name for name, entry in INSTRUCTIONS.items() if entry.form == "vector"]
ROUNDS = 8
PAIRS = {
    **dict.fromkeys(("v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32", "v_cvt_pk_f16_f32"), np.float16),
    **{f"v_cvt_{scaled}pk_f32_{name}": np.float32 for scaled in ("", "scalef32_") for name in ("fp8", "bf8")},
    "v_cvt_scalef32_pk_f32_fp4": np.float32,
    **{f"v_cvt_scalef32_pk_f16_{name}": np.float16 for name in ("fp8", "bf8", "fp4")},
}
"""Results that are two floats: payloads of NaN are not compared."""
ARCH = {64: "gfx908", 32: "gfx1100"}


@pytest.fixture(scope="module", params=[64, 32])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(ARCH[request.param])


def _register(file: str, index: int, words: int) -> str:
    return f"{file}{index}" if words == 1 else f"{file}[{index}:{index + words - 1}]"


def _put(bench: Bench, index: int, values: Array) -> None:
    bits = np.ascontiguousarray(values)
    if bits.dtype.itemsize == 8:
        bench.v[index], bench.v[index + 1] = bits.view(np.uint32)[0::2], bits.view(np.uint32)[1::2]
    elif bits.dtype.itemsize == 2:  # garbage in the high half must not matter
        bench.v[index] = bench.v[index] & np.uint32(0xFFFF0000) | bits.view(np.uint16)
    else:
        bench.v[index] = bits.view(np.uint32)


def _get(bench: Bench, index: int, kind: str) -> Array:
    dtype = np.dtype(DTYPES[kind])
    if dtype.itemsize == 8:
        pairs = np.stack([bench.v[index], bench.v[index + 1]], axis=1)
        return np.asarray(np.ascontiguousarray(pairs).view(dtype)[:, 0])
    if dtype.itemsize == 2:
        return np.asarray((bench.v[index] & np.uint32(0xFFFF)).astype(np.uint16).view(dtype))
    return np.asarray(bench.v[index].copy().view(dtype))


def _mask(bits: Array) -> int:
    return sum(int(bit) << lane for lane, bit in enumerate(bits))


def _bools(mask: int, lanes: int) -> Array:
    return np.array([mask >> lane & 1 for lane in range(lanes)], dtype=np.bool_)


def _text(entry: Entry, lanes: int) -> str:
    """Sources in v0, v2, ..., masks in s30, s32, ..., destination v20, mask destination s40."""
    pieces = []
    mask_words = lanes // 32
    for slot in entry.slots:
        if slot.name == "SD" and entry.name.startswith("v_cmpx") and lanes == 32:
            continue  # writes EXEC alone
        if slot.name == "S3":
            continue  # VCC, implied
        if slot.name == "D":
            pieces.append(_register("v", 20, WORDS[slot.type]))
        elif slot.name == "SD":
            pieces.append(_register("s", 40, mask_words))
        elif slot.type == "mask":
            pieces.append(_register("s", 30 + 2 * int(slot.name[1]), mask_words))
        else:
            pieces.append(_register("v", 2 * int(slot.name[1]), WORDS[slot.type]))
    extra = " bitop3:0x6c" if entry.name.startswith("v_bitop3") else ""
    return f"{entry.name} {', '.join(pieces)}{extra}"


def test_every_vector_instruction_has_a_model_and_every_model_an_instruction() -> None:
    assert set(NAMES) == set(MODELS)


@pytest.mark.parametrize("name", NAMES)
def test_instruction_equals_its_model(bench: Bench, name: str) -> None:
    entry = INSTRUCTIONS[name]
    if entry.archs and not bench.target.arch.startswith(entry.archs):
        bench = Bench("gfx950" if bench.lanes == 64 or entry.archs == ("gfx95",) else "gfx1201")
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for round_ in range(ROUNDS):
        _check(bench, entry, rng, round_)


def _at_ties(
    entry: Entry, rng: np.random.Generator, slot: Slot, values: Array, sources: Sequence[Array]
) -> Array:
    """The source's values, in some lanes equal to the first source's; third ones of integer sums make the sum
    zero."""
    lanes = rng.integers(0, 8, len(values)) == 0
    if entry.name.startswith("v_mad_") and entry.type_of("D") == "u64" and slot.name == "S2":
        product = sources[0].astype(np.int64) * sources[1].astype(np.int64)
        return np.where(lanes, (-product).view(values.dtype), values)
    if sources and values.dtype == sources[0].dtype and slot.type != "mask":
        return np.where(lanes, sources[0], values)
    return values


def _check(bench: Bench, entry: Entry, rng: np.random.Generator, round_: int) -> None:
    bench.randomise(rng)
    bench.exec = (
        bench.full if round_ % 2 == 0 else int(rng.integers(0, bench.full, dtype=np.uint64, endpoint=True))
    )
    on = _bools(bench.exec, bench.lanes)
    calm = round_ % 3 == 2 or entry.name in {"v_sin_f32", "v_cos_f32"}
    sources: list[Array] = []
    for slot in entry.slots:
        if slot.name in {"D", "SD"}:
            continue
        values = draw(rng, slot.type, bench.lanes, calm=calm)
        number = int(slot.name[1])
        values = _at_ties(entry, rng, slot, values, sources)
        if slot.type == "mask":
            bench.set_pair(106 if number == 3 else 30 + 2 * number, _mask(values))
        else:
            if (
                entry.name.startswith("v_div_scale_") and number == 0
            ):  # one of the two others, by the instruction's contract
                continue
            _put(bench, 2 * number, values)
        sources.append(values)
    if entry.name.startswith("v_div_scale_"):
        chosen = sources[round_ % 2]
        _put(bench, 0, chosen)
        sources.insert(0, chosen)
    output = entry.type_of("D")
    if output and entry.reads_d:
        _put(bench, 20, draw(rng, output, bench.lanes))
        sources.append(_get(bench, 20, output))
    before, exec_before = bench.v.copy(), bench.exec
    bench.run(_text(entry, bench.lanes))
    after = bench.v.copy()
    with np.errstate(invalid="ignore"):
        result = MODELS[entry.name](*sources)
    expected, expected_mask = result if isinstance(result, tuple) else (result, result)
    if output:
        if (
            entry.name == "v_fma_mixhi_f16"
        ):  # the table's only instruction that writes a high half by its name
            assert np.array_equal(bench.v[20] & np.uint32(0xFFFF), before[20] & np.uint32(0xFFFF))
            bench.v[20] >>= np.uint32(16)
        _compare(entry, _get(bench, 20, output)[on], np.asarray(expected)[on], [s[on] for s in sources])
        changed = np.any(after != before, axis=1)
        assert set(np.flatnonzero(changed)) <= {20, 21}
        assert np.array_equal(after[:, ~on], before[:, ~on])
    if entry.type_of("SD"):
        found = bench.exec if entry.name.startswith("v_cmpx") else bench.pair(40) & bench.full
        assert found == _mask(np.asarray(expected_mask)) & exec_before
        if entry.name.startswith("v_cmpx") and bench.lanes == 64:
            assert bench.pair(40) == found


CLAMPED = [name for name in NAMES if "I->clamp" in INSTRUCTIONS[name].code and "_dot" not in name]


@pytest.mark.parametrize("name", CLAMPED)
def test_integer_sums_saturate(bench: Bench, name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    kind = "u16" if "u16" in name else "u32"
    largest = int(np.iinfo(np.uint16 if kind == "u16" else np.uint32).max)
    for _ in range(ROUNDS):
        bench.randomise(rng)
        bench.exec = bench.full
        first, second = (draw(rng, kind, bench.lanes) & largest for _ in range(2))
        second[::8] = first[::8]
        _put(bench, 0, first)
        _put(bench, 2, second)
        bench.run(_text(INSTRUCTIONS[name], bench.lanes) + " clamp")
        a, b = first.astype(np.int64), second.astype(np.int64)
        exact = a + b if "_add" in name else b - a if "subrev" in name else a - b
        assert np.array_equal(_get(bench, 20, "u32") & largest, np.clip(exact, 0, largest).astype(np.uint32))


def _one_nan(words: Array) -> Array:
    """Pairs of bfloat16 with one pattern for every NaN."""
    halves = words.view(np.uint16)
    return np.where(halves & np.uint16(0x7FFF) > 0x7F80, np.uint16(0x7FC0), halves).view(np.uint32)


def _compare(entry: Entry, found: Array, expected: Array, sources: list[Array]) -> None:
    expected = expected.astype(found.dtype)
    if entry.name.startswith("v_cvt_scalef32_pk_bf16_"):
        found, expected = _one_nan(found), _one_nan(expected)
    if entry.name == "v_dot2_bf16_bf16":
        found, expected = _one_nan(found.astype(np.uint32)), _one_nan(expected.astype(np.uint32))
    if entry.name in PAIRS:
        found, expected = found.view(PAIRS[entry.name]), expected.view(PAIRS[entry.name])
        sources = [np.repeat(s, 2) for s in sources]
    right = same_bits(found, expected)
    units = UNITS.get(entry.name, 0)
    if units:
        with np.errstate(invalid="ignore"):
            near = np.abs(found.view(np.int32).astype(np.int64) - expected.view(np.int32)) <= units
            # at the edge of flushing one of two right answers may be zero
            right |= near | ((np.abs(found) <= 2.0**-126) & (np.abs(expected) <= 2.0**-126))
    if entry.name.startswith(("v_sin_", "v_cos_")):
        with np.errstate(invalid="ignore"):
            right |= np.abs(found - expected) < 2.0**-22
    wrong = np.flatnonzero(~right)
    shown = [(s[wrong[:3]].tolist()) for s in sources] if wrong.size else []
    assert wrong.size == 0, f"{shown} gave {found[wrong[:3]]}, not {expected[wrong[:3]]}"


def test_the_models_fused_sum_agrees_with_exact_rational_arithmetic() -> None:
    rng = np.random.default_rng(3)
    a, b, c = (draw(rng, "f32", 3000) for _ in range(3))
    with np.errstate(all="ignore"):
        c[::3] = (-(a[::3].astype(np.float64) * b[::3]) * (1 + 2.0**-30)).astype(np.float32)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    got = fused(a, b, c)
    double = fused_double(
        a[finite].astype(np.float64), b[finite].astype(np.float64), c[finite].astype(np.float64)
    )
    # rational to double to float rounds twice: compare where the double is exact or no tie is near
    with np.errstate(over="ignore"):
        apart = (double.view(np.uint64) & np.uint64(0x1FFFFFFF)) != 0x10000000
        expected = double.astype(np.float32)
    assert bool(np.all(same_bits(got[finite], expected)[apart]))
    assert apart.sum() > 1000
