"""ComfyUI's probe for flash attention: program, library, pack, code object and virtual device, on every AMD
arch that has kernels.

It answers yes when the gate and one call succeed and no error is pending after synchronisation. A pack whose
image is missing must answer no, as must one that serves less than the gate.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotforge.base.architectures import load_architectures
from aotforge.plan.model import Plan, ServedGate
from aotforge.verify.interpreter.dispatch import launch_of, uses_of
from aotforge.verify.tensors import Guarded
from kernels.flash.bounds import bounds
from kernels.flash.call import tensor_of, values_of
from tests.integration.pytorch.grids import minor_of
from tests.integration.pytorch.stack import Stack, make_stack, plan_of
from tests.support.runtime import DEFAULT_LEVEL, ROOT, build_objects

from .probe_worker import PROBE

pytestmark = pytest.mark.compiler

WORKER = [sys.executable, "-m", "tests.integration.vgpu.hip.probe_worker"]
ARCHS = tuple(load_architectures(ROOT / "manifests").amd)
DEFAULT = ("gfx908", "gfx1201")
"""One arch of each width of a wave; the others are among the slow tests, an image each to compile."""
NOT_SUPPORTED, FILE_NOT_FOUND, NO_BINARY, NO_ERROR, INVALID_VALUE = 801, 301, 209, 0, 1


@dataclass(frozen=True, kw_only=True)
class Probes:
    """A stack for devices of some archs, and its images: as they are, without their bytes, and without a
    gate."""

    archs: tuple[str, ...]
    stack: Stack
    complete: Path
    damaged: Path
    partial: Path

    def run(self, images: Path) -> dict[str, dict[str, Any]]:
        """What the probe finds, by arch."""
        settings = {"AOTRITON_IMAGES_DIR": str(images), "AOTFORGE_PARTIAL_PACK": "", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*WORKER, str(self.stack.device), str(self.stack.calls[DEFAULT_LEVEL]),
                f"aotforge_{minor_of(DEFAULT_LEVEL)}"],
            env={**self.stack.environment, **settings}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        lines = done.stdout.splitlines()
        return {arch: json.loads(line) for arch, line in zip(self.archs, lines, strict=True)}


def probe_plan(arch: str) -> Plan:
    """A plan of the one image that serves the probe, which states that it serves PyTorch's gate."""
    plan = plan_of([("fp16", False, "full", 64)], arch=arch)
    inputs = PROBE.inputs()
    tensors: Mapping[str, Guarded] = {
        name: tensor_of(PROBE, name, inputs.get(name)) for name in ("Q", "K", "V", "Out", "L")
    }
    values = {**values_of(PROBE, tensors), "stride_lz": 8, "stride_lh": 8, "stride_lm": 1}
    (job,) = (
        job for job, uses in uses_of(plan, {job.key: arch for job in plan.jobs}).items()
        for use in uses if use.kernel.name == "attn_fwd" and launch_of(use, values)
    )  # fmt: skip
    kernels = [
        replace(
            kernel,
            functionals=tuple(
                replace(functional, choices=tuple(c for c in functional.choices if c.job == job))
                for functional in kernel.functionals
            ),
        )
        for kernel in plan.kernels
        if kernel.name == "attn_fwd"
    ]
    gate = ServedGate(gate=DEFAULT_LEVEL.rsplit(".", 1)[0], arch=arch)
    operators = tuple(one for one in plan.operators if one.name == "attn_fwd")
    jobs = tuple(one for one in plan.jobs if one.key == job)
    return replace(plan, operators=operators, kernels=tuple(kernels), jobs=jobs, gates=(gate,))


def make_probes(archs: Sequence[str], folder: Path) -> Probes:
    plans = [probe_plan(arch) for arch in archs]
    (folder / "partial").mkdir()
    stack = make_stack(plans, build_objects(), [DEFAULT_LEVEL], folder)
    less = make_stack([replace(p, gates=()) for p in plans], build_objects(), [], folder / "partial")
    complete, damaged = folder / "images", folder / "damaged"
    shutil.copytree(complete, damaged)
    for arch in archs:
        (damaged / f"amd-{arch}" / "flash.attn_fwd.aoti").unlink()
    partial = Path(less.environment["AOTRITON_IMAGES_DIR"])
    return Probes(archs=tuple(archs), stack=stack, complete=complete, damaged=damaged, partial=partial)


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Probes:
    return make_probes(DEFAULT, tmp_path_factory.mktemp("probes"))


def check_served(probes: Probes) -> None:
    inputs = PROBE.inputs()
    expected = bounds(
        inputs["Q"], inputs["K"], inputs["V"], inputs["DO"], PROBE.options(inputs), dtype="fp16"
    )
    for arch, found in probes.run(probes.complete).items():
        assert found["check"] == [0, NO_ERROR], arch
        assert found["dropped"] == [0, 0, NO_ERROR, NO_ERROR], arch
        assert found["thrown"] == [0, 0, NO_ERROR], arch
        out, lse = np.array(found["out"]), np.array(found["lse"])[None]
        assert expected["out"].misses(out).max() <= 1 and expected["lse"].misses(lse).max() <= 1, arch
        assert np.abs(out - expected["out"].value).max() > 0, arch  # fp16 is not exact


def check_missing(probes: Probes) -> None:
    """The image is missing: a caller that drops the result finds the error once, one that throws does not
    find it again."""
    for arch, found in probes.run(probes.damaged).items():
        assert found["check"] == [0, NO_ERROR], arch
        assert found["dropped"] == [FILE_NOT_FOUND, 0, INVALID_VALUE, NO_ERROR], arch
        assert found["thrown"] == [FILE_NOT_FOUND, 0, NO_ERROR], arch
        assert np.isnan(found["out"]).all() and np.isnan(found["lse"]).all(), arch


def check_partial(probes: Probes) -> None:
    """A pack that states no gate: `check_gpu` refuses and leaves no error; the call has its image."""
    for arch, found in probes.run(probes.partial).items():
        assert found["check"] == [NOT_SUPPORTED, NO_ERROR], arch
        assert found["dropped"] == [0, 0, NO_ERROR, NO_ERROR], arch


def check_empty(probes: Probes) -> None:
    """A wheel of a device without the one of its family has no images: PyTorch's gate is closed, and no
    error is left for the next call."""
    images = probes.complete.parent / "empty"
    images.mkdir()
    for arch, found in probes.run(images).items():
        assert found["check"] == [NO_BINARY, NO_ERROR], arch
        assert found["thrown"] == [NO_BINARY, 0, NO_ERROR], arch
        assert np.isnan(found["out"]).all(), arch


@pytest.mark.parametrize("check", [check_served, check_missing, check_partial, check_empty])
def test_the_probe_of_comfyui_on_virtual_devices(probes: Probes, check: Any) -> None:
    check(probes)


@pytest.mark.slow
def test_the_probe_of_comfyui_on_every_virtual_arch(tmp_path: Path) -> None:
    assert {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201"} < set(ARCHS)
    probes = make_probes(ARCHS, tmp_path)
    for check in (check_served, check_missing, check_partial):
        check(probes)
