"""Packed instructions against models, for every choice of halves and signs."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pytest

from tests.integration.vgpu.emulator.bench import Bench
from tests.integration.vgpu.emulator.models import vector
from tests.integration.vgpu.emulator.models.numbers import DTYPES, Array, draw, same_bits
from vgpu.emulator.isa import INSTRUCTIONS

MODELS = {
    "v_pk_add_f16": vector.MODELS["v_add_f16"],
    "v_pk_mul_f16": vector.MODELS["v_mul_f16"],
    "v_pk_fma_f16": vector.MODELS["v_fma_f16"],
    "v_pk_max_f16": vector.MODELS["v_max_f16"],
    "v_pk_max_num_f16": vector.MODELS["v_max_num_f16"],
    "v_pk_min_f16": vector.MODELS["v_min_f16"],
    "v_pk_min_num_f16": vector.MODELS["v_min_num_f16"],
    "v_pk_add_u16": vector.MODELS["v_add_u16"],
    "v_pk_sub_i16": vector.MODELS["v_sub_u16"],
    "v_pk_mul_lo_u16": vector.MODELS["v_mul_lo_u16"],
    "v_pk_add_i16": vector.MODELS["v_add_u16"],
    "v_pk_sub_u16": vector.MODELS["v_sub_u16"],
    "v_pk_mad_u16": vector.MODELS["v_mad_u16"],
    "v_pk_mad_i16": vector.MODELS["v_mad_u16"],
    **{f"v_pk_{name}": vector.MODELS[f"v_{name}"] for name in ("max_i16", "min_i16", "max_u16", "min_u16")},
    **{
        f"v_pk_{one}_f16": vector.MODELS[f"v_{one}_f16"]
        for one in ("maximum", "minimum", "maximum3", "minimum3")
    },
    "v_pk_ashrrev_i16": vector.MODELS["v_ashrrev_i16"],
    "v_pk_lshlrev_b16": vector.MODELS["v_lshlrev_b16"],
    "v_pk_lshrrev_b16": vector.MODELS["v_lshrrev_b16"],
    "v_pk_add_f32": vector.MODELS["v_add_f32"],
    "v_pk_mul_f32": vector.MODELS["v_mul_f32"],
    "v_pk_fma_f32": vector.MODELS["v_fma_f32"],
}
NAMES = [name for name, entry in INSTRUCTIONS.items() if entry.form == "packed"]


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench("gfx90a")


def test_every_packed_instruction_has_a_model() -> None:
    assert set(NAMES) == set(MODELS)


def _halves(bench: Bench, index: int, kind: str, half: int) -> Array:
    if kind == "f32":
        return np.asarray(bench.v[index + half].copy().view(np.float32))
    return np.asarray(
        (bench.v[index] >> np.uint32(16 * half) & np.uint32(0xFFFF)).astype(np.uint16).view(DTYPES[kind])
    )


@pytest.mark.parametrize("name", NAMES)
def test_halves_and_signs_are_chosen_one_by_one(bench: Bench, name: str) -> None:
    entry = INSTRUCTIONS[name]
    kind = entry.type_of("D") or ""
    sources = [slot for slot in entry.slots if slot.name != "D"]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    floats = kind[0] == "f"
    choices = [rng.integers(0, 2, (4, len(sources))) for _ in range(40)]
    for low, high, neg_low, neg_high in choices:
        bench.randomise(rng)
        bench.exec = bench.full
        for slot in sources:
            index = 2 * int(slot.name[1])
            for half in (0, 1):
                values = draw(rng, kind, bench.lanes)
                if kind == "f32":
                    bench.v[index + half] = values.view(np.uint32)
                else:
                    shift = np.uint32(16 * half)
                    keep = bench.v[index] & ~(np.uint32(0xFFFF) << shift)
                    bench.v[index] = keep | values.view(np.uint16).astype(np.uint32) << shift
        words = 2 if kind == "f32" else 1
        names = [
            f"v[{i}:{i + 1}]" if words == 2 else f"v{i}" for i in (20, *(2 * int(s.name[1]) for s in sources))
        ]
        text = f"{name} {', '.join(names)} op_sel:{_list(low)} op_sel_hi:{_list(high)}"
        if floats:
            text += f" neg_lo:{_list(neg_low)} neg_hi:{_list(neg_high)}"
        expected = []
        for select, negate in ((low, neg_low), (high, neg_high)):
            read = [_halves(bench, 2 * k, kind, int(select[k])) for k in range(len(sources))]
            read = [-x if floats and negate[k] else x for k, x in enumerate(read)]
            expected.append(MODELS[name](*read))
        bench.run(text)
        for half in (0, 1):
            found = _halves(bench, 20, kind, half)
            assert same_bits(found, expected[half].astype(found.dtype)).all(), text


def _list(bits: Array) -> str:
    return "[" + ",".join(str(int(bit)) for bit in bits) + "]"


@pytest.mark.parametrize("name", [name for name in NAMES if "I->clamp" in INSTRUCTIONS[name].code])
def test_halves_saturate(bench: Bench, name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    kind = INSTRUCTIONS[name].type_of("D") or ""
    limits = np.iinfo(DTYPES[kind])
    operations = {"add": np.add, "sub": np.subtract, "mul_lo": np.multiply}
    operation = next(made for word, made in operations.items() if f"_{word}_" in name)
    for _ in range(12):
        bench.randomise(rng)
        bench.exec = bench.full
        bench.run(f"{name} v20, v0, v2 clamp")
        for half in (0, 1):
            first, second = (_halves(bench, k, kind, half).astype(np.int64) for k in (0, 2))
            exact = np.clip(operation(first, second), limits.min, limits.max)
            assert np.array_equal(_halves(bench, 20, kind, half), exact.astype(DTYPES[kind]))


def test_clamp_of_both_halves(bench: Bench) -> None:
    bench.exec = bench.full
    bench.v[0], bench.v[2] = 0xC0003C00, 0x3C003C00
    bench.run("v_pk_add_f16 v20, v0, v2 clamp")
    assert set(bench.v[20]) == {0x00003C00}


def test_moving_a_pair_takes_any_word_of_each_source(bench: Bench) -> None:
    bench.exec = bench.full
    for register in range(4):
        bench.v[register] = register + 1
    for first, second in itertools.product((0, 1), (0, 1)):
        bench.run(f"v_pk_mov_b32 v[20:21], v[0:1], v[2:3] op_sel:[{first},{second}]")
        assert set(bench.v[20]) == {1 + first}
        assert set(bench.v[21]) == {3 + second}
