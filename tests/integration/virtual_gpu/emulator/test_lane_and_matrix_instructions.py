"""Instructions that cross lanes, matrix products, and that nothing in the table goes untested."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aotforge.virtual_gpu.emulator.isa import INSTRUCTIONS, memory, scalar, vector, wave_ops
from tests.integration.virtual_gpu.emulator.bench import Bench

MATRICES = re.compile(r"v_mfma_f32_(\d+)x\1x(\d+)_?(?:(\d+)b_)?(f32|f16|bf16)(_1k)?$")
LANE_TESTS = {
    "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "ds_bpermute_b32", "ds_permute_b32", "v_permlane16_b32",
    "v_permlanex16_b32", "v_swap_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32", "ds_read_b64_tr_b16", "v_pk_mov_b32",
}  # fmt: skip


def test_every_part_of_the_table_has_its_tests() -> None:
    """Scalar, vector, packed and memory instructions are compared with their models' names where those are tested."""
    assert set(wave_ops.LANES) == LANE_TESTS
    assert all(MATRICES.match(name) or name.startswith("v_wmma_f32_16x16x16_") for name in wave_ops.MATRIX)
    others = {"s_getpc_b64", "s_barrier", "s_barrier_signal", "s_barrier_wait", "s_endpgm"}
    branches = {"s_branch", *(f"s_cbranch_{x}" for x in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz"))}
    assert set(wave_ops.CONTROL) == others | branches
    assert {entry.form for entry in scalar.TABLE.values()} == {"scalar"}
    tables = [m.TABLE for m in (scalar, vector, memory)]
    parts = [*tables, wave_ops.CONTROL, wave_ops.NO_OPS, wave_ops.LANES, wave_ops.MATRIX]
    assert set(INSTRUCTIONS) == set().union(*parts)


@pytest.fixture
def bench() -> Bench:
    made = Bench("gfx950")
    made.randomise(np.random.default_rng(5))
    made.exec = made.full
    return made


def test_reading_and_writing_lanes(bench: Bench) -> None:
    bench.exec = 0b101000
    bench.run("v_readfirstlane_b32 s4, v3")
    assert bench.s[4] == bench.v[3, 3]
    bench.exec = 0
    bench.run("v_readfirstlane_b32 s4, v3")
    assert bench.s[4] == bench.v[3, 0]
    bench.s[5] = 64 + 17
    bench.run("v_readlane_b32 s4, v3, s5")
    assert bench.s[4] == bench.v[3, 17]
    bench.run("v_readlane_b32 s4, v3, 9")
    assert bench.s[4] == bench.v[3, 9]
    bench.run("v_writelane_b32 v3, s4, 12")  # whether or not the lane is on
    assert bench.v[3, 12] == bench.s[4]


def test_permutes_through_lds_hardware(bench: Bench) -> None:
    rng = np.random.default_rng(6)
    target = rng.permutation(64)
    bench.v[0] = target * 4
    bench.exec = 0x0FFF_FFFF_FFFF_FFF0
    on = np.array([bench.exec >> lane & 1 for lane in range(64)], dtype=bool)
    before = bench.v.copy()
    bench.run("ds_bpermute_b32 v20, v0, v1")
    expected = np.where(on[target], before[1][target], 0)
    assert np.array_equal(bench.v[20], np.where(on, expected, before[20]))
    bench.run("ds_permute_b32 v21, v0, v1")
    scattered = np.zeros(64, dtype=np.uint32)
    scattered[target[on]] = before[1][on]
    assert np.array_equal(bench.v[21], np.where(on, scattered, before[21]))


@pytest.mark.parametrize("other", [False, True])
def test_permutes_within_rows(other: bool) -> None:
    bench = Bench("gfx1100")
    rng = np.random.default_rng(7)
    bench.randomise(rng)
    select = rng.integers(0, 16, 16)
    low = sum(int(n) << 4 * i for i, n in enumerate(select[:8]))
    high = sum(int(n) << 4 * i for i, n in enumerate(select[8:]))
    bench.s[4], bench.s[5] = low, high
    name = "v_permlanex16_b32" if other else "v_permlane16_b32"
    for mask, flags in (
        (bench.full, ""),
        (0x00FF_FF0F, ""),
        (0x00FF_FF0F, " op_sel:[1,0]"),
        (0x00FF_FF0F, " op_sel:[0,1]"),
    ):
        bench.exec = mask
        before = bench.v.copy()
        bench.run(f"{name} v20, v1, s4, s5{flags}")
        for lane in range(32):
            source = (lane // 16 ^ other) * 16 + int(select[lane % 16])
            found = mask >> source & 1 or "[1,0]" in flags
            value = before[1, source] if found else 0 if "[0,1]" in flags else before[20, lane]
            assert bench.v[20, lane] == (value if mask >> lane & 1 else before[20, lane])


def test_swaps(bench: Bench) -> None:
    bench.exec = 0xFF00
    before = bench.v.copy()
    bench.run("v_swap_b32 v1, v2")
    on = slice(8, 16)
    assert np.array_equal(bench.v[1, on], before[2, on])
    assert np.array_equal(bench.v[2, on], before[1, on])
    assert np.array_equal(bench.v[1, 16:], before[1, 16:])
    bench.run("v_permlane32_swap_b32 v3, v4")
    assert np.array_equal(bench.v[3], np.concatenate([before[3, :32], before[4, :32]]))
    assert np.array_equal(bench.v[4], np.concatenate([before[3, 32:], before[4, 32:]]))
    bench.run("v_permlane16_swap_b32 v5, v6")
    a, b = before[5].reshape(4, 16), before[6].reshape(4, 16)
    assert np.array_equal(bench.v[5].reshape(4, 16), np.stack([a[0], b[0], a[2], b[2]]))
    assert np.array_equal(bench.v[6].reshape(4, 16), np.stack([a[1], b[1], a[3], b[3]]))


def test_transposed_lds_loads(bench: Bench) -> None:
    # 16 lanes name 16 rows of 4 halves; lane i gets column i % 4 ... as one 16 x 4 tile read by columns
    halves = np.arange(64 * 4, dtype=np.uint16)
    bench.lds[: halves.nbytes] = halves.view(np.uint8)
    bench.v[0] = np.arange(64) * 8
    bench.run("ds_read_b64_tr_b16 v[20:21], v0")
    words = np.stack([bench.v[20], bench.v[21]], axis=1).copy().view(np.uint16)
    tiles = halves.reshape(4, 16, 4)
    for lane in range(64):
        group, i = divmod(lane, 16)
        flat = tiles[group].reshape(4, 16)  # 4 lanes hold a row of 16
        assert np.array_equal(words[lane], flat[:, i])


def _encode(values: np.ndarray, kind: str) -> np.ndarray:
    """Elements (lanes, n) to registers (words, lanes)."""
    if kind == "f32":
        return np.ascontiguousarray(values.astype(np.float32).view(np.uint32).T)
    half = (
        values.astype(np.float16).view(np.uint16)
        if kind == "f16"
        else (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    )
    if half.shape[1] == 1:
        half = np.concatenate([half, np.zeros_like(half)], axis=1)
    return np.ascontiguousarray(np.ascontiguousarray(half).view(np.uint32).T)


def _outputs(m: int, blocks: int) -> list[tuple[int, int, int, int, int]]:
    """(register, lane, block, row, column) of every element of D, by AMD's matrix instruction calculator."""
    places = []
    for block in range(blocks):
        for i in range(m):
            for j in range(m):
                if m == 32:
                    register, lane = 16 * block + 4 * (i // 8) + i % 4, j + 32 * (i // 4 % 2)
                elif m == 16:
                    register, lane = 4 * block + i % 4, j + 16 * (i // 4)
                else:
                    register, lane = i % 4, j + 4 * block
                places.append((register, lane, block, i, j))
    return places


@pytest.mark.parametrize("name", [name for name in wave_ops.MATRIX if MATRICES.match(name)])
def test_matrix_products_are_exact_on_small_integers(bench: Bench, name: str) -> None:
    match = MATRICES.match(name)
    assert match
    m, k, kind = int(match[1]), int(match[2]), match[4]
    entry = INSTRUCTIONS[name]
    registers = entry.slots[0].words
    blocks = registers * 64 // (m * m)
    rng = np.random.default_rng(8)
    a = rng.integers(-8, 9, (blocks, m, k)).astype(np.float64)
    b = rng.integers(-8, 9, (blocks, k, m)).astype(np.float64)
    c = rng.integers(-50, 51, (blocks, m, m)).astype(np.float64)
    each = k * m * blocks // 64
    in_a, in_b = np.zeros((64, each)), np.zeros((64, each))
    for lane in range(64):
        group, block, row = lane // (m * blocks), lane // m % blocks, lane % m
        in_a[lane] = a[block, row, each * group : each * (group + 1)]
        in_b[lane] = b[block, each * group : each * (group + 1), row]
    for index, values in ((0, in_a), (16, in_b)):
        words = _encode(values, kind)
        bench.v[index : index + len(words)] = words
    for register, lane, block, i, j in _outputs(m, blocks):
        bench.v[256 + register, lane] = np.float32(c[block, i, j]).view(np.uint32)
    bench.exec = 0  # matrix instructions do not look at it
    inputs = [_span("v", index, entry.slots[1].words) for index in (0, 16)]
    accumulator = _span("a", 0, registers)
    bench.run(f"{name} {accumulator}, {inputs[0]}, {inputs[1]}, {accumulator}")
    expected = a @ b + c
    found = bench.v[256 : 256 + registers].copy().view(np.float32)
    for register, lane, block, i, j in _outputs(m, blocks):
        assert found[register, lane] == expected[block, i, j]
    bench.run(f"{name} {_span('v', 64, registers)}, {inputs[0]}, {inputs[1]}, 1.0")
    found = bench.v[64 : 64 + registers].copy().view(np.float32)
    for register, lane, block, i, j in _outputs(m, blocks):
        assert found[register, lane] == (a @ b)[block, i, j] + 1
    for size in range(1, blocks.bit_length()):  # one of every 2^size blocks of A for all of them
        chosen = int(rng.integers(0, 2**size))
        bench.run(
            f"{name} {_span('v', 64, registers)}, {inputs[0]}, {inputs[1]}, 0 cbsz:{size} abid:{chosen}"
        )
        found = bench.v[64 : 64 + registers].copy().view(np.float32)
        for register, lane, block, i, j in _outputs(m, blocks):
            source = block // 2**size * 2**size + chosen
            assert found[register, lane] == (a[source] @ b[block])[i, j]


def _span(file: str, index: int, words: int) -> str:
    return f"{file}{index}" if words == 1 else f"{file}[{index}:{index + words - 1}]"


def test_matrix_products_round_once_per_addition(bench: Bench) -> None:
    # 1 + 2^-24 is a tie; products enter one by one, so two of them stay lost, where one exact sum would not lose them
    bench.v[0], bench.v[16] = np.float32(2.0**-12).view(np.uint32), np.float32(2.0**-12).view(np.uint32)
    bench.run("v_mfma_f32_32x32x2_f32 v[64:79], v0, v16, 1.0")
    assert set(bench.v[64].view(np.float32)) == {1.0}


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_wmma(arch: str, kind: str) -> None:
    bench = Bench(arch)
    bench.exec = bench.full
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-8, 9, (16, 16)).astype(np.float64) for _ in range(2))
    c = rng.integers(-50, 51, (16, 16)).astype(np.float64)
    twelve = arch == "gfx1201"
    each = 8 if twelve else 16
    in_a, in_b = np.zeros((32, each)), np.zeros((32, each))
    for lane in range(32):
        first = 8 * (lane // 16) if twelve else 0
        in_a[lane], in_b[lane] = a[lane % 16, first : first + each], b[first : first + each, lane % 16]
    bench.v[0 : each // 2], bench.v[16 : 16 + each // 2] = _encode(in_a, kind), _encode(in_b, kind)
    places = [
        ((i % 8, j + 16 * (i // 8)) if twelve else (i // 2, j + 16 * (i % 2)), i, j)
        for i in range(16)
        for j in range(16)
    ]
    for (register, lane), i, j in places:
        bench.v[40 + register, lane] = np.float32(c[i, j]).view(np.uint32)
    words = each // 2
    bench.run(
        f"v_wmma_f32_16x16x16_{kind} v[40:47], {_span('v', 0, words)}, {_span('v', 16, words)}, v[40:47]"
    )
    expected = a @ b + c
    for (register, lane), i, j in places:
        assert bench.v[40 + register, lane].view(np.float32) == expected[i, j]
