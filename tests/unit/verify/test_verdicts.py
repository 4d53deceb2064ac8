"""Verdicts kept, shown and raised."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.compile.model import Resources
from aotforge.errors import (
    AotforgeError,
    CacheError,
    DecodeError,
    ExecutionError,
    UnsupportedError,
    VerifyError,
)
from aotforge.plan.model import GridTerm, PlannedChoice, PlannedKernel
from aotforge.verify.check_image import check_image
from aotforge.verify.interpreter.dispatch import Use
from aotforge.verify.report import VerifyReport, joined_report
from aotforge.verify.verdict import ImageTask, OutputStats, Verdict
from aotforge.verify.verdict_store import VerdictStore, verdict_key
from tests.support.families import PROJECT
from vgpu.emulator.classes import InstructionClass
from vgpu.emulator.program import Emulator

RESOURCES = Resources(
    registers=32, accumulation_registers=0, scalar_registers=16, spilled_registers=0,
    spilled_scalar_registers=0, scratch_bytes=0, shared_bytes=64, dynamic_shared_bytes=64, warp_size=64,
    num_warps=4, threads=256, occupancy=8,
)  # fmt: skip
TASK = ImageTask(
    key="job", label="fam.kernel:gfx908:0", arch="gfx908", digest="d", binary=b"", asm="",
    resources=RESOURCES, folder="fam", verifier_digest="t", uses=(),
)  # fmt: skip
OUT = OutputStats(
    name="Out", tensor=0.5, element=0.25, tile=0.125, error=1e-3, allowed=2e-3, at="ragged, random schedule"
)
PASSED = Verdict(
    key="job", label=TASK.label, digest="d", outcome="passed", cases=("ragged",), runs=2, outputs=(OUT,),
    instructions=7, mix=(("valu", 5), ("control", 2)), approximated=(("v_exp_f32", "last place"),),
    resources=RESOURCES, verifier_digest="t",
)  # fmt: skip
WRONG = replace(OUT, tensor=float("inf"), error=float("inf"))
FAILED = replace(PASSED, label="bad", outcome="failed", outputs=(WRONG,), failure="ragged: out is wrong")
UNVERIFIED = Verdict(
    key="u", label="lonely", digest="e", outcome="unverified", resources=RESOURCES, verifier_digest="t"
)


def report(*verdicts: Verdict) -> VerifyReport:
    return VerifyReport(pack="p", archs=("gfx908",), profile="quick", verdicts=verdicts, seconds=1.0)


def test_a_kept_verdict_comes_back_as_cached(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path)
    assert store.load(TASK) is None
    store.store(TASK, PASSED)
    # the same image may serve a job of another name
    other = replace(TASK, key="other", label="other label", resources=replace(TASK.resources, occupancy=4))
    found = store.load(other)
    assert found == replace(PASSED, key="other", label="other label", resources=other.resources, cached=True)


def test_a_damaged_or_renamed_verdict_is_none(tmp_path: Path) -> None:
    store, renamed = VerdictStore(tmp_path), replace(TASK, verifier_digest="b")
    other = verdict_key(renamed)
    store.store(TASK, PASSED)
    (file,) = (f for f in tmp_path.rglob("*") if f.is_file())
    complete = file.read_bytes()
    moved = file.parent.parent / other[:2] / other
    moved.parent.mkdir(exist_ok=True)
    moved.write_bytes(complete)
    assert store.load(renamed) is None
    for at in range(len(complete)):
        file.write_bytes(complete[:at] + bytes([complete[at] ^ 1]) + complete[at + 1 :])
        assert store.load(TASK) is None
        file.write_bytes(complete[:at])
        assert store.load(TASK) is None
    file.write_bytes(complete)
    assert store.load(TASK) is not None


@pytest.mark.parametrize(
    "other", [{"digest": "x"}, {"asm": "x"}, {"arch": "gfx90a"}, {"verifier_digest": "x"}]
)
def test_whatever_can_change_a_verdict_changes_its_key(other: dict[str, str]) -> None:
    assert verdict_key(replace(TASK, **other)) != verdict_key(TASK)  # type: ignore[arg-type]


def with_grid(*axes: tuple[GridTerm, ...]) -> ImageTask:
    kernel = PlannedKernel(
        family="fam", name="kernel", operator="op", step=0, keys=(), parameters=(), functionals=()
    )
    choice = PlannedChoice(job="job", predicates=(), grid=axes)
    return replace(TASK, uses=(Use(kernel=kernel, key=(), choices=(choice,), index=0),))


def test_another_grid_has_another_key_and_the_same_in_a_pack_has_not() -> None:
    term = (GridTerm(value="n", divisor=2),)
    assert verdict_key(with_grid(term, (), ())) == verdict_key(with_grid(term))
    keys = {verdict_key(with_grid(*axes)) for axes in [(term,), ((), term), (term, term), (term, (), term)]}
    assert len(keys) == 4


def test_another_launch_has_another_key() -> None:
    more = replace(TASK, resources=replace(RESOURCES, dynamic_shared_bytes=128))
    assert verdict_key(more) != verdict_key(TASK)
    # what is computed from the manifest of archs has no part
    assert verdict_key(replace(TASK, resources=replace(RESOURCES, occupancy=1))) == verdict_key(TASK)


def test_an_unusable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError):
        VerdictStore(tmp_path / "file").store(TASK, PASSED)


def test_reports() -> None:
    fields = json.loads(json.dumps(report(PASSED, FAILED, UNVERIFIED).fields(), allow_nan=False))
    assert fields["counts"] == {"passed": 1, "failed": 1, "unverified": 1}
    assert [v["worst"] for v in fields["verdicts"]] == [0.5, None, 0.0]
    assert fields["verdicts"][1]["outputs"][0]["tensor"] is None
    assert fields["verdicts"][0]["mix"] == {"valu": 5, "control": 2}
    assert fields["verdicts"][0]["approximated"] == {"v_exp_f32": "last place"}
    assert [v["faithfulness"] for v in fields["verdicts"]] == ["approximated", "approximated", "not executed"]
    assert fields["verdicts"][0]["resources"]["registers"] == 32
    text = "\n".join(report(PASSED, FAILED, UNVERIFIED).lines())
    assert "1 passed, 1 failed, 1 unverified" in text
    assert "ragged: out is wrong" in text


def test_passed_images_are_counted_and_each_failure_is_shown_once() -> None:
    many = [replace(PASSED, label=f"fam.kernel:gfx908:{n}") for n in range(40)]
    other = replace(PASSED, label="fam.other:gfx908:0", approximated=(), outputs=(replace(OUT, tensor=0.75),))
    broken = [replace(FAILED, label=f"bad{n}") for n in range(5)]
    lines = report(*many, other, *broken).lines()
    assert lines == [
        "passed      fam.kernel: 40 images, 80 launches; largest error 50%, element 25%, tile 12% of the "
        "bound",
        "approximate fam.kernel: v_exp_f32 (last place)",
        "passed      fam.other: 1 image, 2 launches; largest error 75%, element 25%, tile 12% of the bound",
        "failed      bad0, bad1, bad2 and 2 more:\n    ragged: out is wrong",
        "46 images of p, profile quick: 41 passed, 5 failed (0 known before); 1 exact, 45 approximated; "
        "92 launches, "
        "0.0 million wave-instructions, 1.0 s",
    ]
    assert all(len(line) <= 110 for line in lines[:2])
    with pytest.raises(VerifyError) as caught:
        report(*many, *broken).require_passed(described=True)
    assert caught.value.what == "5 of 45 images failed, 0 are unverified"


def test_what_the_virtual_gpu_lacks_is_no_wrong_result() -> None:
    lacking = replace(FAILED, unsupported=True, failure="line 4: unknown instruction v_new")
    with pytest.raises(VerifyError) as caught:
        report(PASSED, lacking).require_passed()
    assert "not supported by the virtual GPU" in caught.value.cause and "computes" not in caught.value.cause
    assert (
        "bad: not supported by the virtual GPU:\n    line 4: unknown instruction v_new" in caught.value.what
    )
    assert report(lacking).fields()["verdicts"][0]["faithfulness"] == "unsupported"
    with pytest.raises(VerifyError) as caught:
        report(lacking, replace(FAILED, failure="other")).require_passed()
    assert caught.value.cause.endswith("1 image of these are not supported by the virtual GPU")


@pytest.mark.parametrize(
    ("error", "unsupported"),
    [
        (DecodeError("line 4: v_new v1: unknown instruction v_new"), True),
        (UnsupportedError("the kernel has a stack of unknown size"), True),
        (DecodeError("the assembly text of kernel is not the image's"), False),
        (ExecutionError("line 3: out of bounds"), False),
    ],
)
def test_an_image_that_does_not_load(
    error: AotforgeError, unsupported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Emulator, "load", refuse)
    verdict = check_image(replace(TASK, folder="add"), kernels_root=PROJECT / "kernels", cache=Path())
    assert (verdict.outcome, verdict.unsupported) == ("failed", unsupported)
    assert verdict.faithfulness == ("unsupported" if unsupported else "not executed")


def test_an_execution_without_approximated_instructions_is_exact() -> None:
    several = replace(
        PASSED, approximated=(("v_exp_f32", "last place"), ("v_mfma_f32_4x4x1f32", "order of sums"))
    )
    assert [v.faithfulness for v in (replace(PASSED, approximated=()), several)] == ["exact", "approximated"]
    (line,) = [one for one in report(several, PASSED).lines() if one.startswith("approximate")]
    assert line == "approximate fam.kernel: v_exp_f32 (last place); v_mfma_f32_4x4x1f32 (order of sums)"


def test_only_passed_images_are_let_through() -> None:
    report(PASSED).require_passed()
    with pytest.raises(VerifyError, match=r"bad:\n +ragged: out is wrong"):
        report(PASSED, FAILED).require_passed()
    with pytest.raises(VerifyError, match=r"lonely:\n +no case is dispatched"):
        report(PASSED, UNVERIFIED).require_passed()


def test_reports_of_several_packs_become_one_that_fails_when_one_does() -> None:
    other = VerifyReport(pack="q", archs=("gfx1100",), profile="quick", verdicts=(FAILED,), seconds=2.0)
    both = joined_report([report(PASSED), other])
    assert (both.pack, both.archs, both.seconds) == ("p, q", ("gfx908", "gfx1100"), 3.0)
    assert both.verdicts == (PASSED, FAILED)
    joined_report([report(PASSED)]).require_passed()
    with pytest.raises(VerifyError, match="1 of 2 images failed"):
        both.require_passed()


def cells(*verdicts: Verdict) -> list[list[str]]:
    """Rows of the page's table, as text."""
    page = report(*verdicts).html()
    assert not re.search(r"<script|https?:|@import|url\(", page)
    assert "does not replace one run on the real GPU" in page
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)[1:]
    return [[html.unescape(re.sub(r"<[^>]+>", " ", c)) for c in re.split(r"</td>", row)] for row in rows]


def test_the_page_has_a_row_for_every_image() -> None:
    nasty = replace(FAILED, label="<script>alert(1)</script>", failure="a < b & c")
    passed, failed, unverified = cells(PASSED, nasty, UNVERIFIED)
    assert [one.strip() for one in (passed[0], passed[1], passed[4], passed[5])] == [
        "passed", "approximated", "2", "0.50"
    ]  # fmt: skip
    assert PASSED.label in passed[2] and "ragged" in passed[3] and "Out: 0.50 / 0.25 / 0.12" in passed[6]
    assert "<script>alert(1)</script>" in failed[2] and "a < b & c" in failed[2] and "∞" in failed[5]
    assert "not executed" in unverified[1] and "no case is dispatched" in unverified[2]
    assert cells() == []


def test_the_mix_of_the_page_shows_every_class() -> None:
    mix = tuple((str(kind), 10) for kind in InstructionClass)
    page = report(replace(PASSED, mix=mix, instructions=80)).html()
    colours = re.findall(r"width:12\.50%;background:(#\w+)", page)
    assert len(set(colours)) == len(colours) == len(InstructionClass)
