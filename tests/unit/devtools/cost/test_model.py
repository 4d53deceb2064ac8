"""The cost model without kernels: rates against published peaks, monotonicity, hand-computed estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.devtools.cost.candidates import changed
from aotforge.devtools.cost.model import Estimate, estimate
from aotforge.devtools.cost.rates import (
    matrix_cycles,
    matrix_shape,
    model_of,
    models,
    vector_cycles,
    vector_kind,
)
from aotforge.devtools.cost.timeline import Timeline
from aotforge.devtools.cost.work import KINDS, Traffic, Work, add_up, traffic_kind
from aotforge.errors import UnknownNameError, UnsupportedError
from aotforge.rules import Setting
from vgpu.emulator.decoded import Line
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.measure import MeasuredLine, Measurement

NAMES = (
    "v_add_f32", "v_exp_f32", "v_cvt_f16_f32", "v_mul_lo_u32", "v_add_f64", "s_add_u32", "s_branch",
    "s_load_dword",
    "ds_read_b32", "ds_bpermute_b32", "global_load_dword", "global_store_dword",
)  # fmt: skip
PUBLISHED: dict[str, dict[str, int]] = {
    "gfx906": {},
    "gfx908": {"f32": 256, "f16": 1024, "bf16": 512, "i8": 1024},
    "gfx90a": {"f32": 256, "f16": 1024, "bf16": 1024, "i8": 1024, "f64": 256},
    "gfx942": {
        **{"f32": 256, "f16": 2048, "bf16": 2048, "xf32": 1024, "f64": 256},
        **{"i8": 4096, "fp8": 4096, "bf8": 4096},
    },
    # the peak of fp8 there is that of the f8f6f4 instructions
    "gfx950": {"f32": 256, "f16": 4096, "bf16": 4096, "i8": 8192, "f8f6f4": 8192, "f64": 128},
    "gfx1030": {},
    "gfx1100": {"f16": 512, "bf16": 512, "i8": 512},
    "gfx1201": {"f16": 1024, "bf16": 1024, "i8": 2048, "fp8": 2048, "bf8": 2048},
}
"""FLOPs per clock and compute unit that AMD publishes, by input type (docs/virtual-gpu-tools.md has the
sources)."""


def work(**fields: object) -> Work:
    return replace(Work(workgroups=1, waves=4, wavefront=64), **fields)  # type: ignore[arg-type]


def estimated(made: Work, arch: str = "gfx908", *, wave: float = 0.0, workgroup: float = 0.0) -> Estimate:
    return estimate(made, model_of(arch), Timeline(wave=wave, resident=2, workgroup=workgroup))


# ---- rates ----


@pytest.mark.parametrize("arch", models())
def test_the_best_matrix_instruction_reaches_the_published_peak(arch: str) -> None:
    """Cycles are from LLVM and AMD's calculator, peaks from AMD's tables: two sources that have to agree."""
    model = model_of(arch)
    best: dict[str, float] = {}
    prefix = "v_mfma" if arch.startswith("gfx9") else "v_wmma"
    for name, entry in INSTRUCTIONS.items():
        if not name.startswith(prefix) or (entry.archs and not arch.startswith(tuple(entry.archs))):
            continue
        if not _exists(name, arch):
            continue
        shape = matrix_shape(name)
        assert shape is not None
        per_cu = shape.flops / matrix_cycles(shape, model) * 4 / model.cus_per_unit
        best[shape.kind] = max(best.get(shape.kind, 0), per_cu)
    if "f8f6f4" in best:
        del best["fp8"], best["bf8"]
    assert best == PUBLISHED[arch]


def _exists(name: str, arch: str) -> bool:
    """Which spellings an arch has: gfx908 no _1k forms, gfx942 no forms without underscore, only gfx950 the
    large k."""
    large = (
        any(part in name for part in ("x16_f16", "x16_bf16", "x32_f16", "x32_bf16"))
        and "16x16x16" not in name
    )
    if arch == "gfx908":
        return not large and not any(part in name for part in ("_1k", "_bf16", "_f16", "_i8"))
    if arch == "gfx90a":
        return not large
    return not large or arch == "gfx950"


def test_kinds_of_vector_instructions() -> None:
    expected = {
        "transcendental": ("v_exp_f32", "v_rcp_iflag_f32"),
        "convert": ("v_cvt_f32_f16",),
        "multiply": ("v_mul_lo_u32",),
        "wide": ("v_lshlrev_b64",),
        "double": ("v_fma_f64", "v_cvt_f64_f32"),
        "ordinary": ("v_cvt_pkrtz_f16_f32", "v_mul_u32_u24", "v_fma_f32"),
    }
    assert all(vector_kind(name) == kind for kind, names in expected.items() for name in names)
    assert [vector_cycles("v_exp_f32", model_of(arch)) for arch in ("gfx908", "gfx1100")] == [16, 4]


def test_every_memory_instruction_has_a_kind_of_traffic() -> None:
    for name, entry in INSTRUCTIONS.items():
        moves = any(f in entry.code for f in ("_access", "buffer_atomic", "scalar_load", "read_transposed"))
        assert not moves or traffic_kind(name) in KINDS, name
    assert not any(map(traffic_kind, ("ds_bpermute_b32", "s_dcache_wb", "v_add_f32")))


def test_an_arch_without_rates_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no rates for gfx1031"):
        model_of("gfx1031")


# ---- hand-computed ----


@pytest.mark.parametrize(
    ("name", "count", "pipe", "cycles", "kind", "fields"),
    [
        ("v_add_f32", 1000, "vector", 4 * 1000 / 4, None, {}),
        ("v_exp_f32", 1000, "vector", 16 * 1000 / 4, None, {}),
        # 64 bytes a clock to each pair of SIMDs, or the banks, which take longer
        ("ds_read_b128", 10, "LDS", 10 * 16 / 2, "LDS loads", {"bytes": 10240, "cycles": 80}),
        ("ds_read_b32", 10, "LDS", 640, "LDS loads", {"bytes": 2560, "cycles": 640}),
        # addresses and data share the port: 8 cycles for 256 bytes
        ("ds_write_b32", 1, "LDS", 8 / 2, "LDS stores", {"bytes": 256, "cycles": 2}),
        ("global_load_dword", 1, "vector cache", 4, "global loads", {"bytes": 256, "segments": 4}),
        ("global_load_dword", 1, "vector cache", 64, "global loads", {"bytes": 256, "segments": 64}),
    ],
)
def test_one_pipe_at_a_time(
    name: str, count: int, pipe: str, cycles: float, kind: str | None, fields: dict[str, int]
) -> None:
    traffic = {"traffic": _traffic(kind, instructions=count, **fields)} if kind else {}
    assert estimated(work(names={name: count}, **traffic)).pipes[pipe] == cycles


def test_products_alone_reach_the_peak() -> None:
    matrix = estimated(work(names={"v_mfma_f32_16x16x16f16": 1000}, flops=1000 * 8192))
    assert matrix.pipes["matrix"] == 32 * 1000 / 4
    assert matrix.bound == "matrix" and matrix.utilization == pytest.approx(1.0)


def _traffic(kind: str, **fields: int) -> Mapping[str, Traffic]:
    return {**dict.fromkeys(KINDS, Traffic()), kind: Traffic(**fields)}


def test_the_longest_pipe_decides_unless_waves_take_much_longer() -> None:
    one = work(names={"v_add_f32": 1000})
    for workgroup, expected, bound in (
        (500.0, 1000.0, "vector"),
        (1300.0, 1300.0, "vector"),
        (1400.0, 1400.0, "latency"),
    ):
        found = estimated(one, workgroup=workgroup, wave=2000.0)
        assert (found.workgroup, found.bound) == (expected, bound)
        assert (found.alone, found.launch, found.wave) == (2000.0, 2000.0, 2000.0)


# ---- properties ----

counts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**6))
archs = st.sampled_from(sorted(models()))


def _sample(names: Mapping[str, int]) -> Work:
    return work(
        workgroups=3, names=names,
        traffic=_traffic("LDS loads", instructions=names.get("ds_read_b32", 0),
        bytes=256 * names.get("ds_read_b32", 0),
                         cycles=2 * names.get("ds_read_b32", 0)),
    )  # fmt: skip


@given(names=counts, arch=archs, extra=st.sampled_from(NAMES), times=st.integers(0, 10**6))
def test_more_work_never_takes_less(names: dict[str, int], arch: str, extra: str, times: int) -> None:
    less = estimated(_sample(names), arch, wave=times, workgroup=times)
    more = estimated(_sample({**names, extra: names.get(extra, 0) + 1000}), arch, wave=times, workgroup=times)
    longer = estimated(_sample(names), arch, wave=times + 10, workgroup=times + 10)
    for other in (more, longer):
        assert other.workgroup >= less.workgroup
        assert other.alone >= less.alone
        assert other.launch >= less.launch
    assert less.workgroup >= max(less.pipes.values())
    assert 0 <= less.utilization <= 1 + 1e-9


# ---- adding up ----


def _line(text: str, address: int, count: int, **fields: int) -> MeasuredLine:
    name = text.split(maxsplit=1)[0]
    columns = {"lanes": 64 * count, "bytes": 0, "segments": 0, "lds_cycles": 0, "lds_phases": 0} | fields
    line = Line(number=1, text=text, name=name, encoding="", operands=(), address=address)
    return MeasuredLine(line=line, count=count, **columns)


def test_pairs_count_once_and_traffic_goes_where_it_belongs() -> None:
    measured = Measurement(
        lines=(
            _line("v_add_f32 v0, v1, v2", 0, 5),
            _line("v_mov_b32 v3, v4", 0, 5),  # the same address: the pair's second half
            _line("v_mfma_f32_16x16x16f16 a[0:3], v[0:1], v[2:3], a[0:3]", 8, 2),
            _line("ds_read_b32 v0, v1", 16, 3, bytes=768, lds_cycles=12, lds_phases=6),
            _line("global_store_dword v[0:1], v2, off", 24, 1, bytes=256, segments=5),
            _line("s_waitcnt vmcnt(0)", 32, 4),
            _line("v_exp_f32 v0, v0", 36, 0),
        ),
        loaded=64,
        stored=320,
    )
    made = add_up(measured, workgroups=1, waves=1, wavefront=64)
    assert made.names == {
        "v_add_f32": 5,
        "s_waitcnt": 4,
        "ds_read_b32": 3,
        "v_mfma_f32_16x16x16f16": 2,
        "global_store_dword": 1,
    }
    assert made.vector_lanes == 5 * 64
    assert made.flops == 2 * 2 * 16**3
    assert made.traffic["LDS loads"] == Traffic(instructions=3, bytes=768, cycles=12, phases=6, lanes=192)
    assert made.traffic["global stores"].segments == 5
    assert made.matrix_share == pytest.approx(2 / 15)


def test_settings_are_changed_by_name() -> None:
    base = Setting(constants={"BLOCK_M": 64, "BLOCK_N": 32}, num_warps=4)
    made = changed(base, {"BLOCK_M": "128", "num_warps": "8"}, "k")
    assert (made.constants, made.num_warps) == ({"BLOCK_M": 128, "BLOCK_N": 32}, 8)
    with pytest.raises(UnknownNameError, match="no setting BLOKC_M"):
        changed(base, {"BLOKC_M": "1"}, "k")
    with pytest.raises(UnsupportedError, match="not an integer"):
        changed(base, {"BLOCK_M": "many"}, "k")
