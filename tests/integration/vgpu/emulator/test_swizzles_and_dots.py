"""ds_swizzle_b32 in every mode, swaps of halves, and dot products of narrow elements with their modifiers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aotforge.errors import DecodeError
from tests.integration.vgpu.emulator.bench import Bench
from tests.integration.vgpu.emulator.models import dots
from vgpu.code_object import read_elf
from vgpu.emulator.assembly import assemble
from vgpu.emulator.listing import parse_line
from vgpu.emulator.operands import number


def _reversed(n: int) -> int:
    return int(f"{n:05b}"[::-1], 2)


SWIZZLES: dict[str, Callable[[int], int]] = {
    'BITMASK_PERM,"ppppp"': lambda n: n,
    'BITMASK_PERM,"01pi0"': lambda n: 8 | n & 4 | ~n & 2,
    'BITMASK_PERM,"iiiii"': lambda n: 31 - n,
    'BITMASK_PERM,"p0000"': lambda n: n & 16,
    "QUAD_PERM,3,1,0,2": lambda n: n & ~3 | (3, 1, 0, 2)[n & 3],
    "BROADCAST,8,3": lambda n: n & ~7 | 3,
    "BROADCAST,32,17": lambda n: 17,
    "SWAP,1": lambda n: n ^ 1,
    "SWAP,16": lambda n: n ^ 16,
    "REVERSE,8": lambda n: n ^ 7,
    "REVERSE,32": lambda n: 31 - n,
    "ROTATE,0,5": lambda n: (n + 5) % 32,
    "ROTATE,1,5": lambda n: (n - 5) % 32,
    "FFT,0": _reversed,
    "FFT,16": lambda n: _reversed(n) >> 1 | n & 16,
    "FFT,5": lambda n: _reversed(n) >> 2 | n & 5,
    "FFT,31": lambda n: n,
}


@pytest.mark.parametrize("pattern", SWIZZLES)
@pytest.mark.parametrize("arch", ["gfx908", "gfx1100"])
def test_swizzles_read_lanes_of_their_own_32(arch: str, pattern: str) -> None:
    bench = Bench(arch)
    bench.randomise(np.random.default_rng(8))
    for mask in (bench.full, 0xF0F0_FF00_1234_FFF7 & bench.full):
        bench.exec = mask
        data, old = bench.v[4].copy(), bench.v[20].copy()
        bench.run(f"ds_swizzle_b32 v20, v4 offset:swizzle({pattern})")
        for lane in range(bench.lanes):
            source = lane & 32 | SWIZZLES[pattern](lane & 31) & 31
            read = data[source] if mask >> source & 1 else 0
            assert bench.v[20, lane] == (read if mask >> lane & 1 else old[lane]), (pattern, lane)
    bench.run("ds_swizzle_b32 v20, v4 offset:32964")  # QUAD_PERM,0,1,0,3: numbers are encodings
    assert bench.v[20, 6] == bench.v[4, 4] and bench.v[20, 7] == bench.v[4, 7]
    with pytest.raises(DecodeError, match="unknown value"):
        bench.run("ds_swizzle_b32 v20, v4 offset:swizzle(SHUFFLE,1)")


@pytest.mark.compiler
def test_swizzles_are_encoded_as_the_assembler_does() -> None:
    for pattern in SWIZZLES:
        text = f"ds_swizzle_b32 v1, v2 offset:swizzle({pattern})"
        encoded = assemble(f'\t.amdgcn_target "amdgcn-amd-amdhsa--gfx908"\n\t.text\n{text}\n', "gfx908")
        code = read_elf(encoded).section(".text").data
        assert number(parse_line(text).modifiers, "offset") == int.from_bytes(code[:2], "little"), pattern


def test_halves_of_registers_are_swapped() -> None:
    bench = Bench("gfx1100")
    bench.exec = 0xFFFF
    bench.v[1], bench.v[2] = 0x11112222, 0x33334444
    bench.run("v_swap_b16 v1.l, v2.h")
    assert (set(bench.v[1, :16]), set(bench.v[2, :16])) == ({0x11113333}, {0x22224444})
    assert (set(bench.v[1, 16:]), set(bench.v[2, 16:])) == ({0x11112222}, {0x33334444})
    bench.run("v_swap_b16 v1.l, v1.h")
    assert set(bench.v[1, :16]) == {0x33331111}


def test_halves_of_64_lanes_are_not_exchanged_among_32() -> None:
    bench = Bench("gfx1100")
    bench.randomise(np.random.default_rng(9))
    before = bench.v.copy()
    bench.run("v_permlane64_b32 v20, v4")
    assert np.array_equal(bench.v, before)


@pytest.mark.parametrize("signs", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("bits", [8, 4])
def test_signs_and_saturation_of_integer_dot_products(bits: int, signs: tuple[int, int], clamp: bool) -> None:
    bench = Bench("gfx1100")
    rng = np.random.default_rng(bits)
    for edge in (0, 0x7FFFFFFF, 0x80000000, 0x7FFFFF00):
        bench.randomise(rng)
        bench.exec = bench.full
        bench.v[4] = edge
        a, b, c = bench.v[0].copy(), bench.v[2].copy(), bench.v[4].copy().view(np.int32)
        text = f"v_dot{32 // bits}_i32_iu{bits} v20, v0, v2, v4 neg_lo:[{signs[0]},{signs[1]},0]"
        bench.run(text + " clamp" * clamp)
        model = dots.dot(bits, signs=(bool(signs[0]), bool(signs[1])), saturate=clamp)
        assert np.array_equal(bench.v[20].view(np.int32), model(a, b, c))


def test_every_step_of_a_bfloat16_dot_product_is_truncated() -> None:
    """1 + 2^-7 + (2^-8 - 2^-16) has a mantissa of 16 bits; to the nearest it would be 1 + 2^-6."""
    bench = Bench("gfx1100")
    for low, high, c, expected in (
        (0x3F80, 0x0000, 0x3F81, 0x4000),  # 1 * 1 + 1.0078125 = 2.0078125: the last bit is lost
        (0x3BFF, 0x0000, 0x3F81, 0x3F81),  # (0.0078 * 1) below half a unit: lost
        (0xBBFF, 0x0000, 0x3F81, 0x3F80),  # 1.0078125 - 0.0078: toward zero, to the nearest would be 0x3F81
        (0x3BFF, 0x3BFF, 0x3F81, 0x3F81),  # two steps lose what their sum would show
    ):
        bench.exec = bench.full
        bench.v[0], bench.v[2], bench.v[4] = low | high << 16, 0x3F803F80, c
        bench.run("v_dot2_bf16_bf16 v20, v0, v2, v4")
        assert set(bench.v[20] & 0xFFFF) == {expected}, hex(low)
