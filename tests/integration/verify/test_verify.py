"""Real images checked: correct ones pass; planted faults, crashed and hanging processes are reported; passed
images are not run again."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotforge.compile.model import KernelImage
from aotforge.errors import VerifyError
from aotforge.plan.model import Plan
from aotforge.verify import verify_plan as run
from aotforge.verify.report import VerifyReport
from aotforge.verify.verdict import VerifyEvent
from aotforge.verify.verify_plan import verify_images
from tests.e2e.checkouts import share_interpreter
from tests.integration.release.real import CACHE
from tests.support.families import PROJECT, architectures, plan_of
from tests.support.verified import compiled_images
from vgpu.emulator.assembly import assemble

pytestmark = pytest.mark.compiler
FORWARD = "flash.attn_fwd:gfx908:dtype=fp16,dropout=false,mask=full,width=32:1"
Images = Mapping[str, KernelImage]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that has the project's interpreter and nothing else."""
    share_interpreter(tmp_path / "cache")
    return tmp_path / "cache"


def compiled(root: Path, folder: Path, wanted: Callable[[str], bool]) -> tuple[Plan, dict[str, KernelImage]]:
    complete = plan_of(root)
    plan = replace(complete, jobs=tuple(job for job in complete.jobs if wanted(job.label)))
    return plan, compiled_images(plan, root, folder)


@pytest.fixture(scope="module")
def add(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, dict[str, KernelImage]]:
    folder = tmp_path_factory.mktemp("add")
    shutil.copytree(PROJECT / "kernels" / "add", folder / "kernels" / "add")
    return compiled(folder / "kernels", CACHE, lambda label: "fp32" in label)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A kernels root with `add` alone, to be changed."""
    shutil.copytree(PROJECT / "kernels" / "add", tmp_path / "kernels" / "add")
    return tmp_path / "kernels"


def verified(
    built: tuple[Plan, Images], root: Path, cache: Path, **options: Any
) -> tuple[VerifyReport, list[VerifyEvent]]:
    events: list[VerifyEvent] = []
    plan, images = built
    settings: dict[str, Any] = {
        "jobs": 1
    } | options  # a second process starts as slowly as the first one executes both images
    report = verify_images(plan, images, kernels_root=root, cache=cache, on_event=events.append, **settings)
    assert [event.done for event in events] == list(range(1, len(plan.jobs) + 1))
    assert [v.label for v in report.verdicts] == [job.label for job in plan.jobs]
    return report, events


def outcomes(report: VerifyReport) -> dict[str, str]:
    return {v.label.rpartition(":")[2]: v.outcome for v in report.verdicts}


def faulty(image: KernelImage, change: Callable[[str], str]) -> KernelImage:
    """The image that another text makes: valid, proven by its own text, and wrong."""
    from triton._C.libtriton import amd

    asm = change(image.asm)
    assert asm != image.asm
    with tempfile.NamedTemporaryFile() as source, tempfile.NamedTemporaryFile() as made:
        source.write(assemble(asm, "gfx908"))
        source.flush()
        amd.link_hsaco(source.name, made.name)
        hsaco = Path(made.name).read_bytes()
    return replace(image, asm=asm, binary=hsaco, digest=hashlib.sha256(hsaco).hexdigest())


def scaled(asm: str) -> str:
    """The first store's first register times 1.01."""
    store = re.search(r"\tbuffer_store_dwordx?\d? v\[?(\d+)", asm)
    assert store
    return asm.replace(store[0], f"\tv_mul_f32_e32 v{store[1]}, 0x3f8147ae, v{store[1]}\n{store[0]}", 1)


def unwritten(asm: str) -> str:
    """Without the last store."""
    stores = re.findall(r"\t(?:global|buffer)_store_\w+ .*\n", asm)
    head, _, tail = asm.rpartition(stores[-1])
    return f"{head}\ts_nop 0\n{tail}"


