"""Instructions that cross lanes, matrix products, and that nothing in the table goes untested."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest

from aotforge.errors import DecodeError
from tests.integration.vgpu.coverage.formats import encode
from tests.integration.vgpu.emulator.bench import FAULT, Bench
from vgpu.emulator.faults import TRANSPOSED
from vgpu.emulator.isa import INSTRUCTIONS, memory, scalar, vector, wave_ops

MATRICES = re.compile(
    r"v_mfma_(?:f32|i32)_(\d+)x\1x(\d+)_?(?:(\d+)b_)?(i8|xf32|f32|f16|bf16|(?:fp8|bf8)_(?:fp8|bf8))(_1k)?$"
)
DOUBLES = {"v_mfma_f64_16x16x4f64", "v_mfma_f64_16x16x4_f64"}
LANE_TESTS = {
    "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "ds_bpermute_b32", "ds_permute_b32",
    "v_permlane16_b32",
    "v_permlanex16_b32", "v_swap_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32", "ds_read_b64_tr_b16",
    "ds_read_b64_tr_b8", "v_pk_mov_b32", "ds_swizzle_b32", "v_swap_b16", "v_permlane64_b32",
    "ds_read_b64_tr_b4",
}  # fmt: skip


def test_every_part_of_the_table_has_its_tests() -> None:
    """Scalar, vector, packed and memory instructions are compared with their models' names where those are
    tested."""
    assert set(wave_ops.LANES) == LANE_TESTS
    tested = {*DOUBLES, *WMMA, *FORMATS}
    assert all(MATRICES.match(name) or name in tested for name in wave_ops.MATRIX)
    others = {"s_getpc_b64", "s_barrier", "s_barrier_signal", "s_barrier_wait", "s_endpgm"}
    branches = {"s_branch", *(f"s_cbranch_{x}" for x in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz"))}
    calls = {"s_setpc_b64", "s_swappc_b64", "s_call_b64"}  # test_programs.py
    assert set(wave_ops.CONTROL) == others | branches | calls
    assert set(wave_ops.MESSAGE) == {"s_sendmsg"}  # test_host_calls.py
    assert set(wave_ops.MODE) == {
        "s_setreg_imm32_b32",
        "s_setreg_b32",
        "s_getreg_b32",
        "s_trap",
    }  # test_modifiers.py
    assert {entry.form for entry in scalar.TABLE.values()} == {"scalar"}
    tables = [m.TABLE for m in (scalar, vector, memory)]
    parts = [*tables, wave_ops.CONTROL, wave_ops.NO_OPS, wave_ops.LANES, wave_ops.MATRIX]
    parts += [wave_ops.MESSAGE, wave_ops.MODE]
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


def test_transposed_lds_loads_of_half_bytes(bench: Bench) -> None:
    """Each lane of 16 loads a row of 16 numbers of 4 bits, and gets a column."""
    bench.lds[:512] = np.random.default_rng(2).integers(0, 256, 512)
    bench.v[0] = np.arange(64) * 8
    tiles = np.stack([bench.lds[:512] & 15, bench.lds[:512] >> 4], axis=1).reshape(4, 16, 16)
    bench.run("ds_read_b64_tr_b4 v[20:21], v0")
    for lane in range(64):
        both = int(bench.v[20, lane]) | int(bench.v[21, lane]) << 32
        assert [both >> 4 * k & 15 for k in range(16)] == tiles[lane // 16, :, lane % 16].tolist()


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_transposed_lds_loads_need_every_lane(bench: Bench, bits: int) -> None:
    bench.exec = bench.full & ~(1 << 37)
    bench.v[0] = 0
    bench.run(f"ds_read_b64_tr_b{bits} v[20:21], v0")
    assert (bench.wave.state, bench.fault.code, bench.fault.lane) == (FAULT, TRANSPOSED, 37)


def test_transposed_lds_loads_of_bytes(bench: Bench) -> None:
    rows = np.arange(64 * 8, dtype=np.int64).astype(np.uint8)
    bench.lds[: rows.size] = rows
    bench.v[0] = np.arange(64) * 8
    bench.run("ds_read_b64_tr_b8 v[20:21], v0")
    found = np.ascontiguousarray(np.stack([bench.v[20], bench.v[21]], axis=1)).view(np.uint8)
    for lane in range(64):
        group, i = divmod(lane, 16)
        assert np.array_equal(found[lane], rows.reshape(4, 8, 16)[group][:, i])  # 2 lanes hold a row of 16


FORMATS = {f"v_mfma_{scaled}f32_{m}x{m}x{2048 // m}_f8f6f4": m for m in (32, 16) for scaled in ("", "scale_")}


def _bits(values: np.ndarray, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """Bits of numbers that a format without special values has, by search of all patterns."""
    bias, patterns = 2 ** (exponent_bits - 1) - 1, np.arange(2 ** (exponent_bits + mantissa_bits))
    e, m = patterns >> mantissa_bits, patterns & (2**mantissa_bits - 1)
    numbers = np.ldexp(m + np.where(e > 0, 2**mantissa_bits, 0), np.maximum(e, 1) - bias - mantissa_bits)
    found = np.array([int(np.flatnonzero(numbers == abs(x))[0]) for x in values.ravel().tolist()])
    return np.asarray(found | (np.signbit(values.ravel()) << (exponent_bits + mantissa_bits))).reshape(
        values.shape
    )


def _put_format(bench: Bench, index: int, rows: np.ndarray, kind: int) -> str:
    """Rows of a matrix (m x k) into registers from `index` on; their text."""
    m, k = rows.shape
    size = (8, 8, 6, 6, 4)[kind]
    patterns = _bits(rows, *((4, 3), (5, 2), (2, 3), (3, 2), (2, 1))[kind])
    for lane in range(64):
        group, half = lane // m, k // 2
        at = [*range(16 * group, 16 * group + 16), *range(half + 16 * group, half + 16 * group + 16)]
        own = patterns[lane % m][at if size == 8 else slice(32 * group, 32 * group + 32)]
        joined = sum(int(x) << size * e for e, x in enumerate(own))
        for word in range(size):
            bench.v[index + word, lane] = joined >> 32 * word & 0xFFFFFFFF
    return _span("v", index, size)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("formats", [(0, 0), (0, 1), (1, 0), (2, 3), (3, 2), (4, 4), (0, 4), (4, 1)])
def test_products_of_chosen_formats(name: str, formats: tuple[int, int]) -> None:
    bench, m, scaled = Bench("gfx950"), FORMATS[name], "scale" in name
    k, rng = 2048 // m, np.random.default_rng(8)
    a, b = rng.integers(-3, 4, (m, k)).astype(np.float64), rng.integers(-3, 4, (k, m)).astype(np.float64)
    spans = [
        _put_format(bench, index, rows, kind)
        for index, rows, kind in ((0, a, formats[0]), (16, b.T, formats[1]))
    ]
    more, registers = f"cbsz:{formats[0]} blgp:{formats[1]}", m * m // 64
    operands = f"{_span('v', 64, registers)}, {spans[0]}, {spans[1]}, 1.0"
    if scaled:
        powers = rng.integers(125, 130, (2, m, k // 32))
        for n, byte in ((0, 1), (1, 2)):  # the other bytes have no meaning
            bench.v[40 + n] = rng.integers(0, 2**32, 64, dtype=np.uint32) & np.uint32(
                ~(255 << 8 * byte) % 2**32
            )
            for lane in range(64):
                bench.v[40 + n, lane] |= np.uint32(int(powers[n, lane % m, lane // m]) << 8 * byte)
        a, b = (
            a * np.repeat(np.ldexp(1.0, powers[0] - 127), 32, 1),
            b * np.repeat(np.ldexp(1.0, powers[1] - 127), 32, 1).T,
        )
        operands, more = f"{operands}, v40, v41", f"op_sel:[1,0,0] op_sel_hi:[0,1,0] {more}"
    if scaled and 2 in formats:
        with pytest.raises(DecodeError, match="6-bit formats with scales"):
            bench.run(f"{name} {operands} {more}")
        return
    bench.run(f"{name} {operands} {more}")
    found = bench.v[64 : 64 + registers].view(np.float32)
    for register, lane, _, i, j in _outputs(m, 1):
        assert found[register, lane] == (a @ b)[i, j] + 1


def test_a_scale_of_ones_is_not_a_number() -> None:
    bench = Bench("gfx950")
    bench.v[:] = 0
    bench.v[40], bench.v[41] = 127, np.where(np.arange(64) % 32 == 3, 255, 127)
    bench.run("v_mfma_scale_f32_32x32x64_f8f6f4 v[64:79], v[0:7], v[16:23], 0, v40, v41 op_sel_hi:[0,0,0]")
    found = bench.v[64:80].view(np.float32)
    assert np.array_equal(np.isnan(found), np.tile(np.arange(64) % 32 == 3, (16, 1)))


def test_six_bit_formats_are_not_mixed_with_others() -> None:
    with pytest.raises(DecodeError, match="another width"):
        Bench("gfx950").run("v_mfma_f32_32x32x64_f8f6f4 v[64:79], v[0:7], v[16:21], 0 blgp:2")


def test_conversions_of_four_bit_floats_select_a_byte(bench: Bench) -> None:
    bench.v[0], bench.v[1] = 0x7654_3211, np.float32(4).view(np.uint32)
    for flags, byte in (("", 0x11), ("[1,0,0]", 0x32), ("[0,1,0]", 0x54), ("[1,1,0]", 0x76)):
        bench.run(f"v_cvt_scalef32_pk_f32_fp4 v[20:21], v0, v1{' op_sel:' + flags if flags else ''}")
        numbers = [(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)[byte >> shift & 7] * 4 for shift in (0, 4)]
        assert [float(bench.v[20 + n, 5].view(np.float32)) for n in (0, 1)] == numbers


def _encode(values: np.ndarray, kind: str) -> np.ndarray:
    """Elements (lanes, n) to registers (words, lanes)."""
    formats = {"f32": "fp32", "xf32": "fp32", "f16": "fp16", "iu8": "u8"}
    stored = encode(values, formats.get(kind, kind))
    raw = np.ascontiguousarray(stored).view(np.uint8).reshape(len(values), -1)
    padded = np.concatenate([raw, np.zeros((len(raw), -raw.shape[1] % 4), dtype=np.uint8)], axis=1)
    return np.ascontiguousarray(np.ascontiguousarray(padded).view(np.uint32).T)


def _kinds(name: str, arch: str) -> tuple[str, str]:
    """Formats of both inputs."""
    match = MATRICES.match(name)
    assert match
    small = {
        "gfx942": {"fp8": "fp8e4b8", "bf8": "fp8e5b16"},
        "gfx950": {"fp8": "fp8e4nv", "bf8": "fp8e5"},
    }
    first, _, second = match[4].partition("_")
    return small[arch].get(first, first), small[arch].get(second or first, second or first)


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


def _archs_of(name: str) -> list[str]:
    """Both where 8-bit floats differ."""
    archs = [a for a in ("gfx942", "gfx950") if a.startswith(INSTRUCTIONS[name].archs)]
    return archs if "p8" in name or "f8" in name else archs[-1:]


@pytest.mark.parametrize(
    ("name", "arch"), [(n, a) for n in wave_ops.MATRIX if MATRICES.match(n) for a in _archs_of(n)]
)
def test_matrix_products_are_exact_on_small_integers(name: str, arch: str) -> None:
    bench = Bench(arch)
    bench.randomise(np.random.default_rng(5))
    match = MATRICES.match(name)
    assert match
    m, k, kinds = int(match[1]), int(match[2]), _kinds(name, arch)
    number = np.int32 if "_i32_" in name else np.float32
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
    for index, values, kind in ((0, in_a, kinds[0]), (16, in_b, kinds[1])):
        words = _encode(values, kind)
        bench.v[index : index + len(words)] = words
    for register, lane, block, i, j in _outputs(m, blocks):
        bench.v[256 + register, lane] = number(c[block, i, j]).view(np.uint32)
    bench.exec = 0  # matrix instructions do not look at it
    inputs = [_span("v", index, entry.slots[1].words) for index in (0, 16)]
    accumulator = _span("a", 0, registers)
    bench.run(f"{name} {accumulator}, {inputs[0]}, {inputs[1]}, {accumulator}")
    expected = a @ b + c
    found = bench.v[256 : 256 + registers].copy().view(number)
    for register, lane, block, i, j in _outputs(m, blocks):
        assert found[register, lane] == expected[block, i, j]
    bench.run(
        f"{name} {_span('v', 64, registers)}, {inputs[0]}, {inputs[1]}, {1 if number is np.int32 else 1.0}"
    )
    found = bench.v[64 : 64 + registers].copy().view(number)
    for register, lane, block, i, j in _outputs(m, blocks):
        assert found[register, lane] == (a @ b)[block, i, j] + 1
    for size in range(1, blocks.bit_length()):  # one of every 2^size blocks of A for all of them
        chosen = int(rng.integers(0, 2**size))
        bench.run(
            f"{name} {_span('v', 64, registers)}, {inputs[0]}, {inputs[1]}, 0 cbsz:{size} abid:{chosen}"
        )
        found = bench.v[64 : 64 + registers].copy().view(number)
        for register, lane, block, i, j in _outputs(m, blocks):
            source = block // 2**size * 2**size + chosen
            assert found[register, lane] == (a[source] @ b[block])[i, j]


def _span(file: str, index: int, words: int) -> str:
    return f"{file}{index}" if words == 1 else f"{file}[{index}:{index + words - 1}]"


def test_matrix_products_round_once_per_addition(bench: Bench) -> None:
    # 1 + 2^-24 is a tie; products enter one by one, so two of them stay lost, where one exact sum would not
    # lose them
    bench.v[0], bench.v[16] = np.float32(2.0**-12).view(np.uint32), np.float32(2.0**-12).view(np.uint32)
    bench.run("v_mfma_f32_32x32x2_f32 v[64:79], v0, v16, 1.0")
    assert set(bench.v[64].view(np.float32)) == {1.0}


def test_xf32_keeps_ten_bits_of_the_mantissa() -> None:
    bench = Bench("gfx942")
    bench.v[0:2], bench.v[2:4] = 0, 0
    # 1 + 2^-11 is a tie and goes to the even neighbour, 1; the next float to 1 + 2^-10
    bench.v[0, 0], bench.v[0, 1] = (np.float32(x).view(np.uint32) for x in (1 + 2**-11, 1 + 2**-11 + 2**-23))
    bench.v[2, :32] = np.float32(1).view(np.uint32)
    bench.run("v_mfma_f32_32x32x4_xf32 v[64:79], v[0:1], v[2:3], 0")
    assert bench.v[64:66, 0].view(np.float32).tolist() == [1.0, 1 + 2**-10]


@pytest.mark.parametrize("name", sorted(DOUBLES))
def test_products_of_doubles(name: str) -> None:
    bench = Bench("gfx942")
    rng = np.random.default_rng(4)
    a, b, c = rng.standard_normal((16, 4)), rng.standard_normal((4, 16)), rng.standard_normal((16, 16))

    def put(index: int, values: np.ndarray) -> None:
        words = np.ascontiguousarray(values).view(np.uint32)
        bench.v[index], bench.v[index + 1] = words[0::2], words[1::2]

    lanes = np.arange(64)
    put(0, a[lanes % 16, lanes // 16])
    put(2, b[lanes // 16, lanes % 16])
    for r in range(4):
        put(8 + 2 * r, c[4 * r + lanes // 16, lanes % 16])
    bench.exec = 0
    for text, addend in (("v[8:15]", c), ("1.0", np.ones((16, 16)))):
        bench.run(f"{name} v[20:27], v[0:1], v[2:3], {text}")
        expected = addend.copy()
        for k in range(4):
            expected = np.array(
                [
                    [
                        float(Fraction(a[i, k]) * Fraction(b[k, j]) + Fraction(expected[i, j]))
                        for j in range(16)
                    ]
                    for i in range(16)
                ]
            )
        for r in range(4):
            pairs = np.stack([bench.v[20 + 2 * r], bench.v[21 + 2 * r]], axis=1)
            found = np.ascontiguousarray(pairs).view(np.float64)[:, 0]
            assert np.array_equal(found, expected[4 * r + lanes // 16, lanes % 16])


WMMA = {
    f"v_wmma_{result}_16x16x16_{kinds}"
    for result, kinds in (
        *(("f32", kind) for kind in ("f16", "bf16", "fp8_fp8", "fp8_bf8", "bf8_fp8", "bf8_bf8")),
        ("i32", "iu8"),
    )
}


@pytest.mark.parametrize(
    ("arch", "name", "signs"),
    [
        (arch, name, signs)
        for arch in ("gfx1100", "gfx1201")
        for name in sorted(WMMA)
        if arch.startswith(INSTRUCTIONS[name].archs)
        for signs in ((0, 0), (0, 1), (1, 0), (1, 1))
        if name.endswith("iu8") or not any(signs)
    ],
)
def test_wmma(arch: str, name: str, signs: tuple[int, int]) -> None:
    bench = Bench(arch)
    bench.exec = bench.full
    rng = np.random.default_rng(9)
    first, _, second = (
        name.removeprefix("v_wmma_f32_16x16x16_").removeprefix("v_wmma_i32_16x16x16_").partition("_")
    )
    small = {"fp8": "fp8e4nv", "bf8": "fp8e5"}
    kinds = small.get(first, first), small.get(second or first, second or first)
    number = np.int32 if first == "iu8" else np.float32
    a, b = (rng.integers(-8, 9, (16, 16)).astype(np.float64) for _ in range(2))
    if number is np.int32:  # bytes of any sign
        a, b = (rng.integers(-128, 128, (16, 16)).astype(np.float64) for _ in range(2))
        a, b = (np.where((x < 0) & (not sign), x + 256, x) for x, sign in ((a, signs[0]), (b, signs[1])))
    c = rng.integers(-50, 51, (16, 16)).astype(np.float64)
    twelve = arch == "gfx1201"
    each = 8 if twelve else 16
    in_a, in_b = np.zeros((32, each)), np.zeros((32, each))
    for lane in range(32):
        at = 8 * (lane // 16) if twelve else 0
        in_a[lane], in_b[lane] = a[lane % 16, at : at + each], b[at : at + each, lane % 16]
    spans = []
    for index, values, kind in ((0, in_a, kinds[0]), (16, in_b, kinds[1])):
        words = _encode(values.astype(np.int64) & 255 if kind == "iu8" else values, kind)
        bench.v[index : index + len(words)] = words
        spans.append(_span("v", index, len(words)))
    places = [
        ((i % 8, j + 16 * (i // 8)) if twelve else (i // 2, j + 16 * (i % 2)), i, j)
        for i in range(16)
        for j in range(16)
    ]
    for (register, lane), i, j in places:
        bench.v[40 + register, lane] = number(c[i, j]).view(np.uint32)
    more = f" neg_lo:[{signs[0]},{signs[1]},0]" if any(signs) else ""
    bench.run(f"{name} v[40:47], {spans[0]}, {spans[1]}, v[40:47]{more}")
    expected = a @ b + c
    for (register, lane), i, j in places:
        assert bench.v[40 + register, lane].view(number) == expected[i, j]
