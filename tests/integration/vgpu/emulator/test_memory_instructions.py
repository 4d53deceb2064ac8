"""Every load, store and atomic of the table: what it moves, by its name, and that it never leaves its
memory."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.integration.vgpu.emulator.bench import FAULT, RUNNING, Bench
from tests.integration.vgpu.emulator.models.numbers import Array
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.isa.memory import TABLE

SIZES = {
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "b32": 4, "b64": 8, "b96": 12, "b128": 16,
        "ushort": 2, "u16": 2,
    "ubyte": 1, "u8": 1, "sshort": 2, "i16": 2, "sbyte": 1, "i8": 1, "short": 2, "b16": 2, "byte": 1, "b8": 1,
    "short_d16": 2, "d16_b16": 2, "short_d16_hi": 2, "d16_hi_b16": 2, "u16_d16": 2, "u16_d16_hi": 2,
        "b16_d16_hi": 2,
    "ubyte_d16": 1, "d16_u8": 1, "ubyte_d16_hi": 1, "d16_hi_u8": 1, "u8_d16": 1, "u8_d16_hi": 1,
    "byte_d16_hi": 1, "d16_hi_b8": 1, "b8_d16_hi": 1,
    "sbyte_d16": 1, "d16_i8": 1, "i8_d16": 1, "sbyte_d16_hi": 1, "d16_hi_i8": 1, "i8_d16_hi": 1,
}  # fmt: skip
PLAIN = re.compile(r"(global|flat|scratch|buffer|ds)_(load|store|read|write)_(\w+)$")
TWICE = re.compile(r"ds_(read|write|load|store)(2|2st64|_2addr|_2addr_stride64)_b(32|64)$")
SCALAR = re.compile(r"s_(buffer_)?load_(dwordx?\d*|b\d+)$")
_plain = [n for n in TABLE if (m := PLAIN.match(n)) and m[3] in SIZES]
_twice = [n for n in TABLE if TWICE.match(n)]
_scalar = [n for n in TABLE if SCALAR.match(n)]
_small = [f"s_load_{kind}" for kind in ("u8", "i8", "u16", "i16")]
_to_lds = {
    f"global_load_lds_dword{end}": size for end, size in (("", 4), ("x3", 12), ("x4", 16))
}  # test_loads_to_lds.py
_atomic = [n for n in TABLE if n not in {*_plain, *_twice, *_scalar, *_small, *_to_lds}]
ON = 0xF0F0_0000_FFFF_00F5
Operation = Callable[[int, int], int]


@pytest.fixture
def bench() -> Bench:
    made = Bench("gfx908", lds=16384, scratch=64)
    made.exec = ON
    return made


def lanes_on(bench: Bench) -> list[int]:
    return [lane for lane in range(bench.lanes) if bench.exec >> lane & 1]


def test_every_memory_instruction_is_tested() -> None:
    assert {*_plain, *_twice, *_scalar, *_small, *_to_lds} | set(ATOMICS) == set(TABLE)


def _registers(file: str, index: int, size: int) -> str:
    words = max(1, size // 4)
    return f"{file}{index}" if words == 1 else f"{file}[{index}:{index + words - 1}]"


@pytest.mark.parametrize("order", ["some lanes", "scattered", "neighbours", "one broken run"])
@pytest.mark.parametrize("name", _plain)
def test_plain_accesses_move_the_bytes_of_their_name(bench: Bench, name: str, order: str) -> None:
    """Of some lanes or all; all lanes with neighbouring elements are moved together, unless one of them is
    elsewhere."""
    match = PLAIN.match(name)
    assert match
    space, verb, kind = match.groups()
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    size, offset = SIZES[kind], 20
    memory = rng.integers(0, 256, 64 * 32 + 64, dtype=np.uint8)
    places = rng.permutation(64) * 32
    if order != "some lanes":
        bench.exec = bench.full
    if order in {"neighbours", "one broken run"}:
        places = np.arange(64) * size
    if order == "one broken run":
        places[41] = 1800
    bench.v[:256] = rng.integers(0, 2**32, (256, 64), dtype=np.uint32)
    views = _place_memory(bench, space, memory, places)
    before, old = bench.v.copy(), [view.copy() for view in views]
    address = {"global": "v[0:1]", "flat": "v[0:1]", "scratch": "v0", "buffer": "v0", "ds": "v0"}[space]
    data = _registers("v", 20, size)
    operands = f"{data}, {address}" if verb in {"load", "read"} or space == "buffer" else f"{address}, {data}"
    tail = {"global": ", off", "flat": "", "scratch": ", off", "buffer": ", s[8:11], s4 offen", "ds": ""}[
        space
    ]
    if space == "scratch":
        bench.v[0] = before[0] = 4
    bench.run(f"{name} {operands}{tail} offset:{offset}")
    assert bench.wave.state == RUNNING
    for lane in range(64):
        at = old[lane][offset if space != "scratch" else offset + 4 :][:size]
        on = bench.exec >> lane & 1
        if verb in {"load", "read"}:
            words = [int(w) for w in bench.v[20:24, lane]]
            expected = (
                _loaded(kind, at, [int(w) for w in before[20:24, lane]])
                if on
                else [int(w) for w in before[20:24, lane]]
            )
            assert words == expected, lane
        else:
            first = 2 if kind.endswith("hi") or "hi_" in kind else 0
            stored = before[20:24, lane].astype("<u4").tobytes()[first : first + size] if on else at.tobytes()
            now = views[lane][offset if space != "scratch" else offset + 4 :][:size]
            assert now.tobytes() == stored, lane


def _place_memory(bench: Bench, space: str, memory: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
    """Addresses into v0 (and v1), and each lane's memory from its address on."""
    if space == "scratch":
        bench.scratch[:] = (
            memory[: 64 * 64].reshape(-1)[: 64 * 64].reshape(64, 64)
            if memory.size >= 4096
            else np.resize(memory, (64, 64))
        )
        return [bench.scratch[lane] for lane in range(64)]
    if space == "ds":
        bench.lds[: memory.size] = memory
        bench.v[0] = places
        return [bench.lds[place:] for place in places]
    bench.give(memory)
    bench._kept = memory  # type: ignore[attr-defined]
    address = memory.ctypes.data
    if space == "buffer":
        bench.s[4] = 0
        bench.s[8:12] = [address & 0xFFFFFFFF, address >> 32, memory.size, 0x27000]
        bench.v[0] = places
    else:
        full = places.astype(np.uint64) + np.uint64(address)
        bench.v[0], bench.v[1] = full.astype(np.uint32), (full >> np.uint64(32)).astype(np.uint32)
    return [memory[place:] for place in places]


