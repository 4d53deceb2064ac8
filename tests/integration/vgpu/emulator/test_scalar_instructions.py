"""Every scalar instruction of the table against its model."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from aotforge.errors import DecodeError
from tests.integration.vgpu.emulator.bench import AT_BARRIER, ENDED, Bench
from tests.integration.vgpu.emulator.models.numbers import draw, same_bits
from tests.integration.vgpu.emulator.models.scalar import MODELS, SAVE_EXEC
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.entry import WORDS, Entry

NAMES = [name for name, entry in INSTRUCTIONS.items() if entry.form == "scalar"]
SAVING = {name for name in NAMES if re.search("_(save|wr)exec_", name)}
IMMEDIATE = ("s_movk_", "s_cmovk_", "s_addk_", "s_mulk_", "s_cmpk_")
UNITS = {"v_s_exp_f32": 1, "v_s_log_f32": 1, "v_s_rsq_f32": 1}


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench("gfx908")


@cache
def _bench_with(archs: tuple[str, ...]) -> Bench:
    """Of an arch that has the instruction."""
    return Bench("gfx908" if not archs else "gfx1150" if "gfx115" in archs else "gfx1201")


def test_every_scalar_instruction_has_a_model_and_every_model_an_instruction() -> None:
    assert set(NAMES) - SAVING == set(MODELS)
    saving = {f"s_{name}_saveexec_{bits}" for name in SAVE_EXEC for bits in ("b32", "b64")}
    writing = {n.replace("save", "wr") for n in saving if re.search("_(andn[12]|and_not[01])_", n)}
    assert saving | writing == SAVING


def _register(index: int, words: int) -> str:
    return f"s{index}" if words == 1 else f"s[{index}:{index + words - 1}]"


def _set(bench: Bench, index: int, value: Any) -> None:
    raw = np.atleast_1d(value)
    if raw.dtype.itemsize == 2:  # garbage in the high half must not matter
        bench.s[index] = bench.s[index] & np.uint32(0xFFFF0000) | raw.view(np.uint16)[0]
        return
    bench.s[index : index + raw.nbytes // 4] = raw.view(np.uint32)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SAVING])
def test_instruction_equals_its_model(name: str) -> None:
    entry = INSTRUCTIONS[name]
    bench = _bench_with(entry.archs)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    flags = set()
    for number in range(64):
        bench.randomise(rng)
        flags.add(_check(bench, entry, rng, related=number % 4 == 0))
    assert flags in ({None}, {0, 1})


def _related(rng: np.random.Generator, first: Any, other: Any) -> tuple[Any, Any]:
    """Operands at the edges of an instruction: zero or all ones, and equal to each other or complements."""
    bits = f"u{first.itemsize}"
    raw = first.view(bits)
    raw = rng.choice(np.array([0, ~raw.dtype.type(0), raw], dtype=bits))
    if other is None or other.itemsize != first.itemsize:
        return raw.view(first.dtype), other
    again = raw if rng.integers(0, 2) else ~raw
    return raw.view(first.dtype), again.view(other.dtype)


def _operands(
    entry: Entry, rng: np.random.Generator, related: bool
) -> tuple[list[Any], int | None, Any | None]:
    """Sources of the right types, the bits of an immediate one, and the old destination where it is read."""
    output = entry.type_of("D")
    sources = [draw(rng, slot.type, 1)[0] for slot in entry.slots if slot.name != "D"]
    old = draw(rng, output, 1)[0] if entry.reads_d and output else None
    bits = None
    if entry.name.startswith(IMMEDIATE):
        bits = int(rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF])) if related else int(rng.integers(0, 65536))
        extended = bits if "_u32" in entry.name or bits < 32768 else bits - 65536
        kind = sources[-1].dtype
        sources[-1] = np.array([extended]).astype(kind)[0]
        if related and len(sources) == 2:
            sources[0] = sources[1].view(sources[0].dtype)
        elif related and old is not None:  # sums at both ends of the range
            old = old.dtype.type(rng.choice([0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]))
    elif related and len(sources) > 1:
        sources[0], sources[1] = _related(rng, sources[0], sources[1])
    elif related and sources:
        sources[0], old = _related(rng, sources[0], old)
    return sources, bits, old


def _check(bench: Bench, entry: Entry, rng: np.random.Generator, *, related: bool) -> int | None:
    """Execute the instruction once; the SCC that the model expects."""
    output = entry.type_of("D")
    values, immediate, old = _operands(entry, rng, related)
    pieces = [_register(20, WORDS[output])] if output else []
    named = [slot for slot in entry.slots if slot.name != "D"]
    for slot, value in zip(named, values, strict=True):
        if immediate is not None and slot is named[-1]:
            pieces.append(hex(immediate))
            continue
        number = int(slot.name[1])
        _set(bench, 2 * number, value)
        pieces.append(_register(2 * number, WORDS[slot.type]))
    if old is not None:
        _set(bench, 20, old)
        values.append(old)
    sources = [value if value.dtype.kind == "f" else value.item() for value in values]
    scc = int(bench.wave.scc)
    before = bench.s.copy()
    bench.run(f"{entry.name} {', '.join(pieces)}")
    result, flag = MODELS[entry.name](*sources, scc)
    assert bench.wave.scc == (scc if flag is None else flag), sources
    words = WORDS[output] if output else 0
    untouched = [i for i in range(len(before)) if not 20 <= i < 20 + words]
    assert np.array_equal(bench.s[untouched], before[untouched])
    if output:
        _same(entry, bench.s[20 : 20 + words].copy(), result, output, sources)
    return flag


def _same(entry: Entry, found: Any, result: Any, output: str, sources: list[Any]) -> None:
    if entry.name == "s_cvt_pk_rtz_f16_f32":  # payloads of NaN are not compared
        assert same_bits(found.view(np.float16), np.array([result]).view(np.float16)).all(), sources
        return
    if output not in {"f32", "f16"}:
        assert sum(int(word) << 32 * i for i, word in enumerate(found)) == int(result) % (
            1 << 32 * len(found)
        ), sources
        return
    dtype = np.float32 if output == "f32" else np.float16
    assert output == "f32" or found[0] <= 0xFFFF, "the high half is not zero"
    got, expected = found.view(dtype)[:1], np.array([result], dtype=dtype)
    if UNITS.get(entry.name) and np.isfinite(expected[0]) and expected[0] != 0:
        assert abs(got[0] - expected[0]) <= np.spacing(np.abs(expected[0])), sources
    else:
        assert same_bits(got, expected).all(), (sources, got, expected)


@pytest.mark.parametrize("name", sorted(SAVING))
def test_exec_is_saved_and_changed(name: str) -> None:
    lanes = 64 if name.endswith("b64") else 32
    bench = Bench("gfx908" if lanes == 64 else "gfx1100")
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    function = SAVE_EXEC[re.sub("^s_|_(save|wr)exec.*", "", name)]
    flags = set()
    edges = [(a, b) for a in (0, bench.full) for b in (0, bench.full)]
    for number in range(50):
        mask, before = (int(rng.integers(0, bench.full, dtype=np.uint64, endpoint=True)) for _ in range(2))
        if number % 4 == 0:
            mask = int(rng.choice(np.array([before, bench.full ^ before], dtype=np.uint64)))
        elif number % 4 == 1:
            mask, before = edges[number // 4 % 4]
        bench.exec = before
        bench.set_pair(4, mask)
        bench.set_pair(20, 0)
        words = lanes // 32
        bench.run(f"{name} {_register(20, words)}, {_register(4, words)}")
        assert bench.exec == function(mask, before) & bench.full
        assert bench.pair(20) == (before if "save" in name else bench.exec)
        assert bench.wave.scc == int(bench.exec != 0)
        flags.add(int(bench.wave.scc))
    assert flags == {0, 1}


@pytest.mark.parametrize(
    "line", ["s_mov_b32 exec_hi, -1", "s_mov_b64 exec, s[4:5]", "s_or_b64 exec, exec, s[4:5]"]
)
def test_the_high_half_of_exec_enables_no_lane_of_a_short_wave(line: str) -> None:
    bench = Bench("gfx1100")
    bench.exec = 0
    bench.set_pair(4, 0xFFFFFFFF << 32)
    bench.run(line)
    target = np.full(4, 7, dtype=np.uint64)
    bench.give(target)
    bench.v[12:18] = 0x41414141
    bench.v[20], bench.v[21] = target.ctypes.data & 0xFFFFFFFF, target.ctypes.data >> 32
    before = bench.v.copy()
    bench.run("global_atomic_or_b64 v[12:13], v[20:21], v[14:15], off glc")
    bench.run("v_mov_b32_e32 v14, 0")
    assert (target == 7).all() and np.array_equal(bench.v, before)
    bench.run("s_cbranch_execnz .target")
    assert bench.wave.pc != 7
    with pytest.raises(DecodeError, match="EXEC has 32 bits"):
        bench.run("s_and_saveexec_b64 s[4:5], s[4:5]")


@pytest.mark.parametrize(
    ("arch", "line"),
    [
        ("gfx1030", "s_load_dwordx4 null, s[4:5], 0x0"),
        ("gfx1100", "s_load_b64 null, s[4:5], 0x0"),
        ("gfx1100", "s_load_b512 null, s[4:5], 0x0"),
        ("gfx1201", "s_load_b32 null, s[4:5], 0x0"),
        ("gfx1201", "s_load_b32 s0, null, 0x0"),
        ("gfx1201", "s_buffer_load_b32 s0, null, 0x0"),
        ("gfx1201", "buffer_load_b32 v0, v1, null, s0 offen"),
        ("gfx1030", "scratch_load_dword v5, off, null offset:8"),  # its encoding is that of v0, off
    ],
)
def test_the_register_that_keeps_nothing_is_refused_in_memory_instructions(arch: str, line: str) -> None:
    """M0 and EXEC follow it in the interpreter's file of registers."""
    with pytest.raises(DecodeError, match="operand null is not supported"):
        Bench(arch).run(line)


