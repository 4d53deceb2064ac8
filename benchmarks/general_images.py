"""Estimated cost of the general attention images as a multiple of the special ones', for calls that the
default profile leaves to them.

By the model of `./dev cost`; special images are those of the complete profile. `--write` puts the multiples
into
manifests/general_costs.yaml, which `./dev coverage` and docs/attention.md show.

    python -m benchmarks.general_images [--write] ARCH ...
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from aotforge.base.architectures import load_architectures
from aotforge.base.files import write_atomic
from aotforge.base.general_costs import GeneralCost, load_general_costs, written
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.devtools.cost.run_cost import ProgramCost
from aotforge.plan.checkout import Checkout
from aotforge.plan.model import JobKey, Plan
from aotforge.plan.planner import plan_project
from aotforge.plan.selection import Only
from aotforge.verify.interpreter.dispatch import Launch, Use, launch_of, uses_of
from kernels.flash.call import Bias, Dropout
from kernels.flash.call import Case as Problem
from kernels.flash.cases import invocation_of
from vgpu.cache import default_cache
from vgpu.emulator.program import Emulator, LaunchRequest

ROOT = Path(__file__).parents[1]
_KERNELS = {"attn_fwd": ("attn_fwd",), "attn_bwd": ("bwd_preprocess", "bwd_dk_dv", "bwd_dq")}
_BASE = Problem(heads_q=1, heads_k=1, seqlen_q=256, seqlen_k=256)
_CAUSAL = replace(_BASE, window_right=0)
CALLS = (
    *(replace(_BASE, head_dim=dim, dropout=Dropout(p=0.1)) for dim in (64, 128)),
    *(replace(_CAUSAL, head_dim=dim, dropout=Dropout(p=0.1)) for dim in (64, 128)),
    *(replace(_BASE, head_dim=dim, bias=Bias()) for dim in (64, 128)),
    *(replace(_BASE, head_dim=dim, dtype="fp32") for dim in (64, 128)),
    *(replace(problem, head_dim=256) for problem in (_BASE, _CAUSAL)),
)


@dataclass(frozen=True, kw_only=True)
class Images:
    """A plan's images and how it dispatches to them."""

    plan: Plan
    uses: dict[JobKey, tuple[Use, ...]]

    def find(self, kernel: str, problem: Problem) -> tuple[JobKey, Launch]:
        """The image that serves a call, and its launch."""
        values = invocation_of(kernel, problem).values
        for key, every in self.uses.items():
            for use in every:
                launch = launch_of(use, values) if use.kernel.name == kernel else None
                if launch is not None:
                    return key, launch
        raise SystemExit(f"{self.plan.profile} has no image of {kernel} for {problem}")


def images_of(arch: str, profile: str) -> Images:
    """Attention of a profile."""
    plan = plan_project(Checkout(ROOT), archs=[arch], profile=profile, only=Only(("flash",)))
    return Images(plan=plan, uses=uses_of(plan, {job.key: job.target.arch for job in plan.jobs}))


def compiled(plan: Plan, key: JobKey, cache: Path) -> KernelImage:
    """One image of a plan."""
    with Cache(cache) as opened:
        return compile_plan(
            replace(plan, jobs=tuple(job for job in plan.jobs if job.key == key)),
            kernels_root=ROOT / "kernels", architectures=load_architectures(ROOT / "manifests"), cache=opened,
        )[key]  # fmt: skip


def cycles(arch: str, images: Images, kernel: str, problem: Problem, cache: Path) -> float:
    """Of the kernel's workgroups on a GPU that others keep busy, as ./dev tune compares settings."""
    key, _ = images.find(kernel, problem)
    image = compiled(images.plan, key, cache)
    program = Emulator(arch, cache=cache).load(image.binary, image.asm)
    costs, lds_bytes = ProgramCost(program, image.binary), image.resources.dynamic_shared_bytes
    invocation = invocation_of(kernel, problem)
    launch = next(
        launched for use in images.uses[key] if (launched := launch_of(use, invocation.values)) is not None
    )
    program.launch(
        LaunchRequest(
            grid=launch.grid,
            arguments=tuple(launch.arguments.values()),
            memory=invocation.memory(),
            lds_bytes=lds_bytes,
            meter=costs.meter,
            hooks=costs.recorder.hooks,
        )
    )
    made = costs.cost(kernel, "", launch.grid, lds_bytes)
    return made.estimate.workgroup * made.work.workgroups


def multiples(arch: str, cache: Path) -> Iterator[GeneralCost]:
    """A row for each call and direction that the default profile leaves to general images."""
    ours, special = images_of(arch, "core"), images_of(arch, "full")
    for problem in CALLS:
        for operator, kernels in _KERNELS.items():
            total = [0.0, 0.0]
            for kernel in kernels:
                for number, images in enumerate((ours, special)):
                    total[number] += cycles(arch, images, kernel, problem, cache)
            mask: Literal["full", "window", "bias"] = "bias" if problem.bias else "full"
            if problem.window_right is not None:
                mask = "window"
            row = GeneralCost(
                arch=arch, operator=operator, dtype=problem.dtype, mask=mask,
                dropout=problem.dropout is not None,
                head_dim=problem.head_dim, multiple=round(total[0] / total[1], 2),
            )  # fmt: skip
            print(row.text(), flush=True)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archs", nargs="+", metavar="ARCH")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for arch in options.archs:
        rows = tuple(multiples(arch, default_cache()))
        if options.write:
            table = load_general_costs(ROOT / "manifests")
            text = written(table, arch, rows, datetime.now(UTC).date().isoformat())
            write_atomic(ROOT / "manifests" / "general_costs.yaml", text.encode())


if __name__ == "__main__":
    main()