def _loaded(kind: str, at: np.ndarray, old: list[int]) -> list[int]:
    value = int.from_bytes(at.tobytes(), "little")
    if kind in {"sshort", "i16", "sbyte", "i8"}:
        value = int.from_bytes(at.tobytes(), "little", signed=True) % 2**32
    if "d16" in kind and ("sbyte" in kind or "i8" in kind):
        value = int.from_bytes(at.tobytes(), "little", signed=True) % 2**16
    if "d16_hi" in kind:
        value = value << 16 | old[0] & 0xFFFF
    elif "d16" in kind:
        value |= old[0] & 0xFFFF0000
    words = max(1, at.size // 4)
    return [value >> 32 * i & 0xFFFFFFFF for i in range(words)] + old[words:]


@pytest.mark.parametrize("name", _small)
def test_scalar_loads_of_less_than_a_word(name: str) -> None:
    bench = Bench("gfx1201")
    memory = np.array([1, 2, 0x83, 0x94, 5, 0xF6, 7, 8], dtype=np.uint8)
    bench.give(memory)
    kind = name.removeprefix("s_load_")
    size = int(kind[1:]) // 8
    for offset in range(0, 8 - size, size):
        bench.set_pair(8, memory.ctypes.data)
        bench.s[20] = 0x12345678
        bench.run(f"{name} s20, s[8:9], {offset:#x}")
        data = memory[offset : offset + size].tobytes()
        assert int(bench.s[20]) == int.from_bytes(data, "little", signed=kind[0] == "i") % 2**32
    bench.set_pair(8, memory.ctypes.data + 8)
    bench.run(f"{name} s20, s[8:9], 0x0")
    assert bench.wave.state == FAULT


@pytest.mark.parametrize("name", _twice)
def test_two_elements_at_two_offsets(bench: Bench, name: str) -> None:
    match = TWICE.match(name)
    assert match
    size = int(match[3]) // 8
    unit = size * (64 if "64" in match[2] else 1)
    rng = np.random.default_rng(1)
    bench.lds[:] = rng.integers(0, 256, bench.lds.size, dtype=np.uint8)
    bench.v[:64] = rng.integers(0, 2**32, (64, 64), dtype=np.uint32)
    bench.v[0] = rng.permutation(64) * 64
    before, old = bench.v.copy(), bench.lds.copy()
    words = size // 4
    if match[1] in {"read", "load"}:
        bench.run(f"{name} {_registers('v', 20, 2 * size)}, v0 offset0:3 offset1:1")
        for lane in lanes_on(bench):
            expected = b"".join(old[int(before[0, lane]) + unit * o :][:size].tobytes() for o in (3, 1))
            assert bench.v[20 : 20 + 2 * words, lane].tobytes() == expected
    else:
        bench.v[0] = before[0] = np.arange(64) * 16
        bench.run(f"{name} v0, {_registers('v', 20, size)}, {_registers('v', 30, size)} offset0:0 offset1:1")
        after = old.copy()
        for lane in lanes_on(bench):
            for register, o in ((20, 0), (30, 1)):
                at = int(before[0, lane]) + unit * o
                after[at : at + size] = np.frombuffer(
                    before[register : register + words, lane].tobytes(), dtype=np.uint8
                )
        assert np.array_equal(bench.lds, after)


@pytest.mark.parametrize("name", _scalar)
def test_scalar_loads(bench: Bench, name: str) -> None:
    match = SCALAR.match(name)
    assert match
    words = int(re.sub(r"\D", "", match[2].replace("dword", "")) or 1)
    words = words // 32 if match[2].startswith("b") else words
    memory = np.random.default_rng(2).integers(0, 2**32, 64, dtype=np.uint32)
    bench.give(memory)
    address = memory.ctypes.data
    bench.s[8:12] = [address & 0xFFFFFFFF, address >> 32, memory.nbytes, 0x27000]
    bench.s[4] = 8
    base = "s[8:11]" if match[1] else "s[8:9]"
    target = f"s{20}" if words == 1 else f"s[20:{19 + words}]"
    for offset, first in (("0x14", 5), ("s4", 2)):
        bench.run(f"{name} {target}, {base}, {offset}")
        assert bench.wave.state == RUNNING
        assert np.array_equal(bench.s[20 : 20 + words], memory[first : first + words])
    bench.run(f"{name} {target}, {base}, {hex(memory.nbytes)}")
    assert bench.wave.state == FAULT


def _float_add(kind: type[np.floating[Any]], bits: type[np.unsignedinteger[Any]]) -> Operation:
    return lambda a, b: int((bits(a).view(kind) + bits(b).view(kind)).view(bits))


def _half_add(a: int, b: int) -> int:
    x, y = (np.array([n], dtype=np.uint32).view(np.float16) for n in (a, b))
    return int((x + y).view(np.uint32)[0])


def _bf16_add(a: int, b: int) -> int:
    from tests.integration.vgpu.emulator.models.floats import bf16

    x, y = (np.array([(n & 0xFFFF) << 16, n & 0xFFFF0000], dtype=np.uint32).view(np.float32) for n in (a, b))
    low, high = bf16((x + y).astype(np.float32)).tolist()
    return int(low) | int(high) << 16


def _order(words: int) -> dict[str, Operation]:
    """Minima and maxima under both generations' names."""
    bits, old = 32 * words, "_x2" if words == 2 else ""

    def signed(x: int) -> int:
        return x - (1 << bits) if x >> (bits - 1) else x

    names = {"u": (f"u{{}}{old}", f"{{}}_u{bits}"), "s": (f"s{{}}{old}", f"{{}}_i{bits}")}
    return {
        name.format(choose.__name__): functools.partial(_chosen, choose, signed if kind == "s" else int)
        for kind, both in names.items()
        for name in both
        for choose in (min, max)
    }


def _chosen(choose: Callable[..., int], key: Callable[[int], int], a: int, b: int) -> int:
    return choose(a, b, key=key)


_OPERATIONS: dict[str, Operation] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "swap": lambda a, b: b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "rsub": lambda a, b: b - a,
    "wrxchg": lambda a, b: b,
    "storexchg": lambda a, b: b,
    "inc": lambda a, b: 0 if a >= b else a + 1,
    "dec": lambda a, b: b if a == 0 or a > b else a - 1,
    **dict.fromkeys(("csub", "csub_u32", "sub_clamp_u32"), lambda a, b: max(a - b, 0)),
    "cond_sub_u32": lambda a, b: a - b if a >= b else a,
    # numbers without a sign are in the order of their bits
    **{f"{n}_f{bits}": f for n, f in (("min", min), ("max", max)) for bits in (32, 64)},
    **{f"{n}_num_f{bits}": f for n, f in (("min", min), ("max", max)) for bits in (32, 64)},
    **{f"f{n}{x2}": f for n, f in (("min", min), ("max", max)) for x2 in ("", "_x2")},
    **_order(1),
    **_order(2),
    "add_f32": _float_add(np.float32, np.uint32),
    "add_f64": _float_add(np.float64, np.uint64),
    "pk_add_f16": _half_add,
    "pk_add_bf16": _bf16_add,
}