@pytest.mark.parametrize("line", ["s_mov_b64 flat_scratch, s[4:5]", "s_mov_b32 s4, xnack_mask_lo"])
def test_registers_that_have_other_numbers_on_some_archs_are_refused(bench: Bench, line: str) -> None:
    with pytest.raises(DecodeError, match="unknown operand"):
        bench.run(line)


def test_exec_can_be_source_and_destination_at_once(bench: Bench) -> None:
    bench.exec = 0b1100
    bench.set_pair(4, 0b1010)
    bench.run("s_and_saveexec_b64 s[4:5], s[4:5]")
    assert (bench.exec, bench.pair(4)) == (0b1000, 0b1100)
    bench.run("s_or_b64 exec, exec, s[4:5]")
    assert bench.exec == 0b1100


JUMPS: dict[str, Callable[[int, int, int], object]] = {
    "s_branch": lambda scc, vcc, exec_: True,
    "s_cbranch_scc0": lambda scc, vcc, exec_: not scc,
    "s_cbranch_scc1": lambda scc, vcc, exec_: scc,
    "s_cbranch_vccz": lambda scc, vcc, exec_: not vcc,
    "s_cbranch_vccnz": lambda scc, vcc, exec_: vcc,
    "s_cbranch_execz": lambda scc, vcc, exec_: not exec_,
    "s_cbranch_execnz": lambda scc, vcc, exec_: exec_,
}


@pytest.mark.parametrize("name", JUMPS)
@pytest.mark.parametrize("state", range(8))
def test_branches_depend_on_the_state(bench: Bench, name: str, state: int) -> None:
    scc, vcc, exec_ = state & 1, (state >> 1 & 1) << 40, (state >> 2 & 1) << 63
    bench.wave.scc, bench.exec = scc, exec_
    bench.set_pair(106, vcc)
    bench.wave.pc = 3
    bench.run(f"{name} .target")
    assert bench.wave.pc == (7 if JUMPS[name](scc, vcc, exec_) else 3)


def test_program_control() -> None:
    bench = Bench("gfx1201")
    for text, state in (
        ("s_barrier", AT_BARRIER),
        ("s_barrier_signal -1", 0),
        ("s_barrier_wait -1", AT_BARRIER),
        ("s_endpgm", ENDED),
        ("s_nop 3", 0),
    ):
        bench.run(text)
        assert bench.wave.state == state
    bench.wave.code_base = 0x1234_5678_0000
    bench.run("s_getpc_b64 s[6:7]")
    assert bench.pair(6) == 0x1234_5678_0000
