"""Selection of kernels by name, and of functionals by profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.base.architectures import load_profiles
from aotforge.errors import ManifestError, RulesError, UnknownNameError
from aotforge.plan.families import load_families
from aotforge.plan.selection import Keep, Only, check_profiles, keep_of
from aotforge.targets.amd.backend import AMD
from tests.support.families import FAKE_TOOLCHAIN, PROJECT, TINY, copy_tiny, plan_of, plan_project

ROWS = [
    ("flash", "fwd", "attn_fwd"),
    ("flash", "pre", "attn_bwd"),
    ("flash", "dq", "attn_bwd"),
    ("add", "add", "add"),
]


@pytest.mark.parametrize(
    ("names", "wanted", "with_operators"),
    [
        ([], {"fwd", "pre", "dq", "add"}, {"fwd", "pre", "dq", "add"}),
        (["add"], {"add"}, {"add"}),
        (["flash"], {"fwd", "pre", "dq"}, {"fwd", "pre", "dq"}),
        (["flash.dq"], {"dq"}, {"pre", "dq"}),
        (["dq", "add.add"], {"dq", "add"}, {"pre", "dq", "add"}),
        (["attn_bwd"], {"pre", "dq"}, {"pre", "dq"}),
        (["flash.attn_fwd"], {"fwd"}, {"fwd"}),
    ],
)
def test_names_of_families_kernels_and_operators(
    names: list[str], wanted: set[str], with_operators: set[str]
) -> None:
    assert {kernel for _, kernel in Only(names).kernels(ROWS)} == wanted
    assert {kernel for _, kernel in Only(names, operators=True).kernels(ROWS)} == with_operators


def test_a_misspelt_name_has_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match=r"--only flahs[\s\S]*perhaps you meant flash"):
        Only(["add", "flahs"]).kernels(ROWS)


def test_a_plan_of_some_kernels_is_not_complete() -> None:
    every = plan_project(PROJECT, archs=["gfx908"], toolchain=lambda pinned: FAKE_TOOLCHAIN)
    some = plan_project(
        PROJECT, archs=["gfx908"], only=Only(["flash.bwd_dq"]), toolchain=lambda pinned: FAKE_TOOLCHAIN
    )
    assert every.complete and not some.complete
    assert (every.profile, some.profile) == ("core", "core-only")
    assert [kernel.name for kernel in some.kernels] == ["bwd_dq"]
    assert {job.key for job in some.jobs} == {job.key for job in every.jobs if job.kernel == "bwd_dq"}
    assert some.settings_digest != every.settings_digest


def test_entries_of_one_family_replace_those_of_all() -> None:
    keep: Keep = {"dtype": ("fp16",), "norm.dtype": ("fp32",), "norm.mode": (1,), "other.mode": (2,)}
    assert keep_of(keep, "norm") == {"dtype": ("fp32",), "mode": (1,)}
    assert keep_of(keep, "flash") == {"dtype": ("fp16",)}


def test_the_default_profile_keeps_every_type_of_a_new_family_and_others_report_what_they_leave_out() -> None:
    plans = {
        profile: plan_project(
            PROJECT, archs=["gfx908"], profile=profile, toolchain=lambda pinned: FAKE_TOOLCHAIN
        )
        for profile in (None, "smoke", "full")
    }
    sums = {profile: [j.label for j in plan.jobs if j.family == "add"] for profile, plan in plans.items()}
    assert any("dtype=fp32" in label for label in sums[None])
    assert sums[None] == sums["full"]
    assert plans["full"].notes() == []
    assert [note for note in plans[None].notes() if "add.add" in note] == []
    assert (
        plans["smoke"].notes()[0]
        == "2 functionals of add.add left out by profile smoke (dtype=bf16, dtype=fp32)"
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("tinny.dtype: [fp16]", r"keep\.tinny\.dtype: unknown family tinny[\s\S]*perhaps you meant tiny"),
        ("tiny.dtyp: [fp16]", r"keep\.tiny\.dtyp: unknown choice[\s\S]*perhaps you meant dtype"),
        ("tiny.quite_different: [1]", r"keep\.tiny\.quite_different: unknown choice"),
        ("dtyp: [fp16]", r"profiles\.yaml:8: profiles\.a\.keep\.dtyp: unknown choice[\s\S]*dtype"),
        ("tiny.dtype: [i8]", r"no kernel offers 'i8'[\s\S]*offered: 'bf16', 'fp16', 'fp32'"),
    ],
)
def test_misspelt_entries(tmp_path: Path, entry: str, message: str) -> None:
    path = tmp_path / "profiles.yaml"
    head = "schema: 1\ndefault: a\nprofiles:\n  a:\n    description: ''\n    complete: true\n    keep:\n"
    path.write_text(f"{head}      quite_different: [1]\n")  # of a family that this checkout lacks
    check_profiles(load_profiles(tmp_path), load_families(TINY), path)
    path.write_text(f"{head}      {entry}\n")
    with pytest.raises(ManifestError, match=message):
        check_profiles(load_profiles(tmp_path), load_families(TINY), path)


OPTIONS = {
    "enable_fp_fusion": False, "schedule_hint": "attention", "allow_flush_denorm": True, "wgp_cu_mode": "cu",
    "llvm_fn_attrs": "amdgpu-sched-strategy=iterative-ilp", "default_dot_input_precision": "bf16x3",
    "max_num_imprecise_acc_default": 2, "debug": True,
}  # fmt: skip


def with_options(root: Path, text: str) -> Path:
    rules = copy_tiny(root) / "tiny" / "rules.py"
    rules.write_text(
        rules.read_text().replace('constants={"BLOCK": 64},', f'constants={{"BLOCK": 64}}, options={text},')
    )
    return root


def test_options_of_a_setting_enter_its_job_keys_only_when_set(tmp_path: Path) -> None:
    plain = plan_of(TINY, compiler=FAKE_TOOLCHAIN)
    before = {job.label: job.key for job in plain.jobs}
    tuned = plan_of(with_options(tmp_path / "k", repr(OPTIONS)), compiler=FAKE_TOOLCHAIN)
    changed = {job.label for job in tuned.jobs if job.key != before[job.label]}
    assert changed == {label for label in before if label.rpartition(":")[2] in {"1", "1u"}}
    job = next(job for job in tuned.jobs if job.label in changed)
    assert dict(job.options) == OPTIONS | {
        "kpack": 1, "matrix_instr_nonkdim": 0, "num_stages": 2, "num_warps": 1, "waves_per_eu": 0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'schedule_hnt': ''}", r"option schedule_hnt[\s\S]*no such option[\s\S]*schedule_hint"),
        ("{'enable_fp_fusion': 1}", r"option enable_fp_fusion = 1[\s\S]*enable_fp_fusion is bool"),
        ("{'num_warps': 4}", r"num_warps is a field of Setting"),
        ("{'extern_libs': ''}", r"it is a path of this machine"),
    ],
)
def test_options_that_the_installed_triton_lacks_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RulesError, match=message):
        plan_of(with_options(tmp_path / "k", text), compiler=FAKE_TOOLCHAIN)


def test_the_options_are_those_of_the_installed_triton() -> None:
    assert set(OPTIONS) == set(AMD.options.names())
    assert not set(AMD.options.fields) & set(AMD.options.names())