def _operation(name: str) -> tuple[Operation | None, int] | None:
    """What an atomic does by its name, None for compare-and-swap; and its words."""
    stem = (
        name.removeprefix("global_atomic_")
        .removeprefix("buffer_atomic_")
        .removeprefix("flat_atomic_")
        .removeprefix("ds_")
        .replace("_rtn", "")
    )
    words = 2 if stem.endswith(("_x2", "64")) else 1
    if stem.startswith(("cmpswap", "cmpst")):
        return None, words
    for candidate in (
        stem,
        stem.removesuffix("_x2").removesuffix("_u64").removesuffix("_b64"),
        re.sub(r"_[ub]32$", "", stem),
    ):
        if candidate in _OPERATIONS:
            return _OPERATIONS[candidate], words
    return None


ATOMICS = {name: found for name in _atomic if (found := _operation(name))}


def _atomic_values(name: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Memory, and four data registers: any integers, floats that are added without rounding."""
    name = re.sub(r"_f(min|max)_x2", r"_\1_f64", re.sub(r"_f(min|max)$", r"_\1_f32", name))
    if "f" not in name.rpartition("_")[2]:
        return rng.integers(0, 2**32, 256, dtype=np.uint32), rng.integers(0, 2**32, (4, 64), dtype=np.uint32)
    memory = rng.integers(0, 50, 256, dtype=np.uint32)
    data = rng.integers(0, 50, (4, 64), dtype=np.uint32)
    if "f64" in name:
        rows = data[:2].astype(np.float64).view(np.uint32).reshape(2, 64, 2)
        return memory[:128].astype(np.float64).view(np.uint32), rows.transpose(0, 2, 1).reshape(4, 64)
    if "f32" in name:
        memory, data = memory.astype(np.float32).view(np.uint32), data.astype(np.float32).view(np.uint32)
    if "pk_add" in name:
        memory, data = (x * np.uint32(0x00400040) + np.uint32(0x3C003C00) for x in (memory, data))
    return memory, data


def _value(rows: Array, words: int) -> int:
    return sum(int(rows[w]) << 32 * w for w in range(words))


def _after_atomics(
    name: str, lanes: list[int], memory: Array, data: Array, places: Array
) -> tuple[Array, dict[int, int]]:
    """Memory after lane by lane, and the old value that each lane saw."""
    function, words = ATOMICS[name]
    after, old = memory.copy(), {}
    for lane in lanes:
        at = int(places[lane]) * words
        now, operand = _value(after[at:], words), _value(data[:, lane], words)
        if function is None:
            matches = now == _value(data[words:, lane], words)
            result = operand if matches else now
        else:
            result = function(now, operand) % (1 << 32 * words)
        old[lane] = now
        for w in range(words):
            after[at + w] = result >> 32 * w & 0xFFFFFFFF
    return after, old


def _run_atomic(bench: Bench, name: str, returns: bool, memory: Array, places: Array) -> int:
    """Execute on addresses of `places`; the register that gets the old value."""
    function, words = ATOMICS[name]
    source = _registers("v", 4, 4 * words * (2 if function is None else 1))
    destination = f"{_registers('v', 20, 4 * words)}, " if returns else ""
    flag, address = " glc" if returns else "", memory.ctypes.data
    bench.v[0] = places * 4 * words
    if name.startswith("ds_cmpst"):
        pair = [_registers("v", 4, 4 * words), _registers("v", 4 + words, 4 * words)]
        order = pair if "store" in name else pair[::-1]
        bench.run(f"{name} {destination}v0, {', '.join(order)}")
    elif name.startswith("ds_"):
        bench.run(f"{name} {destination}v0, {source}")
    elif name.startswith("buffer_"):
        bench.s[8:12] = [address & 0xFFFFFFFF, address >> 32, memory.nbytes, 0x27000]
        bench.run(f"{name} {source}, v0, s[8:11], 0 offen{flag}")
        return 4
    else:
        full = places.astype(np.uint64) * np.uint64(4 * words) + np.uint64(address)
        bench.v[0], bench.v[1] = full.astype(np.uint32), (full >> np.uint64(32)).astype(np.uint32)
        off = "" if name.startswith("flat_") else ", off"
        bench.run(f"{name} {destination}v[0:1], {source}{off}{flag}")
    return 20


@pytest.mark.parametrize("name", ATOMICS)
@pytest.mark.parametrize("returns", [False, True])
def test_atomics_combine_and_return_the_old_value(bench: Bench, name: str, returns: bool) -> None:
    function, words = ATOMICS[name]
    lds = name.startswith("ds_")
    if lds and returns != ("_rtn_" in name):
        return  # the names of these include whether they return
    rng = np.random.default_rng(4)
    memory, data = _atomic_values(name, rng)
    places = rng.permutation(64) // 2  # pairs of lanes collide
    target = bench.lds[:1024].view(np.uint32) if lds else memory
    target[:] = memory
    bench.give(memory)
    if function is None:  # half of the lanes expect the right value
        slots = np.stack([memory[places * words + w] for w in range(words)])
        data[words : 2 * words] = np.where(rng.integers(0, 2, 64).astype(bool), slots, slots + np.uint32(1))
    bench.v[4:8] = data
    expected, old = _after_atomics(name, lanes_on(bench), memory, data, places)
    result = _run_atomic(bench, name, returns, memory, places)
    assert bench.wave.state == RUNNING
    assert np.array_equal(target, expected)
    if returns:
        assert {lane: _value(bench.v[result:, lane], words) for lane in old} == old
    else:
        assert np.array_equal(bench.v[4:8], data)


def test_buffer_atomics_out_of_range_do_nothing(bench: Bench) -> None:
    memory = np.arange(16, dtype=np.uint32)
    bench.give(memory)
    address = memory.ctypes.data
    bench.s[8:12] = [address & 0xFFFFFFFF, address >> 32, 8, 0x27000]
    bench.exec = 0b111
    bench.v[0, :3], bench.v[4] = [4, 8, 0x80000000], 100
    bench.run("buffer_atomic_add v4, v0, s[8:11], 0 offen glc")
    assert memory.tolist() == [0, 101, *range(2, 16)]
    assert bench.v[4, :4].tolist() == [1, 0, 0, 100]


# ---- out of bounds ----


@pytest.mark.parametrize("shift", [-4, -1, 61, 64, 2**40])
@pytest.mark.parametrize(
    "text", ["global_load_dword v20, v[0:1], off", "global_store_dword v[0:1], v20, off"]
)
def test_global_accesses_stay_inside_their_buffers(bench: Bench, text: str, shift: int) -> None:
    memory = np.zeros(16, dtype=np.uint32)
    bench.give(memory)
    addresses = np.full(64, memory.ctypes.data, dtype=np.uint64)
    addresses[9] = (memory.ctypes.data + shift) % 2**64
    bench.v[0], bench.v[1] = addresses.astype(np.uint32), (addresses >> np.uint64(32)).astype(np.uint32)
    bench.exec = bench.full & ~(1 << 9)
    bench.run(text)
    assert bench.wave.state == RUNNING  # the lane is off
    bench.exec = bench.full
    bench.run(text)
    assert bench.wave.state == FAULT
    assert (bench.fault.lane, bench.fault.code) == (9, 1 if "load" in text else 2)


def test_lanes_may_reach_different_buffers(bench: Bench) -> None:
    """Lanes of one buffer are checked together, others one by one."""
    buffers = np.arange(64, dtype=np.uint32), np.arange(100, 164, dtype=np.uint32)
    bench.give(*buffers)
    addresses = np.array([buffers[lane % 2].ctypes.data + 4 * lane for lane in range(64)], dtype=np.uint64)
    bench.v[0], bench.v[1] = addresses.astype(np.uint32), (addresses >> np.uint64(32)).astype(np.uint32)
    bench.exec = bench.full
    bench.run("global_load_dword v20, v[0:1], off")
    assert bench.wave.state == RUNNING
    assert bench.v[20].tolist() == [lane + 100 * (lane % 2) for lane in range(64)]


def test_a_read_only_buffer_can_be_read_only(bench: Bench) -> None:
    memory = np.zeros(16, dtype=np.uint32)
    memory.flags.writeable = False
    bench.give(memory)
    address = memory.ctypes.data
    bench.v[0], bench.v[1] = address & 0xFFFFFFFF, address >> 32
    bench.run("global_load_dword v20, v[0:1], off")
    assert bench.wave.state == RUNNING
    bench.run("global_store_dword v[0:1], v20, off")
    assert bench.wave.state == FAULT


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("ds_read_b32 v20, v0", 16384),
        ("ds_write_b128 v0, v[20:23]", 16384),
        ("ds_read2_b32 v[20:21], v0 offset1:1", 16384),
        ("ds_add_u32 v0, v20", 16384),
        ("scratch_load_dword v20, v0, off", 64),
        ("scratch_store_dword v0, v20, off", 64),
    ],
)
def test_lds_and_scratch_accesses_stay_inside(bench: Bench, text: str, limit: int) -> None:
    size = 16 if "b128" in text else 8 if "read2" in text else 4
    bench.v[0] = limit - size
    bench.run(text)
    assert bench.wave.state == RUNNING
    bench.v[0, 2] = limit - size + 4
    bench.run(text)
    assert bench.wave.state == FAULT
    assert bench.fault.lane == 2


def test_lds_addresses_have_32_bits(bench: Bench) -> None:
    """A compiler may fold an offset into an instruction whose base is then below zero."""
    bench.v[0], bench.v[20] = np.uint32(2**32 - 16), 77
    bench.run("ds_write_b32 v0, v20 offset:48")
    bench.run("ds_write2_b32 v0, v20, v20 offset0:4 offset1:5")
    bench.run("ds_add_u32 v0, v20 offset:48")
    words = bench.lds.view(np.uint32)
    assert words[:2].tolist() == [77, 77]
    assert words[8] == 77 * (1 + len(lanes_on(bench)))
    assert bench.wave.state == RUNNING


def test_buffer_resources_bound_their_loads_and_stores(bench: Bench) -> None:
    memory = np.arange(16, dtype=np.uint32)
    bench.give(memory)
    address = memory.ctypes.data
    bench.s[8:12] = [address & 0xFFFFFFFF, address >> 32, 40, 0x27000]
    bench.exec = 0b111
    bench.v[0, :3] = [32, 36, 0x80000000]
    bench.v[20:24] = 77
    bench.run("buffer_load_dwordx2 v[20:21], v0, s[8:11], 0 offen")
    assert bench.v[20:22, :3].tolist() == [[8, 9, 0], [9, 0, 0]]
    bench.run("buffer_store_dword v22, v0, s[8:11], 0 offen offset:4")
    assert memory[9] == 77
    assert memory[10] == 10
    bench.s[9] |= 4 << 16  # a stride
    bench.run("buffer_load_dword v20, v0, s[8:11], 0 offen")
    assert bench.wave.state == FAULT


def test_the_private_segments_resource_reaches_each_lanes_own_scratch(bench: Bench) -> None:
    base = 0x5C0000000000 + 64 * 64
    bench.wave.scratch_base = base
    bench.s[8:12] = [base & 0xFFFFFFFF, base >> 32, 0xFFFFFFFF, 1 << 23]
    bench.v[20] = np.arange(64)
    bench.exec = bench.full
    bench.run("buffer_store_dword v20, off, s[8:11], 0 offset:12")
    assert np.array_equal(bench.scratch.view(np.uint32)[:, 3], np.arange(64))
    bench.run("buffer_load_dword v21, off, s[8:11], 0 offset:12")
    assert np.array_equal(bench.v[21], np.arange(64))
    bench.run("buffer_load_dword v21, off, s[8:11], 0 offset:64")
    assert bench.wave.state == FAULT


def test_the_table_is_the_instruction_table() -> None:
    assert set(TABLE) <= set(INSTRUCTIONS)