def test_sound_images_pass_and_are_not_run_again(
    add: tuple[Plan, Images], root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []
    first, _ = verified(add, root, cache, on_stage=stages.append)
    first.require_passed()
    assert stages[-1] == f"executing {len(first.verdicts)} images of {first.pack}"
    assert all(v.runs >= 6 and 0 < v.worst <= 1 and not v.cached for v in first.verdicts)
    assert all(v.instructions == sum(dict(v.mix).values()) > 0 for v in first.verdicts)
    with monkeypatch.context() as patch:
        patch.setattr(run, "Pool", None)  # nothing is to be executed
        second, _ = verified(add, root, cache, on_stage=stages.clear)
    assert [replace(v, cached=False) for v in second.verdicts] == list(first.verdicts)
    assert all(v.cached for v in second.verdicts)
    cases = root / "add" / "cases.py"
    cases.write_text(cases.read_text().replace("5000)", "4000)"))
    third, _ = verified(add, root, cache)
    assert not any(v.cached for v in third.verdicts)


@pytest.mark.parametrize("change", [scaled, unwritten])
def test_a_wrong_image_of_add_is_caught_and_never_kept(
    add: tuple[Plan, Images], root: Path, cache: Path, change: Callable[[str], str]
) -> None:
    plan, images = add
    bad = next(job for job in plan.jobs if job.label.endswith(":0"))
    planted = (plan, {**images, bad.key: faulty(images[bad.key], change)})
    for _ in range(2):
        report, _ = verified(planted, root, cache)
        assert outcomes(report) == {"0": "failed", "0u": "passed"}
        assert not report.verdicts[0].cached
    with pytest.raises(
        VerifyError, match=r"elements, aligned: out is wrong in \d+ of \d+ elements"
    ) as caught:
        report.require_passed()
    assert bad.label in str(caught.value)


@pytest.fixture(scope="module")
def forward() -> tuple[Plan, dict[str, KernelImage]]:
    return compiled(PROJECT / "kernels", CACHE, lambda label: label == FORWARD)


def other_base(asm: str) -> str:
    """log2(e), by which scores are multiplied, a little too large."""
    return asm.replace("0x3fb8aa3b", "0x3fba0000")


def without_a_barrier(asm: str) -> str:
    """No wave waits for the others before it reads what they put into LDS."""
    assert "s_barrier" in asm
    return asm.replace("s_barrier", "s_nop 0")


@pytest.mark.parametrize("change", [None, other_base, unwritten, without_a_barrier])
def test_an_attention_image(
    forward: tuple[Plan, Images], cache: Path, change: Callable[[str], str] | None
) -> None:
    plan, images = forward
    key = plan.jobs[0].key
    image = faulty(images[key], change) if change else images[key]
    report, _ = verified((plan, {key: image}), PROJECT / "kernels", cache)
    (verdict,) = report.verdicts
    assert verdict.outcome == ("failed" if change else "passed"), verdict.failure
    assert {"ragged", "grouped", "strided", "no keys", "one key"} <= set(verdict.cases)


def without_waits(asm: str) -> str:
    """No load from global memory is waited for."""
    return re.sub(r"\ts_waitcnt .*vmcnt.*", "\ts_nop 0", asm)


def test_what_right_results_hide_is_caught(add: tuple[Plan, Images], root: Path, cache: Path) -> None:
    """Loads complete at once on the virtual GPU, so results without waits are right; the checks are on."""
    plan, images = add
    bad = next(job for job in plan.jobs if job.label.endswith(":0"))
    planted = (plan, {**images, bad.key: faulty(images[bad.key], without_waits)})
    report, _ = verified(planted, root, cache, architectures=architectures())
    assert outcomes(report) == {"0": "failed", "0u": "passed"}
    failed = report.verdicts[0]
    assert "before the load into it has been waited for" in failed.failure
    assert failed.faults == failed.runs
    # the sources give another image: a line that is only probably right is not shown
    assert "(no source lines: " in failed.failure and "add.py" not in failed.failure


def test_a_fault_names_its_source_line(root: Path, cache: Path) -> None:
    kernel = root / "add" / "add.py"
    kernel.write_text(kernel.read_text().replace("x + start + lane, mask=mask", "x + start + lane"))
    line = next(n for n, text in enumerate(kernel.read_text().splitlines(), 1) if "x + start + lane" in text)
    built = compiled(root, cache, lambda label: "fp32:0" in label)
    report, _ = verified(built, root, cache, architectures=architectures())
    assert {v.outcome for v in report.verdicts} == {"failed"}
    for verdict in report.verdicts:
        assert "bytes of global memory outside its buffers" in verdict.failure
        assert f"add/add.py:{line}" in verdict.failure
        assert len(verdict.failure.splitlines()) < 40 and "more failures" in verdict.failure
    plain, _ = verified(built, root, cache)
    assert all("add.py" not in v.failure and v.outcome == "failed" for v in plain.verdicts)


def test_a_verdict_does_not_depend_on_where_the_host_has_tensors(root: Path, cache: Path) -> None:
    kernel, cases = root / "add" / "add.py", root / "add" / "cases.py"
    kernel.write_text(kernel.read_text().replace("x + start + lane, mask=mask", "x + start + lane"))
    built = compiled(root, cache, lambda label: "fp32:0" in label)
    text, found = cases.read_text(), []
    for held in (0, 5):  # free blocks of the host's memory between the tensors
        blocks = f"[numpy.zeros({held} * 3000 * k, numpy.uint8) for k in range(40)]"
        cases.write_text(f"{text}\nimport numpy\n_HELD = {blocks}\ndel _HELD[::2]\n")
        report, _ = verified(built, root, cache)
        found.append([replace(v, seconds=0.0, verifier_digest="") for v in report.verdicts])
    assert "bytes from the start of" in found[0][0].failure
    assert found[0] == found[1]


def altered(root: Path, statements: str) -> None:
    """Statements on each `call` of the family's cases, which know its `case` and `keys`."""
    file = root / "add" / "cases.py"
    added = f"""
import os
from dataclasses import replace
from pathlib import Path


def cases(kernel, keys):
    return [replace(case, make=lambda case=case: _altered(case, keys)) for case in CALLS.cases(kernel, keys)]


def _altered(case, keys):
    call = case.make()
    {statements}
    return call
"""
    file.write_text(file.read_text() + added)


def test_a_fault_is_not_forgiven_when_it_does_not_come_again(root: Path, cache: Path) -> None:
    """The second execution is for source lines only. Here memory is too short in the first one, by the
    family's own doing."""
    built = compiled(root, cache, lambda label: label.endswith("fp32:0"))
    once = cache.parent / "once"
    altered(
        root,
        f"if case.name == '2048 elements, aligned' and not Path({str(once)!r}).exists():\n"
        f"        Path({str(once)!r}).touch()\n"
        "        call.inputs['x'].storage = call.inputs['x'].storage[:64]",
    )
    report, _ = verified(built, root, cache, architectures=architectures())
    (failed,) = report.verdicts
    assert failed.outcome == "failed" and failed.faults == 1
    assert "bytes of global memory outside its buffers" in failed.failure
    assert "the second execution had other faults" in failed.failure


def test_a_text_that_is_not_the_image_is_refused(add: tuple[Plan, Images], root: Path, cache: Path) -> None:
    plan, images = add
    one, other = (images[job.key] for job in plan.jobs)
    mixed = {plan.jobs[0].key: replace(one, binary=other.binary), plan.jobs[1].key: other}
    report, _ = verified((plan, mixed), root, cache)
    assert outcomes(report) == {"0": "failed", "0u": "passed"}
    assert "is not the image" in report.verdicts[0].failure


_TROUBLE = """
import os, signal, sys, time
from aotforge.verify.invocation import Case

def trouble():
    {act}

def cases(kernel, keys):
    return [Case(name="trouble", make=trouble)]
"""


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "died of SIGKILL"),
        ("os._exit(7)", "exited with status 7"),
        ("raise ValueError('no such case')", "cases.py:6: ValueError: no such case"),
        ("time.sleep(10000)", "no verdict after 2 s"),
    ],
)
def test_a_process_that_crashes_or_hangs_fails_its_image(
    add: tuple[Plan, Images], root: Path, cache: Path, act: str, expected: str
) -> None:
    (root / "add" / "cases.py").write_text(_TROUBLE.format(act=act))
    report, _ = verified(add, root, cache, jobs=2, timeout=2 if "sleep" in act else 300)
    assert outcomes(report) == {"0": "failed", "0u": "failed"}
    assert all(expected in v.failure for v in report.verdicts)


