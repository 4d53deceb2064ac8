"""Measured traffic: LDS bank conflicts against hand-computed ones and a second model, bytes and FLOPs of real
kernels, comparisons."""

from __future__ import annotations

import ctypes
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.devtools.cost.candidates import CostRequest
from aotforge.devtools.cost.cost_report import CostReport
from aotforge.devtools.cost.run_cost import Cost, cost
from aotforge.devtools.cost.timeline import PathRecorder
from aotforge.devtools.cost.work import Work, add_up
from aotforge.errors import AotforgeError, UnknownNameError, UnsupportedError
from tests.integration.vgpu.emulator.handwritten import kernel
from tests.support.families import PROJECT
from tests.support.triton_kernels import CompiledKernel, compile_text
from vgpu.cache import default_cache
from vgpu.emulator.interpreter_library import load_library
from vgpu.emulator.measure import Banks, Meter
from vgpu.emulator.program import Emulator, LaunchRequest
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
LOAD, STORE, ATOMIC = 0, 1, 2
ALL = (1 << 64) - 1


def cycles(
    addresses: list[int],
    size: int = 4,
    kind: int = LOAD,
    *,
    active: int = ALL,
    banks: int = 32,
    swizzled: bool = False,
) -> tuple[int, int]:
    """Cycles of an access by 64 lanes, and without conflicts."""
    library = load_library(64, None, "measure", ())
    library.lds_cycles.restype = ctypes.c_uint64
    phases = ctypes.c_uint64()
    found = library.lds_cycles(
        banks,
        int(swizzled),
        kind,
        size,
        (ctypes.c_uint64 * 64)(*addresses),
        ctypes.c_uint64(active),
        ctypes.byref(phases),
    )
    return int(found), phases.value


def strided(step: int) -> list[int]:
    return [step * lane for lane in range(64)]


@pytest.mark.parametrize(
    ("addresses", "size", "kind", "expected"),
    [
        (strided(4), 4, LOAD, (2, 2)),  # neighbouring words: no conflict
        (strided(8), 4, LOAD, (4, 2)),  # every other bank, twice
        (strided(128), 4, LOAD, (64, 2)),  # 32 words apart: all in one bank, 32 ways
        (strided(128 + 4), 4, LOAD, (2, 2)),  # a word of padding: none again
        ([64] * 64, 4, LOAD, (2, 2)),  # all lanes the same word: broadcast
        ([64] * 64, 4, ATOMIC, (64, 2)),  # but atomics one after another
        (strided(2), 2, LOAD, (2, 2)),  # two lanes to a word
        (strided(8), 8, LOAD, (4, 4)),
        (strided(16), 16, STORE, (8, 8)),
        (strided(16), 12, STORE, (8, 8)),
        (strided(256), 16, STORE, (64, 8)),  # eight lanes a phase, all on the same four banks
    ],
)
def test_bank_conflicts_by_hand(
    addresses: list[int], size: int, kind: int, expected: tuple[int, int]
) -> None:
    assert cycles(addresses, size, kind) == expected


def test_cdna_reads_of_16_bytes_go_in_another_order() -> None:
    """Lanes 0 to 3 with 20 to 23, and so on: rows of 64 bytes that eight neighbouring lanes would conflict in
    pairs."""
    groups = [(0, 20), (4, 16), (8, 28), (12, 24)]
    addresses = [0] * 64
    for phase, (first, second) in enumerate(groups):
        for i in range(4):
            for half in (0, 32):
                addresses[first + i + half] = 4096 * phase + 16 * i
                addresses[second + i + half] = 4096 * phase + 64 + 16 * i
    assert cycles(addresses, 16, LOAD, swizzled=True) == (8, 8)
    assert cycles(addresses, 16, LOAD) == (16, 8)
    assert cycles(addresses, 16, STORE, swizzled=True) == (16, 8)


