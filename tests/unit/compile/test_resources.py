"""Occupancy, limits and layouts from stats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.compile.image_set import resources, spills, violations
from aotforge.targets.amd.backend import AMD, check_code_object, register_waves
from aotforge.targets.backend import CodeObjectStats, check_no_paths, expected_arguments
from tests.support.families import FAKE_TOOLCHAIN, TINY, architectures, plan_of
from vgpu.code_object import CodeObjectError

GFX908 = architectures().amd["gfx908"]


def stats(**given: int) -> CodeObjectStats:
    zeros = dict.fromkeys(CodeObjectStats.__dataclass_fields__, 0)
    return CodeObjectStats(
        **{**zeros, "warp_size": 64, "num_warps": 4, "registers": 4, "scalar_registers": 16, **given}
    )


@pytest.mark.parametrize(
    ("given", "waves"),
    [
        # thresholds of LLVM's occupancy for gfx908: VGPRs in fours out of 256, SGPRs in sixteens out of 800,
        # sixteen of them the trap handler's
        ({"registers": 24}, 10),
        ({"registers": 25}, 9),
        ({"registers": 64}, 4),
        ({"registers": 65}, 3),
        ({"registers": 128}, 2),
        ({"registers": 129}, 1),
        ({"registers": 256}, 1),
        ({"registers": 8, "accumulation_registers": 128}, 2),
        ({"registers": 128, "accumulation_registers": 128}, 2),
        ({"scalar_registers": 64}, 10),
        ({"scalar_registers": 65}, 8),
        ({"scalar_registers": 80}, 8),
        ({"scalar_registers": 81}, 7),
        ({"scalar_registers": 96}, 7),
        ({"scalar_registers": 100}, 6),
    ],
)
def test_register_files_bound_waves(given: dict[str, int], waves: int) -> None:
    assert register_waves(stats(**given), GFX908) == waves


@pytest.mark.parametrize(
    ("given", "waves"),
    [
        ({}, 10),
        ({"dynamic_shared_bytes": 65536}, 1),
        ({"dynamic_shared_bytes": 32768}, 2),
        ({"dynamic_shared_bytes": 32769}, 1),
        ({"static_shared_bytes": 16384, "dynamic_shared_bytes": 16384}, 2),
        ({"dynamic_shared_bytes": 65537}, 0),
        ({"num_warps": 8, "dynamic_shared_bytes": 65536}, 2),
        ({"num_warps": 8, "registers": 48}, 4),  # five waves fit, but a workgroup has eight
        ({"num_warps": 1, "dynamic_shared_bytes": 65536}, 1),
        ({"num_warps": 2, "registers": 24}, 8),  # sixteen workgroups of two waves
        ({"num_warps": 1, "registers": 24}, 10),
    ],
)
def test_occupancy_counts_complete_workgroups(given: dict[str, int], waves: int) -> None:
    assert AMD.occupancy(stats(**given), GFX908) == waves


# LLVM's getNumWavesPerEUWithNumVGPRs for wave32: 1536 registers in 24s (Feature1536VGPRs), or 1024 in 16s
_WAVE32 = {
    "gfx1100": {24: 16, 96: 16, 97: 12, 120: 12, 121: 10, 168: 9, 192: 8, 193: 7, 240: 6, 241: 5, 256: 5},
    "gfx1102": {16: 16, 64: 16, 65: 12, 80: 12, 96: 10, 112: 9, 128: 8, 129: 7, 192: 5, 193: 4, 256: 4},
}
_LIKE_1100 = ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")
_LIKE_1102 = ("gfx1102", "gfx1103", "gfx1150", "gfx1152", "gfx1153")


@pytest.mark.parametrize("arch", [*_LIKE_1100, *_LIKE_1102])
def test_rdna_registers_bound_waves(arch: str) -> None:
    architecture = architectures().amd[arch]
    expected = _WAVE32["gfx1100" if arch in _LIKE_1100 else "gfx1102"]
    found = {
        registers: register_waves(
            stats(warp_size=32, registers=registers, scalar_registers=106), architecture
        )
        for registers in expected
    }
    assert found == expected


@pytest.mark.parametrize(
    ("given", "waves"),
    [
        ({"num_warps": 8, "registers": 96}, 16),
        ({"num_warps": 8, "registers": 256}, 4),  # 20 waves on a workgroup processor's four SIMDs: two groups
        ({"num_warps": 16, "registers": 256}, 4),  # one group
        ({"num_warps": 4, "registers": 256}, 5),
        ({"num_warps": 8, "dynamic_shared_bytes": 65536}, 4),  # two groups in 128 KiB
        ({"num_warps": 4, "dynamic_shared_bytes": 65536}, 2),
        ({"num_warps": 4, "dynamic_shared_bytes": 16384 + 1}, 7),  # 17 KiB each: seven groups
        ({"num_warps": 1, "registers": 96}, 16),
        ({"num_warps": 2, "registers": 96}, 16),  # 32 groups
    ],
)
def test_occupancy_of_rdna_counts_the_workgroup_processor(given: dict[str, int], waves: int) -> None:
    assert AMD.occupancy(stats(warp_size=32, **given), architectures().amd["gfx1100"]) == waves


@given(
    st.integers(1, 256),
    st.integers(0, 256),
    st.integers(16, 102),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(0, 65536),
)
def test_occupancy_stays_in_bounds_and_falls_with_use(
    registers: int, accumulation_registers: int, scalar_registers: int, warps: int, lds: int
) -> None:
    def waves(more: int) -> int:
        return AMD.occupancy(
            stats(
                registers=min(256, registers + more),
                accumulation_registers=accumulation_registers,
                scalar_registers=scalar_registers,
                num_warps=warps,
                dynamic_shared_bytes=lds,
            ),
            GFX908,
        )

    assert 0 <= waves(0) <= GFX908.max_waves_per_simd
    assert waves(8) <= waves(0)


def test_spills_to_memory_break_limits_and_those_to_lanes_are_only_reported() -> None:
    job = plan_of(TINY, compiler=FAKE_TOOLCHAIN).jobs[0]
    lanes = resources(stats(spilled_scalar_registers=3), GFX908)
    memory = resources(stats(spilled_registers=2, scratch_bytes=12), GFX908)
    wide = resources(stats(dynamic_shared_bytes=65537), GFX908)
    assert violations(job, lanes) == ()
    assert spills(lanes) == "spills 0 registers and 3 scalar registers, to lanes of registers"
    assert violations(job, memory) == (
        "spills 2 registers and 0 scalar registers, 12 bytes of scratch per lane",
    )
    assert violations(job, wide) == ("65537 bytes of shared memory, gfx908 has 65536 per workgroup",)
    assert spills(wide) == ""


def _kernel(**changes: object) -> dict[str, object]:
    arguments = [(0, 8, "global_buffer"), (8, 8, "global_buffer"), (16, 4, "by_value"), (20, 4, "by_value")]
    arguments += [(24, 8, "global_buffer"), (32, 8, "global_buffer")]
    args = [{".offset": o, ".size": s, ".value_kind": k} for o, s, k in arguments]
    return {".args": args, ".wavefront_size": 64, ".max_flat_workgroup_size": 256, **changes}


_NOTES: dict[str, object] = {"num_warps": 4, "shared": 0, "global_scratch_size": 0, "profile_scratch_size": 0}
_TYPES = ("ptr", "ptr", "i32", "i32")
_EXTRA = {".offset": 40, ".size": 4, ".value_kind": "hidden_block_count_x"}


def test_a_code_object_must_fit_its_job() -> None:
    job = plan_of(TINY, compiler=FAKE_TOOLCHAIN).jobs[0]
    good = _kernel()
    args = good[".args"]
    assert isinstance(args, list)
    assert [(a.offset, a.size) for a in expected_arguments(_TYPES)] == [
        (a[".offset"], a[".size"]) for a in args
    ]
    check_code_object(job.target, _TYPES, good, _NOTES)
    for kind in ("hidden_block_count_x", "hidden_hostcall_buffer"):
        check_code_object(
            job.target, _TYPES, _kernel(**{".args": [*args, {**_EXTRA, ".value_kind": kind}]}), _NOTES
        )
    for kernel, notes, reason in [
        (_kernel(**{".args": args[:-1]}), _NOTES, "kernarg 5 is missing"),
        (
            _kernel(**{".args": [*args, {**_EXTRA, ".value_kind": "hidden_heap_v1"}]}),
            _NOTES,
            "hidden_heap",
        ),
        (_kernel(**{".args": [*args, {**_EXTRA, ".value_kind": "by_value"}]}), _NOTES, "kernarg 6"),
        (_kernel(**{".args": [{**args[0], ".size": 4}, *args[1:]]}), _NOTES, "kernarg 0 is 4 bytes"),
        (_kernel(**{".wavefront_size": 32}), _NOTES, "wavefront of 32"),
        (_kernel(**{".max_flat_workgroup_size": 512}), _NOTES, "256 are launched"),
        (_kernel(**{".uses_dynamic_stack": True}), _NOTES, "dynamic stack"),
        (good, {**_NOTES, "global_scratch_size": 64}, "global_scratch_size 64"),
        (good, {**_NOTES, "profile_scratch_size": 64}, "profile_scratch_size 64"),
    ]:
        with pytest.raises(CodeObjectError, match=reason):
            check_code_object(job.target, _TYPES, kernel, notes)


def test_host_paths_are_found() -> None:
    check_no_paths(b"abc", ("/home/someone", "/"))
    with pytest.raises(CodeObjectError, match="/home/someone"):
        check_no_paths(b"x/home/someone/k.py", ("/home/someone",))
