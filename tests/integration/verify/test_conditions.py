"""Each condition of the verifier, by an image that meets all others: removing one condition turns exactly its
test red."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.verify import executors
from aotforge.verify.check_image import check_image
from aotforge.verify.verdict import ImageTask, Verdict
from aotforge.verify.verify_plan import image_tasks
from tests.integration.release.real import CACHE
from tests.support.families import PROJECT, plan_of
from tests.support.verified import compiled_images
from vgpu.emulator.program import LaunchReport, LaunchRequest

pytestmark = pytest.mark.compiler

_LAST = "tl.where(start + lane == n - 1, 0.001, 0.0)"
PLANTS = {
    "sound": "tl.store(out + start + lane, left + right, mask=mask)",
    "scaled": "tl.store(out + start + lane, (left + right) * 1.01, mask=mask)",
    "coarse": "tl.store(out + start + lane, (left + right) * 1.004, mask=mask)",
    "shifted": f"tl.store(out + start + lane, left + right + {_LAST}, mask=mask)",
    "after": "tl.store(out + start + lane, left + right, mask=mask)\n"
    "    tl.store(out + n + lane, left, mask=lane < 1)",
    "before": "tl.store(out + start + lane, left + right, mask=mask)\n"
    "    tl.store(out - 1 - lane, left, mask=lane < 1)",
    "input": "tl.store(out + start + lane, left + right, mask=mask)\n"
    "    tl.store(x + start + lane, left, mask=mask)",
    "zeros": "tl.store(out + start + lane, left + right, mask=mask & (left + right != 0))",
    "shared": "total = tl.sum(left) * 0\n    tl.store(out + start + lane, left + right + total, mask=mask)",
    "endless": "i = n\n    while i != 0:\n        i = i | 1\n"
    "    tl.store(out + start + lane, left + right + i, mask=mask)",
}
"""The end of the kernel by family."""

_CASES = """
import json
from pathlib import Path

import numpy as np
from aotforge.verify.compare import Bounded, Expected
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.tensors import Guarded, Layout

def make():
    bound, noise = json.loads(Path(__file__).with_name("bounds.json").read_text())
    rng, n = np.random.default_rng(7), 1000
    shape = (1, 1, 1, n)
    x, y = (rng.standard_normal(shape).astype(np.float32).astype(np.float64) for _ in range(2))
    x[..., ::5] = y[..., ::5] = 0.0
    x[..., -1], y[..., -1] = 1.0, 2.0
    inputs = {"x": Guarded(shape, "fp32", Layout(), x), "y": Guarded(shape, "fp32", Layout(), y)}
    out = Guarded(shape, "fp32", Layout())
    exact = x + y
    same = exact * (1 + rng.uniform(-noise, noise, shape))
    addresses = {name: tensor.address for name, tensor in {**inputs, "out": out}.items()}
    return Invocation(
        values={**addresses, "n": n, "dtype": 1},
        inputs=inputs,
        outputs={"out": out},
        expected=lambda: {"out": Expected(
            bounded=Bounded(value=exact, error=bound * np.abs(exact) + 1e-30), same_precision=[same],
                dtype="fp32",
        )},
    )