@given(
    addresses=st.lists(st.integers(0, 255), min_size=64, max_size=64),
    size=st.sampled_from([4, 8, 16]),
    kind=st.sampled_from([LOAD, STORE, ATOMIC]),
    active=st.integers(0, ALL),
    banks=st.sampled_from([32, 64]),
)
def test_bank_conflicts_against_a_second_model(
    addresses: list[int], size: int, kind: int, active: int, banks: int
) -> None:
    lanes_at_once = banks * 4 // size
    total = phases = 0
    for first in range(0, 64, lanes_at_once):
        lanes = [lane for lane in range(first, first + lanes_at_once) if active >> lane & 1]
        words: dict[int, list[int]] = defaultdict(list)
        for lane in lanes:
            for word in range(size // 4):
                number = addresses[lane] * size // 4 + word
                words[number % banks].append(number)
        ways = [len(found) if kind == ATOMIC else len(set(found)) for found in words.values()]
        total += max(ways, default=0)
        phases += bool(lanes)
    assert cycles([a * size for a in addresses], size, kind, active=active, banks=banks) == (total, phases)


@pytest.mark.parametrize(
    ("shift", "instruction", "expected"),
    [
        (2, "ds_read_b32 v2, v1", (2, 2)),
        (7, "ds_read_b32 v2, v1", (64, 2)),
        (3, "ds_read_b64 v[2:3], v1", (4, 4)),
        (7, "ds_write_b32 v1, v0", (64, 2)),
        (2, "ds_read2_b32 v[2:3], v1 offset1:1", (4, 4)),
        (4, "ds_read_b128 v[4:7], v1", (8, 8)),
        (7, "ds_add_u32 v1, v0", (64, 2)),
    ],
)
def test_conflicts_of_executed_instructions(shift: int, instruction: str, expected: tuple[int, int]) -> None:
    body = f"v_lshlrev_b32_e32 v1, {shift}, v0\n{instruction}\ns_waitcnt lgkmcnt(0)"
    program, meter = kernel(body, threads=64, lds=8192), Meter(Banks())
    program.launch(LaunchRequest(grid=(3, 1, 1), arguments=[0, 0], memory=Memory({}), meter=meter))
    assert meter.result is not None
    (line,) = [one for one in meter.result.lines if one.line.name.startswith("ds_")]
    assert (line.lds_cycles, line.lds_phases) == (3 * expected[0], 3 * expected[1])
    assert (line.count, line.lanes) == (3, 192)


# ---- kernels ----

ADD = """
@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i, mask=i < n)
    tl.store(out + i, a + b, mask=i < n)
"""
COLUMN = """
@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * n))
"""
DOT = """
@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at)))
"""


def aligned(count: int, dtype: type) -> npt.NDArray[Any]:
    raw: npt.NDArray[Any] = np.zeros(count + 64, dtype=dtype)
    skew = -raw.ctypes.data % 64 // raw.itemsize
    return raw[skew : skew + count]


def measured(
    made: CompiledKernel, arch: str, buffers: list[npt.NDArray[Any]], n: int, grid: int = 1, **options: Any
) -> Work:
    program = Emulator(arch).load(made.binary, made.asm)
    meter = Meter(Banks())
    memory = Memory({f"b{i}": b for i, b in enumerate(buffers)})
    arguments = [*(b.ctypes.data for b in buffers), n]
    done = program.launch(
        LaunchRequest(
            grid=(grid, 1, 1), arguments=arguments, memory=memory, lds_bytes=made.lds, meter=meter, **options
        )
    )
    plain = program.launch(
        LaunchRequest(grid=(grid, 1, 1), arguments=arguments, memory=memory, lds_bytes=made.lds)
    )
    assert done.counts == plain.counts
    assert meter.result is not None
    waves = program.threads // program.target.lanes
    return add_up(meter.result, workgroups=grid, waves=waves, wavefront=program.target.lanes)


@pytest.mark.parametrize(("arch", "kind"), [("gfx908", "*fp32"), ("gfx908", "*fp16"), ("gfx1201", "*fp16")])
@pytest.mark.parametrize("masked", [True, False])
def test_an_addition_moves_three_tensors(tmp_path: Path, arch: str, kind: str, masked: bool) -> None:
    types = {**dict.fromkeys(("x", "y", "out"), kind), "n": "i32"}
    text = ADD if masked else ADD.replace(", mask=i < n", "")
    made = compile_text(tmp_path, text, types, constants={"BLOCK": 512}, arch=arch)
    n, dtype = (5000 if masked else 5120), (np.float32 if kind == "*fp32" else np.float16)
    work = measured(made, arch, [aligned(n, dtype) for _ in range(3)], n, grid=10, jobs=2)
    size = np.dtype(dtype).itemsize
    loads, stores = work.traffic["global loads"], work.traffic["global stores"]
    assert (loads.bytes, stores.bytes) == (2 * n * size, n * size)
    segments = -(-n * size // 64)
    assert work.stored == 64 * segments
    assert work.loaded - 64 * 2 * segments in {64, 128}  # the kernel's arguments
    if masked:  # element by element, lanes not next to each other
        assert stores.segments > segments
    else:
        assert (loads.segments, stores.segments) == (2 * segments, segments)  # each once: coalesced
    assert not work.flops and not work.traffic["LDS loads"].bytes


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_matrix_flops_of_a_product(tmp_path: Path, arch: str) -> None:
    types = {"x": "*fp16", "y": "*fp16", "out": "*fp32", "n": "i32"}
    made = compile_text(tmp_path, DOT, types, constants={"BLOCK": 64}, arch=arch)
    buffers = [aligned(4096, np.float16), aligned(4096, np.float16), aligned(4096, np.float32)]
    work = measured(made, arch, buffers, 0)
    assert work.flops == 2 * 64**3
    assert 0 < work.matrix_share < 1


@pytest.mark.parametrize("arch", ["gfx908", "gfx942", "gfx1201"])
def test_recorded_paths_have_every_executed_instruction(arch: str) -> None:
    """A loop whose number of iterations is the workgroup's, and a part that one wave of each executes."""
    group = "ttmp9" if arch == "gfx1201" else "s2"
    body = f"""s_add_u32 s4, {group}, 2
    v_readfirstlane_b32 s5, v0
    .LAGAIN:
    v_mov_b32_e32 v1, 0
    s_sub_u32 s4, s4, 1
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 .LAGAIN
    s_cmp_lg_u32 s5, 0
    s_cbranch_scc1 .LBEHIND
    v_mov_b32_e32 v2, 0
    .LBEHIND:"""
    program, meter = kernel(body, arch, threads=128), Meter(Banks())
    recorder = PathRecorder(program.lines, program.listing.labels, program.listing.lines)
    program.launch(
        LaunchRequest(grid=(3, 1, 1), arguments=[0, 0], memory=Memory({}), meter=meter, hooks=recorder.hooks)
    )
    found, counts = recorder.paths(), Counter[int]()
    for waves, times in found.groups:
        for first in (first for path in waves for first in path):
            counts.update(dict.fromkeys(found.block(first), times))
    assert meter.result is not None and len(found.groups) == 3
    expected = [one.count for one in meter.result.lines]
    assert [counts[index] for index in range(len(expected))] == expected
    assert max(expected) == (2 + 3 + 4) * 128 // program.target.lanes


# ---- the project's kernels ----


def request(*images: str, **fields: object) -> CostRequest:
    base = {"root": PROJECT, "cache": default_cache(), "arch": "gfx908", "keys": {}, "shape": {}}
    return CostRequest(images=images, **{**base, **fields})  # type: ignore[arg-type]


SMALL = {"seqlen_q": "128", "seqlen_k": "256", "heads_q": "1", "heads_k": "1"}


@pytest.fixture(scope="module")
def compared() -> tuple[Cost, ...]:
    settings = (
        {"BLOCK_M": "64"},
        {"BLOCK_M": "128", "num_stages": "2"},
        {"BLOCK_M": "128", "num_stages": "1"},
    )
    keys = {"dtype": "fp16", "width": "64"}
    return cost(request("attn_fwd", settings=settings, keys=keys, shape=SMALL, top=5))


def test_two_settings_of_the_forward_side_by_side(compared: tuple[Cost, ...]) -> None:
    small, large, unpipelined = compared
    assert (small.grid, large.grid) == ((2, 1, 1), (1, 1, 1))
    assert large.work.flops == 4 * 128 * 256 * 64  # two products
    assert small.work.flops >= large.work.flops  # a small block may multiply more than it needs
    for one in compared:
        assert one.work.loaded + one.work.stored >= 2 * (2 * 128 * 64 + 2 * 256 * 64)
        assert one.estimate.workgroup >= max(one.estimate.pipes.values())
        assert 0 < one.estimate.utilization <= 1
    # K and V once per block of queries
    ratio = small.work.traffic["global loads"].bytes / large.work.traffic["global loads"].bytes
    assert 1.3 < ratio <= 2
    assert len({one.digest for one in compared}) == 3
    assert unpipelined.resources.shared_bytes <= large.resources.shared_bytes


def test_the_busiest_instructions_are_named(compared: tuple[Cost, ...]) -> None:
    for one in compared:
        assert len(one.hot) == 5
        assert [hot.cycles for hot in one.hot] == sorted((hot.cycles for hot in one.hot), reverse=True)
        assert one.hot[0].cycles <= one.work.workgroups * one.estimate.workgroup
    # with two stages Triton lays K out in LDS without swizzling, with one stage it swizzles
    _, pipelined, unpipelined = compared
    assert any(hot.text.startswith("ds_read2_b64") and hot.conflicts == 16 for hot in pipelined.hot)
    assert pipelined.work.traffic["LDS loads"].cycles > 4 * unpipelined.work.traffic["LDS loads"].cycles
    assert "(16 bank cycles for 1)" in "\n".join(CostReport(compared).lines())


def test_an_image_by_label_and_by_digest(compared: tuple[Cost, ...]) -> None:
    (found,) = cost(request("add", keys={"dtype": "bf16"}, shape={"n": "4096"}))
    with pytest.raises(UnknownNameError, match="unknown kernel atn_fwd") as caught:
        cost(request("atn_fwd"))
    assert "flash.attn_fwd" in caught.value.hint and ":" not in caught.value.hint  # kernels, not labels
    from tests.support.families import plan_project

    job = next(
        j for j in plan_project(PROJECT, archs=["gfx908"]).jobs
        if j.family == "add" and dict(j.signature)["x"] == "*bf16" and j.hints
    )  # fmt: skip
    by_label, by_key = cost(request(job.label, job.key[:10], shape={"n": "4096"}))
    assert by_label.digest == by_key.digest == found.digest and by_label.work == found.work
    assert found.work.traffic["global loads"].bytes == 2 * 4096 * 2


@pytest.mark.parametrize(
    ("images", "fields", "kind", "message"),
    [
        (("add",), {"arch": "gfx1101"}, UnsupportedError, "no rates"),
        (("add",), {"settings": ({"BLOK": "1"},)}, UnknownNameError, "no setting BLOK"),
        (("add",), {"shape": {"m": "1"}}, UnknownNameError, "a shape has no m"),
        (("add",), {"shape": {"n": "x"}}, UnsupportedError, "must be integers"),
        (("add",), {"shape": {"n": "0"}}, UnsupportedError, "no image of add serves the call"),
        (("add",), {"shape": {"n": "-5"}}, UnsupportedError, "no call with n=-5"),
        (
            ("attn_fwd",),
            {"shape": {"heads_q": "3", "heads_k": "2"}},
            UnsupportedError,
            "heads_q=3, heads_k=2",
        ),
        (("attn_fwd",), {"shape": {"heads_k": "0"}}, UnsupportedError, "heads_k=0"),
        (("add",), {"case": "nothing"}, UnknownNameError, "unknown case"),
        (("add",), {"keys": {"dtype": "fp17"}}, UnknownNameError, "does not offer"),
    ],
)
def test_mistakes_are_errors(
    images: tuple[str, ...], fields: dict[str, object], kind: type[AotforgeError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        cost(request(*images, **fields))


def test_the_emulators_command_shows_costs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from aotforge.devtools.cost.cost_report import LaunchCost
    from vgpu.cli import main

    types = {"x": "*fp16", "y": "*fp16", "out": "*fp32", "n": "i32"}
    made = compile_text(tmp_path, DOT, types, constants={"BLOCK": 64})
    image, text = made.write(tmp_path)
    np.save(tmp_path / "x.npy", np.ones(4096, np.float16))
    command = ["run", str(image), "--asm", str(text), "--lds", str(made.lds), "--cost"]
    command += ["--arg", f"in:{tmp_path / 'x.npy'}", "--arg", f"in:{tmp_path / 'x.npy'}"]
    assert (
        main([*command, "--arg", f"out:fp32:4096:{tmp_path / 'o.npy'}", "--arg", "0"], costs=LaunchCost) == 0
    )
    out = capsys.readouterr().out
    assert f"matrix FLOPs {2 * 64**3:>,}".split()[-1] in out
    assert "decided by" in out
    assert (np.load(tmp_path / "o.npy") == 64).all()
