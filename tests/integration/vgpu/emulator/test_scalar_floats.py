"""Floats in scalar registers, which gfx115x and gfx12 compute: which arch has what, modifiers, constants, and
kernels that use them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from aotforge.errors import DecodeError
from tests.integration.vgpu.emulator.bench import Bench
from tests.integration.vgpu.emulator.handwritten import assembly_text, kernel
from tests.support.disassembly import disagreements, disassemble, find_objdump
from tests.support.instruction_names import known_instructions
from tests.support.triton_kernels import compile_kernel, launch
from vgpu.emulator.assembly import assemble, link
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.entry import Entry
from vgpu.emulator.targets import emulated_targets

F16, F32 = np.float16, np.float32
SCALAR_FLOAT = re.compile(r"(s|v_s)_\w*f(16|32)\w*")
ALIASES = {"s_min_f32", "s_min_f16", "s_max_f32", "s_max_f16"}
"""Names that the assembler also takes on gfx12, for minima and maxima that compilers call `_num` there."""


@pytest.mark.compiler
@pytest.mark.parametrize("arch", emulated_targets())
def test_each_arch_has_the_instructions_that_its_assembler_has(arch: str) -> None:
    known = {name for name in known_instructions(arch) if SCALAR_FLOAT.fullmatch(name)}
    table = {
        name
        for name, entry in INSTRUCTIONS.items()
        if SCALAR_FLOAT.fullmatch(name) and arch.startswith(entry.archs)
    }
    assert table == known - (ALIASES if arch.startswith("gfx12") else set())
    assert len(table) == (72 if arch.startswith("gfx12") else 58 if arch.startswith("gfx115") else 0)


def _text(entry: Entry) -> str:
    operands = [f"s{4 + number}" for number in range(len(entry.slots))]
    if entry.name in {"s_fmaak_f32", "s_fmamk_f32"}:
        operands[3 if "aa" in entry.name else 2] = "0x40490fdb"
    return f"{entry.name} {', '.join(operands)}"


@pytest.mark.compiler
@pytest.mark.skipif(find_objdump() is None, reason="llvm-objdump-22 is not installed")
@pytest.mark.parametrize("arch", ["gfx1150", "gfx1201"])
def test_the_second_decoder_agrees(arch: str) -> None:
    entries = [e for n, e in INSTRUCTIONS.items() if SCALAR_FLOAT.fullmatch(n) and arch.startswith(e.archs)]
    more = ["v_s_exp_f32 s5, -|s1| mul:2", "v_s_rcp_f16 s5, |s1| clamp", "s_add_f16 s4, 1.0, 0x1234"]
    lines = [_text(entry) for entry in entries] + more[0 if arch == "gfx1201" else 2 :]
    program = kernel("\n".join(lines), arch, threads=32, user=8)
    listing = program.listing
    assert [line.name for line in listing.lines[: len(entries)]] == [entry.name for entry in entries]
    text = assembly_text("\n".join(lines), arch, threads=32, user=8)
    sized = text.replace("\ts_endpgm\n", "\ts_endpgm\n\t.size\tkernel, .-kernel\n")
    image = link(assemble(sized, arch))
    assert disagreements(listing, disassemble(image, listing.kernel, arch)) == []


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("v_s_sqrt_f32 s20, s4", 9.0, 3.0),
        ("v_s_sqrt_f32 s20, -s4", 9.0, NAN),
        ("v_s_sqrt_f32 s20, |s4|", -9.0, 3.0),
        ("v_s_rcp_f32 s20, -|s4|", -4.0, -0.25),
        ("v_s_rcp_f32 s20, -s4", 0.0, -INF),
        ("v_s_exp_f32 s20, s4 clamp", 3.0, 1.0),
        ("v_s_log_f32 s20, s4 clamp", 0.25, 0.0),
        ("v_s_sqrt_f32 s20, s4 clamp", -1.0, 0.0),  # NaN becomes zero
        ("v_s_rsq_f32 s20, |s4| clamp", -4.0, 0.5),
        # scales are ignored where denormal numbers are kept, as in every accepted kernel
        ("v_s_exp_f32 s20, s4 mul:2", 3.0, 8.0),
        ("v_s_exp_f32 s20, s4 mul:4", 3.0, 8.0),
        ("v_s_exp_f32 s20, s4 div:2", 3.0, 8.0),
        ("v_s_exp_f32 s20, 2.0", 0.0, 4.0),
        ("v_s_exp_f32 s20, neg(2.0)", 0.0, 0.25),
    ],
)
def test_signs_clamps_and_scales_of_the_vector_unit_on_scalars(
    text: str, source: float, expected: float
) -> None:
    bench = Bench("gfx1201")
    bench.s[4] = F32(source).view(np.uint32)
    bench.run(text)
    np.testing.assert_array_equal(bench.s[20:21].copy().view(F32)[0], F32(expected))
    half = text.replace("f32", "f16")
    bench.s[4] = np.uint32(F16(source).view(np.uint16)) | np.uint32(0xABCD0000)
    bench.run(half)
    assert bench.s[20] <= 0xFFFF
    np.testing.assert_array_equal(bench.s[20:21].astype(np.uint16).view(F16)[0], F16(expected))


@pytest.mark.parametrize(
    ("arch", "text", "problem"),
    [
        ("gfx1201", "s_add_f32 s20, -s4, s5", "cannot have a modifier"),
        ("gfx1201", "s_cvt_f16_f32 s20, |s4|", "cannot have a modifier"),
        ("gfx1201", "v_s_exp_f32 s20, s4 mul:8", "unknown value"),
        ("gfx1201", "v_s_exp_f32 s20, v4", "not valid for S0"),
        ("gfx1201", "s_min_f32 s20, s4, s5", "does not have"),
        ("gfx1150", "s_min_num_f32 s20, s4, s5", "does not have"),
        ("gfx1150", "v_s_exp_f32 s20, s4", "does not have"),
        ("gfx1100", "s_add_f32 s20, s4, s5", "does not have"),
        ("gfx1201", "s_add_f16 s20, 0x3c00, s5", "not as the compiler writes"),
    ],
)
def test_what_no_compiler_writes_is_refused(arch: str, text: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        Bench(arch).run(text)


def test_a_signalling_nan_loses_on_gfx12_and_wins_before() -> None:
    for arch, name, expected in (
        ("gfx1201", "min_num", 0x40000000),
        ("gfx1150", "min", 0x7FE00000),
        ("gfx1201", "minimum", 0x7FE00000),
    ):
        bench = Bench(arch)
        bench.exec = bench.full
        bench.s[4], bench.s[5] = 0x7FA00000, 0x40000000
        bench.v[4], bench.v[5] = 0x7FA00000, 0x40000000
        bench.run(f"s_{name}_f32 s20, s4, s5")
        bench.run(f"v_{name}_f32 v20, v4, v5")
        assert (int(bench.s[20]), set(bench.v[20])) == (expected, {expected}), arch


SCALE = """
@triton.jit
def kernel(x, y, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(y + i, value * factor.to(x.dtype.element_ty), mask=i < n)
"""
SCALARS = """
@triton.jit
def kernel(y, a, b, n):
    h, k = a.to(tl.float16), b.to(tl.float16)
    tl.store(y, tl.floor(a) + tl.ceil(b) * a)
    tl.store(y + 1, tl.maximum(a, b) - tl.minimum(a, 0.5))
    tl.store(y + 2, (h * k + h).to(tl.float32))
    tl.store(y + 3, tl.where(a < b, 1.0, tl.exp2(b)))
    tl.store(y + 4, tl.sqrt(a) + tl.log2(b))
    tl.store(y + 5, tl.where((a != a) | (h > k), n.to(tl.float32) * a, a.to(tl.int32).to(tl.float32)))
    tl.store(y + 6, tl.fma(a, b, a) / b)
    tl.store(y + 7, tl.where(tl.maximum(h, k) == h, tl.minimum(h, k) - k, k).to(tl.float32))
"""


def _bits(values: Any, kind: str) -> Any:
    single = np.asarray(values, dtype=F32)
    if kind == "fp16":
        return single.astype(F16).view(np.uint16)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(single), 0x7FFF, rounded).astype(np.uint16)


def _floats(bits: Any, kind: str) -> Any:
    return bits.view(F16).astype(F32) if kind == "fp16" else (bits.astype(np.uint32) << 16).view(F32)


@pytest.mark.compiler
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1150", "gfx1200", "gfx1201"])
@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_a_float_argument_is_rounded_to_the_type_of_a_tensor(arch: str, kind: str) -> None:
    types = {"x": f"*{kind}", "y": f"*{kind}", "factor": "fp32", "n": "i32"}
    program = compile_kernel(SCALE, arch, types, constants={"BLOCK": 256}).load(arch)
    x = _bits(np.random.default_rng(1).standard_normal(300), kind)
    for factor in (0.5, 0.3, -1e-7, 3e5, 3e38, -0.0, INF, NAN):
        y = np.zeros(300, dtype=np.uint16)
        launch(program, [x, y, factor, 300], grid=(2, 1, 1))
        with np.errstate(all="ignore"):
            scale = _floats(_bits([factor], kind), kind)[0]
            expected = _floats(_bits(_floats(x, kind) * scale, kind), kind)
        np.testing.assert_array_equal(_floats(y, kind), expected, err_msg=f"factor {factor}")


@pytest.mark.compiler
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1150", "gfx1201"])
def test_scalar_expressions_equal_those_of_numpy(arch: str) -> None:
    types = {"y": "*fp32", "a": "fp32", "b": "fp32", "n": "i32"}
    compiled = compile_kernel(SCALARS, arch, types)
    used = set(re.findall(r"\b(?:s|v_s)_\w*f(?:16|32)\w*", compiled.asm))
    assert (len(used) > 12) == (arch != "gfx1100"), used
    program = compiled.load(arch)
    for a, b in ((1.75, 2.5), (300.3, 0.37), (7.0, 7.0), (0.001, 65000.0), (1e-30, 1.0), (INF, 2.0)):
        y = np.zeros(8, dtype=F32)
        launch(program, [y, a, b, 3])
        np.testing.assert_allclose(y, _expected(F32(a), F32(b)), rtol=3e-7, err_msg=f"{a} {b}")


def _expected(a: Any, b: Any) -> list[Any]:
    with np.errstate(all="ignore"):
        h, k, wide = F16(a), F16(b), np.float64
        return [
            np.floor(a) + np.ceil(b) * a,
            np.fmax(a, b) - np.fmin(a, F32(0.5)),
            F32(F16(wide(h) * wide(k) + wide(h))),
            1.0 if a < b else np.exp2(wide(b)),
            np.sqrt(wide(a)) + np.log2(wide(b)),
            3 * a if h > k else F32(np.clip(np.trunc(wide(a)), -(2**31), 2**31 - 1)),
            F32(wide(a) * wide(b) + wide(a)) / b,
            F32(F16(min(h, k) - k) if max(h, k) == h else k),
        ]
