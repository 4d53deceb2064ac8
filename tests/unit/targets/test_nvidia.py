"""NVIDIA as a vendor: cubins are read and held against their jobs, occupancy follows the calculator."""

from __future__ import annotations

import random
from typing import Any

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.errors import UnknownNameError, UnsupportedError
from aotforge.rules import Setting, ValueType
from aotforge.targets.backend import CodeObjectStats, kernarg_layout, setting_options
from aotforge.targets.backends import BACKENDS, backend_of, backend_of_arch
from aotforge.targets.nvidia.backend import NVIDIA, read_cubin
from tests.support.fake_cubin import fake_cubin
from tests.support.families import FAKE_TOOLCHAIN, PROJECT, plan_project
from vgpu.code_object import CodeObjectError

ARCHS = load_architectures(PROJECT / "manifests")
SM90 = ARCHS.find("sm_90").target("sm_90")
TYPES: tuple[ValueType, ...] = ("ptr", "i32", "i64", "f32")
NOTES: dict[str, Any] = {"num_warps": 4, "shared": 1024, "num_ctas": 1, "global_scratch_size": 0}


@pytest.mark.parametrize("old", [False, True])
def test_a_cubin_states_its_kernel(old: bool) -> None:
    data = fake_cubin("k", [*TYPES, "ptr", "ptr"], registers=40, frame=16, static_shared=64, old=old)
    found = read_cubin(data)
    assert (found.symbol, found.capability, found.threads) == ("k", 90, 128)
    assert (found.registers, found.frame_bytes, found.static_shared_bytes) == (40, 16, 64)
    assert found.arguments == kernarg_layout([*TYPES, "ptr", "ptr"])


def test_a_cubin_that_fits_its_job_is_accepted_and_any_other_is_refused() -> None:
    complete = [*TYPES, "ptr", "ptr"]
    NVIDIA.check(fake_cubin("k", complete), SM90, TYPES, NOTES)
    for data, notes, reason in [
        (fake_cubin("k", complete[:-1]), NOTES, "parameter 5 is missing"),
        (fake_cubin("k", ["i32", *complete[1:]]), NOTES, "parameter 0 is 4 bytes"),
        (fake_cubin("k", ["i64", *complete[1:]]), NOTES, "parameter 0 is 8 bytes at 0 .by_value"),
        (fake_cubin("k", complete, capability=80), NOTES, "is for sm_80, the target is sm_90"),
        (fake_cubin("k", complete, threads=256), NOTES, "256 threads, 128 are launched"),
        (fake_cubin("k", complete), NOTES | {"global_scratch_size": 64}, "global_scratch_size 64"),
        (fake_cubin("k", complete), NOTES | {"num_ctas": 2}, "clusters of 2"),
        (fake_cubin("k", complete), NOTES | {"tensordesc_meta": [{}]}, "tensor descriptors"),
        (b"\x7fELF\x02\x01" + bytes(100), NOTES, "not a cubin"),
    ]:
        with pytest.raises(CodeObjectError, match=reason):
            NVIDIA.check(data, SM90, TYPES, notes)


def test_damaged_cubins_are_refused_by_a_named_error() -> None:
    good, drawn = fake_cubin("k", [*TYPES, "ptr", "ptr"]), random.Random(1)
    for _ in range(400):
        data = bytearray(good)
        for _ in range(drawn.randint(1, 4)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        for damaged in (bytes(data), bytes(data[: drawn.randrange(len(data))])):
            try:
                read_cubin(damaged)
            except CodeObjectError:
                continue


def test_kernels_that_print_or_assert_are_known() -> None:
    assert not NVIDIA.makes_host_calls(fake_cubin("k", TYPES))
    for name in ("vprintf", "__assertfail"):
        data = fake_cubin("k", TYPES, names=[name])
        assert [name for name, one in BACKENDS.items() if one.makes_host_calls(data)] == ["nvidia"]


def stats(**given: int) -> CodeObjectStats:
    zeros = dict.fromkeys(CodeObjectStats.__dataclass_fields__, 0)
    return CodeObjectStats(**{**zeros, "warp_size": 32, "num_warps": 4, "registers": 32, **given})


@pytest.mark.parametrize(
    ("arch", "given", "warps"),
    [
        # NVIDIA's occupancy calculator: 65536 registers, given to warps in units of 256
        ("sm_90", {}, 16),
        ("sm_90", {"registers": 33}, 12),
        ("sm_90", {"registers": 64}, 8),
        ("sm_90", {"registers": 128}, 4),
        ("sm_90", {"registers": 255, "num_warps": 8}, 2),
        ("sm_90", {"num_warps": 1}, 8),  # 32 blocks of one warp
        ("sm_90", {"dynamic_shared_bytes": 232448}, 1),
        ("sm_90", {"dynamic_shared_bytes": 115712}, 2),  # with the reserved KiB exactly half
        ("sm_90", {"dynamic_shared_bytes": 115713}, 1),
        ("sm_90", {"dynamic_shared_bytes": 233473}, 0),
        ("sm_89", {}, 12),
        ("sm_80", {"dynamic_shared_bytes": 81920}, 2),
    ],
)
def test_occupancy_in_warps_of_a_scheduler(arch: str, given: dict[str, int], warps: int) -> None:
    assert NVIDIA.occupancy(stats(**given), ARCHS.find(arch)) == warps


def test_an_option_of_another_vendor_is_refused() -> None:
    assert dict(setting_options(NVIDIA, Setting(num_warps=8))) == {"num_stages": 2, "num_warps": 8}
    assert "waves_per_eu" not in NVIDIA.options.names() and "maxnreg" in NVIDIA.options.names()
    for name in ("num_ctas", "ptx_options", "waves_per_eu"):
        assert NVIDIA.options.refusal(name, 1)[0]


def test_every_arch_has_the_backend_of_its_vendor() -> None:
    for name, row in ARCHS.architectures.items():
        assert backend_of_arch(name) is backend_of(row.vendor) and row.pack.startswith(row.vendor)
    with pytest.raises(UnknownNameError):
        backend_of_arch("x86-64")


def test_a_plan_has_one_pack_of_a_capability() -> None:
    plan = plan_project(PROJECT, archs=["sm_90"], profile="smoke", toolchain=lambda _: FAKE_TOOLCHAIN)
    assert plan.pack == "nvidia-sm_90" and {job.target.vendor for job in plan.jobs} == {"nvidia"}
    assert {name for job in plan.jobs for name, _ in job.options} >= {"num_warps", "num_stages"}
    assert not {"kpack", "waves_per_eu"} & {name for job in plan.jobs for name, _ in job.options}
    with pytest.raises(UnsupportedError, match="belong to 2 packs"):
        plan_project(PROJECT, archs=["sm_90", "gfx908"], profile="smoke", toolchain=lambda _: FAKE_TOOLCHAIN)
