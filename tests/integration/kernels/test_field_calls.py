# ruff: noqa: E501 - one call per line
"""Attention calls that failed with other libraries: odd head_dims, large magnitudes, lowest numbers,
non-contiguous V, fp32 causal.

Each kernel is interpreted with small blocks. Among the slow tests the compiled images of gfx908 that serve
the calls are executed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.plan.model import CompileJob
from aotforge.verify.interpreter.dispatch import Launch, launch_of, uses_of
from aotforge.verify.interpreter.number_formats import DType, decode, encode
from aotforge.verify.invocation import Invocation
from aotforge.verify.tensors import Float
from kernels.flash.call import Bias, Case
from kernels.flash.cases import invocation_of
from tests.integration.kernels.features import KERNELS, violations
from tests.support.families import plan_project
from tests.support.runtime import CACHE, ROOT
from vgpu.emulator.launch import LaunchRequest
from vgpu.emulator.program import Emulator

ATTENTION = [name for name in KERNELS if name != "attn_dropout_mask"]


@dataclass(frozen=True, kw_only=True)
class Large(Case):
    """Values of Q, K, V around `magnitude`; gradients are not scaled, so that no result exceeds its type."""

    magnitude: float = 1.0

    def inputs(self) -> dict[str, Float]:
        drawn = super().inputs()
        scaled = {name: drawn[name] * self.magnitude for name in "QKV"}
        return drawn | {name: decode(encode(x, self.dtype), self.dtype) for name, x in scaled.items()}


BASE = Case(heads_q=2, heads_k=1, seqlen_q=20, seqlen_k=37)
HALF: tuple[DType, ...] = ("fp16", "bf16")
DIMS = (40, 72, 80, 96, 160, 384, 512)
CALLS: dict[str, Case] = {
    f"head_dim {dim}, {dtype}": replace(BASE, dtype=dtype, head_dim=dim, sm_scale=dim**-0.5, mixed=dim == 80)
    for dim, dtype in zip(DIMS, itertools.cycle(HALF), strict=False)
}
CALLS |= {
    "fp32, head_dim 80, causal": replace(BASE, dtype="fp32", head_dim=80, seqlen_q=40, seqlen_k=40, window_right=0, sm_scale=80**-0.5),
    "fp32, head_dim 80, causal, bottom-right": replace(BASE, dtype="fp32", head_dim=80, seqlen_q=20, seqlen_k=45, window_right=25, sm_scale=80**-0.5),
    "V is a view of (batch, rows, heads, head_dim)": replace(BASE, head_dim=128, heads_k=2, mixed=True, sm_scale=128**-0.5),
    "bf16 of 1e5": Large(**{**vars(BASE), "dtype": "bf16", "head_dim": 64, "sm_scale": 2e-11, "magnitude": 1e5}),
    "bf16 of 1e5, head_dim 72": Large(**{**vars(BASE), "dtype": "bf16", "head_dim": 72, "sm_scale": 2e-11, "magnitude": 1e5}),
    "fp16 of 1e4": Large(**{**vars(BASE), "dtype": "fp16", "head_dim": 64, "sm_scale": 2e-9, "magnitude": 1e4}),
    "rows of fp16's lowest number": replace(BASE, head_dim=64, sm_scale=0.125, bias=Bias(kind="lowest")),
    "rows of bf16's lowest number": replace(BASE, dtype="bf16", head_dim=96, sm_scale=0.1, bias=Bias(kind="lowest", broadcast=(0, 1))),
    "rows of fp32's lowest number": replace(BASE, dtype="fp32", head_dim=64, sm_scale=0.125, bias=Bias(kind="lowest", broadcast=(1,))),
}  # fmt: skip
DIMS_OF_PIECES = 160
"""From here on blocks are interpreted in pieces, which takes seconds."""
QUICK = [name for name, call in CALLS.items() if call.head_dim < DIMS_OF_PIECES]


@pytest.mark.parametrize("name", QUICK)
def test_calls_of_the_field_agree_with_float64(name: str) -> None:
    for kernel in ATTENTION:
        assert list(violations(kernel, CALLS[name])) == [], kernel


@pytest.mark.parametrize("name", sorted(CALLS.keys() - set(QUICK)))
def test_wide_calls_of_the_field_agree_with_float64(name: str) -> None:
    for kernel in ("attn_fwd", "bwd_preprocess"):
        assert list(violations(kernel, CALLS[name])) == [], kernel


def served(kernel: str, invocation: Invocation) -> tuple[CompileJob, Launch]:
    """The image of gfx908's complete profile that a call takes."""
    plan = plan_project(ROOT, archs=["gfx908"], profile="full")
    jobs = {job.key: job for job in plan.jobs}
    ((key, launch),) = (
        (key, launch)
        for key, uses in uses_of(plan, dict.fromkeys(jobs, "gfx908")).items()
        for use in uses
        if use.kernel.name == kernel and (launch := launch_of(use, invocation.values))
    )
    return jobs[key], launch


def image_violations(kernel: str, call: Case) -> Iterator[str]:
    """What the verifier would report of the compiled image."""
    invocation = invocation_of(kernel, call)
    job, launch = served(kernel, invocation)
    plan = replace(plan_project(ROOT, archs=["gfx908"], profile="full"), jobs=(job,))
    with Cache(CACHE) as cache:
        image = compile_plan(
            plan, kernels_root=ROOT / "kernels", architectures=load_architectures(ROOT / "manifests"), cache=cache, jobs=1,
        )[job.key]  # fmt: skip
    Emulator("gfx908", cache=CACHE).load(image.binary, image.asm).launch(
        LaunchRequest(
            grid=launch.grid,
            arguments=list(launch.arguments.values()),
            memory=invocation.memory(),
            lds_bytes=image.resources.dynamic_shared_bytes,
            jobs=1,
        )
    )  # fmt: skip
    expected = invocation.expected()
    for name, tensor in invocation.outputs.items():
        yield from expected[name].compare(tensor.values()).violations(name)
        if not tensor.intact():
            yield f"elements outside of {name} were written"


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kernel", ATTENTION)
def test_images_serve_calls_of_the_field(name: str, kernel: str) -> None:
    assert list(image_violations(kernel, CALLS[name])) == []