def test_a_death_costs_no_other_image(root: Path, cache: Path) -> None:
    altered(root, "if keys['dtype'] == 3:\n        os.abort()")
    report, _ = verified(compiled(root, cache, lambda label: True), root, cache, jobs=2)
    assert {v.outcome for v in report.verdicts if "bf16" in v.label} == {"failed"}
    assert all("SIGABRT" in v.failure for v in report.verdicts if "bf16" in v.label)
    assert {v.outcome for v in report.verdicts if "bf16" not in v.label} == {"passed"}


def test_an_empty_grid_writes_nothing(add: tuple[Plan, Images], root: Path, cache: Path) -> None:
    """As where a grid follows another length than the output's: the library returns without a launch."""
    altered(root, "call.values['n'] = 0 if call.values['n'] == 37 else call.values['n']")
    report, _ = verified(add, root, cache)
    assert set(outcomes(report).values()) == {"failed"}
    for verdict in report.verdicts:
        assert re.fullmatch(
            r"37 elements, (un)?aligned \(grid 0x1x1\): nothing is launched, so nothing writes out",
            verdict.failure,
        )


def test_zeros_alone_are_not_informative(add: tuple[Plan, Images], root: Path, cache: Path) -> None:
    cases = root / "add" / "cases.py"
    zeros = 'Tensor(shape=("n",), draw=lambda rng, shape, dtype: np.zeros(shape))'
    text = cases.read_text().replace(
        '"x": Tensor(shape=("n",)), "y": Tensor(shape=("n",))', f'"x": {zeros}, "y": {zeros}'
    )
    cases.write_text(text.replace("from collections", "import numpy as np\nfrom collections"))
    report, _ = verified(add, root, cache)
    assert set(outcomes(report).values()) == {"failed"}
    for verdict in report.verdicts:
        assert verdict.failure.startswith("out is zero or infinite in every case")


def test_a_family_without_cases_is_unverified(add: tuple[Plan, Images], root: Path, cache: Path) -> None:
    (root / "add" / "cases.py").unlink()
    report, _ = verified(add, root, cache)
    assert set(outcomes(report).values()) == {"unverified"}
    with pytest.raises(VerifyError, match="no case is dispatched"):
        report.require_passed()
