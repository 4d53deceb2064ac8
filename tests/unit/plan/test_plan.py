"""Plans of the tiny family and of families that contradict themselves."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.errors import (
    ManifestError,
    RulesError,
    ToolchainError,
    UnknownNameError,
    UnsupportedError,
)
from aotforge.plan.families import load_families
from aotforge.plan.model import Plan, ServedGate, plan_to_json
from aotforge.plan.planner import select_archs, select_profile
from aotforge.rules import GENERAL_SUFFIX
from aotforge.toolchain.triton import pinned_triton, read_toolchain
from tests.support.families import (
    FAKE_TOOLCHAIN,
    PROJECT,
    TINY,
    architectures,
    copy_tiny,
    plan_of,
    plan_project,
    profiles,
    write_family,
    write_many,
)


def _plan(root: Path = TINY, profile: str = "full") -> Plan:
    return plan_of(root, profile=profile, compiler=FAKE_TOOLCHAIN)


def test_settings_expand_in_order_and_end_with_those_without_hints() -> None:
    plan = _plan()
    assert [job.label for job in plan.jobs] == [
        f"tiny.axpy:gfx908:dtype={dtype}:{setting}"
        for dtype in ("fp32", "fp16", "bf16")
        for setting in ("0", "1", "1u")
    ]
    (kernel,) = plan.kernels
    assert [functional.key for functional in kernel.functionals] == [(0,), (1,), (2,)]
    assert [(p.name, p.type, p.value) for p in kernel.parameters] == [
        ("x", "ptr", "X"),
        ("y", "ptr", "Y"),
        ("n", "i32", "n"),
        ("a", "f32", "a"),
    ]
    first, second, last = kernel.functionals[0].choices
    assert [(p.kind, p.values, p.low) for p in first.predicates] == [
        ("range", ("n",), 4096),
        ("multiple", ("X",), 16),
        ("multiple", ("Y",), 16),
    ]
    assert first.predicates[0].high == 2**63 - 1
    assert [p.kind for p in second.predicates] == ["multiple", "multiple"]
    assert last.predicates == ()
    assert [choice.grid[0][0].divisor for choice in (first, second, last)] == [512, 64, 64]
    hinted, _, plain = plan.jobs[:3]
    assert hinted.hints == (("x", 16), ("y", 16))
    assert plain.hints == ()
    assert hinted.signature == (
        ("x", "*fp32"),
        ("y", "*fp32"),
        ("n", "i32"),
        ("a", "fp32"),
        ("BLOCK", "constexpr"),
    )


def test_profiles_keep_what_they_name_and_leave_other_kernels_alone() -> None:
    assert {job.label.split(":")[2] for job in _plan(profile="smoke").jobs} == {"dtype=fp16"}
    assert len(_plan(profile="quick").jobs) == 9
    assert _plan(profile="core").complete
    assert not _plan(profile="quick").complete


def test_json_round_trips_and_is_canonical(tmp_path: Path) -> None:
    plan = _plan()
    text = plan_to_json(plan)
    assert plan_to_json(_plan(copy_tiny(tmp_path / "elsewhere"))) == text
    assert json.loads(text)["jobs"][0]["key"] == plan.jobs[0].key


def test_keys_change_with_everything_that_can_change_bytes_and_with_nothing_else(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 3)
    before = {job.label: job.key for job in _plan(root).jobs}

    def changed() -> set[str]:
        return {job.label for job in _plan(root).jobs if before.get(job.label) != job.key}

    assert changed() == set()
    text = (root / "f01" / "f01.py").read_text()
    (root / "f01" / "f01.py").write_text("# a comment\n" + text.replace("+ 2", "+  2") + "# why\n")
    assert changed() == set()
    (root / "f01" / "f01.py").write_text(text.replace("+ 2", "+ 3"))
    assert changed() == {"f01.f01:gfx908:0"}
    write_family(
        root, "f02", "\n@triton.jit\ndef kernel(x, n, BLOCK: tl.constexpr):\n    tl.store(x, n)\n", align=16
    )
    assert {"f02.f02:gfx908:0", "f02.f02:gfx908:0u", "f01.f01:gfx908:0"} == changed()
    other = replace(FAKE_TOOLCHAIN, environment=(("A", "2"),))
    assert not {j.key for j in plan_of(root, compiler=other).jobs} & {j.key for j in _plan(root).jobs}


def test_the_source_and_the_settings_have_digests_of_their_own(tmp_path: Path) -> None:
    root = write_many(tmp_path / "k", 1)
    first = _plan(root)
    path = root / "f00" / "f00.py"
    path.write_text(path.read_text().replace("+ 1", "+ 2"))
    second = _plan(root)
    assert second.source_digest != first.source_digest
    assert second.settings_digest == first.settings_digest
    write_family(root, "f00", path.read_text().partition("\n\n")[2], blocks=(128,))
    third = _plan(root)
    assert third.source_digest == second.source_digest
    assert third.settings_digest != second.settings_digest


def test_unknown_names_come_with_the_nearest_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown arch gfx980[\s\S]*gfx908"):
        select_archs(architectures(), ["gfx980"])
    with pytest.raises(UnknownNameError, match=r"unknown profile cor[\s\S]*core"):
        select_profile(profiles(), "cor")
    with pytest.raises(UnsupportedError):
        select_archs(architectures(), [])


_GRID = 'grid=((Term(value="n", divisor="BLOCK"),),)'
_CHOICE = 'Choice(name="dtype", key="dtype", options=DTYPES),'
_EDITS = [
    ('operator="axpy"', 'operator="axpi"', "operator axpi[\\s\\S]*axpy"),
    ('value="X"', 'value="Z"', "no value Z"),
    ('name="x", type', 'name="xx", type', "no parameter xx[\\s\\S]*perhaps you meant x"),
    ('type="*{dtype}", value="X"', 'type="*{dtpe}", value="X"', "type '\\*\\{dtpe\\}'"),
    ('type="*{dtype}", value="X"', 'type="*fp17", value="X"', "type '\\*fp17'[\\s\\S]*fp16"),
    ('type="i32", value="n"', 'type="i16", value="n"', "type 'i16'"),
    ('type="i32", value="n"', 'type="i32", value="X"', "argument n is i32, its operator value is ptr"),
    ('type="fp32", value="a"', 'type="i32", value="a"', "argument a is i32"),
    ('Argument(name="a", type="fp32", value="a"),', "", "without an argument: a"),
    ('key="dtype"', 'key="X"', "not an integer value"),
    ('"bf16": 2', '"bf16": 1', "number of choice dtype 1 is defined twice"),
    ('{"BLOCK": 64}', '{"BLOK": 64}', "constant BLOK[\\s\\S]*BLOCK"),
    ('{"BLOCK": 64}', "{}", "constexpr BLOCK of axpy has no value"),
    ('{"BLOCK": 64}', '{"BLOCK": 0.5}', "constant BLOCK is 0.5"),
    ("num_warps=4", "num_warps=3", "num_warps 3"),
    ("num_warps=4", "num_warps=32", "num_warps 32"),
    ('Between(value="n"', 'Between(value="X"', "when X >= 4096: X is ptr"),
    ('Between(value="n"', 'Between(value="a"', "when a >= 4096: a is f32"),
    ('Between(value="n"', 'Between(value="N"', "the operator has no value N"),
    ('Between(value="n"', 'Between(value=("n", "dtyp")', "no value dtyp[\\s\\S]*perhaps you meant dtype"),
    ('Between(value="n"', 'Between(value=("n", "X")', "when n \\* X >= 4096: X is ptr"),
    ('Between(value="n"', "Between(value=()", "a product has 1 to 4 values"),
    ('Between(value="n"', 'Between(value=("n",) * 5', "a product has 1 to 4 values"),
    ("low=4096)", "low=4096, high=1)", "when 4096 <= n <= 1[\\s\\S]*no value is in that range"),
    ("low=4096)", "low=2**63)", "more than 64 bits"),
    ("low=4096)", "low=-2**63 - 1)", "more than 64 bits"),
    ('Between(value="n", low=4096)', 'MultipleOf(value="n", of=0)', "when n % 0 = 0[\\s\\S]*must be 1 to"),
    (
        'Between(value="n", low=4096)',
        'MultipleOf(value=("n", "n"), of=2**32)',
        "when \\(n \\* n\\) % 4294967296",
    ),
    ('Between(value="n", low=4096)', 'MultipleOf(value=("X", "X"), of=4)', "X is ptr"),
    ('Between(value="n", low=4096)', 'Equals(value="n", to=2**63)', "more than 64 bits"),
    ('Between(value="n", low=4096)', '"n > 1"', "when 'n > 1'[\\s\\S]*must be rules.Between"),
    ('divisor="BLOCK"', 'divisor="BLOK"', "grid divisor BLOK"),
    ('source="kernels.py"', 'source="kernel.py"', "kernel.py: cannot be read"),
    ('function="axpy"', 'function="axpi"', "no function axpi[\\s\\S]*axpy"),
    ('name="tiny"', 'name="ti/ny"', "'ti/ny' is not a valid name"),
    ("operators=(AXPY,)", "operators=(AXPY, AXPY)", "operator axpy is defined twice"),
    ("            grid=", "            step=1,\n            grid=", "steps \\[1\\]"),
    (
        "operators=(AXPY,)",
        "operators=(AXPY, replace(AXPY, name='idle'))",
        "operator idle has kernels for steps \\[\\]",
    ),
    (
        'Value(name="a", type="f32"),',
        'Value(name="a", type="f32"), Value(name="a", type="f32"),',
        "value of axpy a is defined twice",
    ),
    (_GRID, "grid=((Term(value='n', divisor=1),),) * 4", "a grid has at most 3 axes of at most 4 factors"),
    (_GRID, "grid=((Term(value='n', divisor=1),) * 5,)", "a grid has at most 3 axes of at most 4 factors"),
    (_GRID, "grid=((Term(value='a', divisor=1),),)", "grid: a is not an integer value"),
    (_GRID, "grid=((Term(value='m', divisor=1),),)", "has no value m"),
    (
        'Argument(name="n", type="i32", value="n"),',
        'Argument(name="n", type="i32", value="n"),' * 2,
        "argument n is defined twice",
    ),
    ('name="y", type', 'name="BLOCK", type', "argument BLOCK is constexpr in axpy"),
    (
        'name="x", type="*{dtype}", value="X"',
        'name="y", type="*{dtype}", value="X"',
        "argument y is defined twice",
    ),
    ('value="n"),', 'value="n", divisible_by=0),', "argument n: divisible_by 0"),
    ('value="a"),', 'value="a", divisible_by=4),', "argument a: divisible_by 4"),
    ("options=DTYPES", "options={}", "choice dtype has no options"),
    (_CHOICE, f"{_CHOICE} {_CHOICE}", "choice dtype is defined twice"),
    (
        _CHOICE,
        f"{_CHOICE} Choice(name='again', key='dtype', options=DTYPES),",
        "key of choices dtype is defined twice",
    ),
    (
        _CHOICE,
        "Choice(name='wide', key='n', options={1: 1}, ladder=True)," + _CHOICE,
        "choice wide is a ladder",
    ),
    ('source="kernels.py"', 'source="kernels.txt"', "it must be a Python file beside rules.py"),
    ('type="*{dtype}", value="X"', 'type="fp16", value="n"', "scalars are passed as fp32, i32, i64, u64"),
    ('type="*{dtype}", value="X"', 'type="*{0}", value="X"', "choices are dtype"),
    ('type="fp32", value="a"', 'type="fp32", value="n"', "argument a is f32, its operator value is i64"),
    ("num_warps=4", "num_warps=0", "num_warps 0"),
    ("num_warps=4", "num_warps=4, num_stages=0", "is out of range"),
    ("num_warps=4", "num_warps=4, kpack=0", "is out of range"),
    ("num_warps=4", "num_warps=4, waves_per_eu=-1", "is out of range"),
    ("num_warps=4", "num_warps=4, matrix_instr_nonkdim=-1", "is out of range"),
    (
        "            grid=",
        "            constants=lambda functional: {'BLOCK': 64},\n            grid=",
        "constants BLOCK come from the functional and from the setting",
    ),
    ("divisible_by=16", "divisible_by=-16", "divisible_by -16"),
    ("FAMILY = Family", "FAMLY = Family", "FAMILY is missing"),
    ('source="kernels.py"', 'source="../kernels.py"', "source '../kernels.py'"),
    ("return (large, ", "return large or (", "settings return Setting"),
    ("return (large, ", "return (1 / 0, ", "settings raises ZeroDivisionError[\\s\\S]*rules.py:\\d+: return"),
    ("return (large, ", "return ('large', ", "settings offer 'large'"),
    (
        "            grid=",
        "            constants=lambda functional: None,\n            grid=",
        "constants return None",
    ),
    (
        "            grid=",
        "            allowed=lambda functional: functional['x'],\n            grid=",
        "allowed raises KeyError",
    ),
    ("DTYPES = {", "DTYPES = {,", "rules.py:19: SyntaxError"),
    ("DTYPES = {", "DTYPES = 1 / 0 or {", "rules.py:19: ZeroDivisionError"),
    ("DTYPES = {", "import triton\nDTYPES = {", "rules.py:19: ImportError: rules.py must not import triton"),
]


@pytest.mark.parametrize(("old", "new", "message"), _EDITS, ids=[new or old for old, new, _ in _EDITS])
def test_rules_that_contradict_themselves_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    root = copy_tiny(tmp_path / "k")
    rules = root / "tiny" / "rules.py"
    text = rules.read_text().replace("Between,", "Between, Equals, MultipleOf,", 1)
    text = text.replace("DTYPES =", "from dataclasses import replace\nDTYPES =", 1)
    assert old in text
    rules.write_text(text.replace(old, new, 1))
    with pytest.raises(RulesError, match=message) as caught:
        _plan(root)
    assert str(root) in str(caught.value)


_LIMITS = [
    ("num_warps=4", "num_warps=16"),
    ("num_warps=4", "num_warps=1, num_stages=1, kpack=1, waves_per_eu=0, matrix_instr_nonkdim=0"),
    (_GRID, "grid=((Term(value='n', divisor='BLOCK'),) * 4,) * 3"),
    ("divisible_by=16", "divisible_by=1"),
    ('"bf16": 2', '"bf16": -2'),
    (_CHOICE, _CHOICE.replace("options=DTYPES", "options=DTYPES, ladder=True")),
    ('name="tiny"', f'name="{"t" * 28}"'),
]


@pytest.mark.parametrize(("old", "new"), _LIMITS, ids=[new for _, new in _LIMITS])
def test_rules_at_their_limits_are_planned(tmp_path: Path, old: str, new: str) -> None:
    root = copy_tiny(tmp_path / "k")
    rules = root / "tiny" / "rules.py"
    text = rules.read_text()
    assert old in text
    rules.write_text(text.replace(old, new, 1))
    assert _plan(root).jobs


def _with_source(root: Path, text: str) -> Path:
    """The tiny family, whose setting for large calls has a source of its own and may spill."""
    rules = copy_tiny(root) / "tiny" / "rules.py"
    rules.with_name("large.py").write_text(text)
    timed = "from aotforge.timed_rules import TimedSetting\nfrom aotforge.rules import ("
    changed = rules.read_text().replace("from aotforge.rules import (", timed)
    own = 'large = TimedSetting(source="large.py", spills=True, '
    changed = changed.replace("large = Setting(", own)
    rules.write_text(changed)
    return root


def test_a_setting_may_have_a_source_of_its_own_and_spill(tmp_path: Path) -> None:
    before = {job.label: job for job in _plan().jobs}
    source = (TINY / "tiny" / "kernels.py").read_text()
    wide = "BLOCK: tl.constexpr, WIDE: tl.constexpr, PAD: tl.constexpr = 3"
    root = _with_source(tmp_path / "k", source.replace("BLOCK: tl.constexpr", wide))
    rules = root / "tiny" / "rules.py"
    rules.write_text(rules.read_text().replace('{"BLOCK": 512}', '{"BLOCK": 512, "WIDE": 9}'))
    for job in _plan(root).jobs:
        if job.label.endswith(":0"):
            assert job.source == "tiny/large.py" and job.spills == "report"
            assert job.source_digest != before[job.label].source_digest
            assert job.constants == (("BLOCK", 512), ("WIDE", 9), ("PAD", 3))
            assert [name for name, kind in job.signature if kind == "constexpr"] == ["BLOCK", "WIDE", "PAD"]
        else:
            assert job == before[job.label]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import triton\n\n@triton.jit\ndef axpy(x, n): pass\n", "axpy has no parameter y"),
        ("import triton\n\n@triton.jit\ndef other(x): pass\n", r"large\.py: no function axpy"),
    ],
)
def test_a_settings_source_takes_the_kernels_arguments(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RulesError, match=message):
        _plan(_with_source(tmp_path / "k", text))


def test_an_operator_is_planned_with_all_its_steps_or_not_at_all(tmp_path: Path) -> None:
    root = copy_tiny(tmp_path / "k")
    rules = root / "tiny" / "rules.py"
    second = "replace(FAMILY.kernels[0], name='second', step=1, settings=lambda target, functional: ())"
    rules.write_text(
        f"{rules.read_text()}\nfrom dataclasses import replace\n"
        f"FAMILY = replace(FAMILY, kernels=(*FAMILY.kernels, {second}))\n"
    )
    with pytest.raises(UnsupportedError, match=r"operator axpy would have steps \[0\] of \[0, 1\]"):
        _plan(root)
    rules.write_text(rules.read_text().replace(", settings=lambda target, functional: ()", ""))
    assert {kernel.step for kernel in _plan(root).kernels} == {0, 1}


@pytest.mark.parametrize(
    "decorators", ["", "@triton.autotune([])\n@triton.jit\n", "@triton.heuristics({})\n"]
)
def test_kernels_are_plain_jit_functions(tmp_path: Path, decorators: str) -> None:
    root = write_many(tmp_path / "k", 1)
    path = root / "f00" / "f00.py"
    path.write_text(path.read_text().replace("@triton.jit\n", decorators))
    with pytest.raises(RulesError, match=r"f00\.py:\d+: kernel is decorated with"):
        _plan(root)


def test_a_folder_with_python_files_and_no_rules_is_named(tmp_path: Path) -> None:
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "norm.py").touch()
    with pytest.raises(RulesError, match=r"norm has no rules\.py"):
        load_families(tmp_path)


def test_a_root_without_families_is_named(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="no kernel family"):
        load_families(tmp_path)


def test_the_toolchain_is_checked_against_the_pin(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"Triton .* is installed, 0\.0\.1 is needed"):
        read_toolchain("0.0.1")
    (tmp_path / "r.in").write_text("numpy\n")
    with pytest.raises(ManifestError, match="no pin"):
        pinned_triton(tmp_path / "r.in")
    assert re.fullmatch(r"\d+\.\d+\.\d+", pinned_triton(PROJECT / "requirements" / "build.in"))


def test_the_projects_own_plan_is_sound() -> None:
    plan = plan_project(PROJECT, archs=["gfx908"])
    keys = [job.key for job in plan.jobs]
    assert len(keys) == len(set(keys))
    labels = [job.label for job in plan.jobs]
    assert len(labels) == len(set(labels))
    used = {choice.job for kernel in plan.kernels for f in kernel.functionals for choice in f.choices}
    assert used == set(keys)
    for kernel in plan.kernels:
        order = [(f.arch, f.key) for f in kernel.functionals]
        assert order == sorted(order)
        assert len(order) == len(set(order))
    # the complete profile has a special image for every call, so that none reaches a general one
    full = {job.key for job in plan_project(PROJECT, archs=["gfx908"], profile="full").jobs}
    general = {job.key for job in plan.jobs if job.function.endswith(GENERAL_SUFFIX)}
    assert general and not general & full
    assert set(keys) - general <= full
    quick = {job.key for job in plan_project(PROJECT, archs=["gfx908"], profile="quick").jobs}
    assert general < quick and quick - general < full


SHIPPED = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")


@pytest.mark.parametrize("arch", SHIPPED)
def test_every_profile_but_smoke_serves_all_gates(arch: str) -> None:
    levels = [ServedGate(gate=gate, arch=arch) for gate in ("0.11", "0.12", "0.13", "0.14")]
    for profile in ("core", "quick"):
        assert list(plan_project(PROJECT, archs=[arch], profile=profile).gates) == levels
    smoke = plan_project(PROJECT, archs=[arch], profile="smoke")
    assert smoke.gates == ()
    assert not [job for job in smoke.jobs if job.function.endswith(GENERAL_SUFFIX)]


def test_a_general_image_that_is_too_narrow_serves_no_gate(tmp_path: Path) -> None:
    """A planted fault: the image is offered for the calls of another rung than the last one."""
    kernels = tmp_path / "kernels"
    shutil.copytree(PROJECT / "kernels", kernels)
    for name in ("manifests", "requirements"):
        (tmp_path / name).symlink_to(PROJECT / name)
    rules = kernels / "flash" / "general_settings.py"
    sound = 'functional["width"] != WIDTHS[-1]'
    assert sound in rules.read_text()
    rules.write_text(rules.read_text().replace(sound, 'functional["width"] != WIDTHS[-2]'))
    # 512 columns are served by no gate but of gfx11's calls, which end at 256
    assert plan_project(tmp_path, archs=["gfx908"], profile="core").gates == ()
    assert [gate.gate for gate in plan_project(tmp_path, archs=["gfx1100"], profile="core").gates] == ["0.11"]