def cases(kernel, keys):
    return [Case(name="one", make=make)] * (3 if kernel == "shared" else 1)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family per plant: `add` with another end."""
    root = tmp_path_factory.mktemp("plants") / "kernels"
    for name, end in PLANTS.items():
        folder = root / name
        shutil.copytree(PROJECT / "kernels" / "add", folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("rules.py", "operators.py"):
            text = (folder / file).read_text()
            (folder / file).write_text(
                text.replace('name="add"', f'name="{name}"').replace('operator="add"', f'operator="{name}"')
            )
        (folder / "cases.py").write_text(_CASES)
        kernel = (folder / "add.py").read_text()
        assert kernel.count("    tl.store(") == 1
        (folder / "add.py").write_text(kernel[: kernel.index("tl.store(")] + end + "\n")
    return root


@pytest.fixture(scope="module")
def tasks(root: Path) -> dict[str, ImageTask]:
    """The fp32 image of each family."""
    plan = plan_of(root)
    plan = replace(plan, jobs=tuple(job for job in plan.jobs if job.label.endswith("fp32:0")))
    return {task.folder: task for task in image_tasks(plan, compiled_images(plan, root), root)}


def verdict(root: Path, task: ImageTask, *, bound: float = 1e-6, noise: float = 0.0) -> Verdict:
    """Of one image, in this process."""
    (root / task.folder / "bounds.json").write_text(json.dumps([bound, noise]))
    return check_image(task, kernels_root=root, cache=CACHE)


def failures(found: Verdict) -> list[str]:
    """The texts, each once: both schedules have the same."""
    assert found.outcome == "failed"
    lines = [line for line in found.failure.splitlines() if line.startswith("one")]
    return sorted({line.partition(": ")[2] for line in lines})


@pytest.mark.parametrize(("bound", "noise"), [(1e-6, 0.0), (0.05, 0.01), (0.05, 0.0), (1e-6, 0.01)])
def test_the_sound_image_passes_with_all_bounds(
    root: Path, tasks: dict[str, ImageTask], bound: float, noise: float
) -> None:
    assert verdict(root, tasks["sound"], bound=bound, noise=noise).outcome == "passed"


def test_a_scaled_tile(root: Path, tasks: dict[str, ImageTask]) -> None:
    (text,) = failures(verdict(root, tasks["scaled"], bound=0.05, noise=0.01))
    assert re.fullmatch(r"the tile of out at \(0, 0, 0, \d+\) is scaled by 1\.00%", text)


def test_a_coarser_result_than_the_same_precision_gives(root: Path, tasks: dict[str, ImageTask]) -> None:
    (text,) = failures(verdict(root, tasks["coarse"], bound=0.05, noise=0.0))
    assert "where the same computation in the same precision allows" in text


def test_the_last_element_alone(root: Path, tasks: dict[str, ImageTask]) -> None:
    (text,) = failures(verdict(root, tasks["shifted"], bound=1e-6, noise=0.01))
    assert text.startswith("out is wrong in 1 of 1000 elements, worst ")
    assert text.endswith("the first at (0, 0, 0, 999) is 3.001 instead of 3")


@pytest.mark.parametrize("name", ["before", "after"])
def test_a_store_beside_the_output(root: Path, tasks: dict[str, ImageTask], name: str) -> None:
    assert failures(verdict(root, tasks[name])) == ["elements outside of out were written"]


def test_a_store_of_the_same_value_to_an_input(root: Path, tasks: dict[str, ImageTask]) -> None:
    """Under both schedules; the text, which is the same, is listed once."""
    found = verdict(root, tasks["input"])
    assert found.faults == found.runs == 2
    assert found.failure.count("from the start of x, which has 4512 bytes, read-only") == 1, found.failure


def test_a_zero_that_is_not_written(root: Path, tasks: dict[str, ImageTask]) -> None:
    assert any("is nan instead of 0" in text for text in failures(verdict(root, tasks["zeros"])))


def test_less_lds_than_the_image_uses(root: Path, tasks: dict[str, ImageTask]) -> None:
    task = tasks["shared"]
    size = task.resources.dynamic_shared_bytes
    assert size > 0 and verdict(root, task).outcome == "passed"
    less = replace(task, resources=replace(task.resources, dynamic_shared_bytes=size - 4))
    found = verdict(root, less)
    assert found.faults == found.runs and "LDS" in found.failure, found.failure


def test_an_endless_loop(root: Path, tasks: dict[str, ImageTask], monkeypatch: pytest.MonkeyPatch) -> None:
    assert executors._LIMIT == 20_000_000
    monkeypatch.setattr(executors, "_LIMIT", 100_000)
    assert verdict(root, tasks["sound"]).outcome == "passed"
    found = verdict(root, tasks["endless"])
    assert found.faults == found.runs and "100000" in found.failure.replace(",", ""), found.failure


class _Recorder:
    """An emulator that executes nothing: it keeps the requests."""

    listing, target = None, None

    def __init__(self) -> None:
        self.requests: list[LaunchRequest] = []
        self.writable: list[set[str]] = []

    def __call__(self, arch: str, *, cache: Path) -> _Recorder:
        return self

    def load(self, hsaco: bytes, asm: str) -> _Recorder:
        return self

    def launch(self, request: LaunchRequest) -> LaunchReport:
        self.requests.append(request)
        self.writable.append({name for name, *_, writable in request.memory.spans() if writable})
        return LaunchReport(instructions=0, counts=Counter(), workgroups=1, seconds=0.0, threads=1)


def test_the_request_of_every_launch(
    root: Path, tasks: dict[str, ImageTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage in registers, LDS and scratch differs in all launches, and all checks are on."""
    emulator = _Recorder()
    monkeypatch.setattr(executors, "Emulator", emulator)
    monkeypatch.setattr(executors, "find_hazards", lambda *_: [])
    task = tasks["shared"]
    found = verdict(root, task)
    assert (found.cases, found.runs) == (("one",), 6)
    assert len(emulator.requests) == 6
    assert len({request.seed for request in emulator.requests}) == 6
    assert [request.schedule for request in emulator.requests] == [None, 0x5EED] * 3
    assert {request.checks for request in emulator.requests} == {True}
    assert {request.limit for request in emulator.requests} == {20_000_000}
    assert {request.lds_bytes for request in emulator.requests} == {task.resources.dynamic_shared_bytes}
    assert emulator.writable == [{"out"}] * 6
