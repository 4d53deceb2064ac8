"""What PyTorch's tests run against: a pack of the images that some cases need, the library of every level, a
virtual GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aotforge.base.architectures import Profile, Profiles, load_architectures
from aotforge.base.hazards import load_hazards
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.pack.writer import write_pack
from aotforge.plan.closure import SourceTree
from aotforge.plan.families import load_families
from aotforge.plan.model import Plan, PlannedKernel
from aotforge.plan.planner import make_plan
from aotforge.toolchain.triton import pinned_triton, read_toolchain
from kernels.flash.call import DTYPE_KEY
from tests.support.runtime import CACHE, ROOT, Objects
from vgpu.hip.build_hip import VirtualHip, build_virtual_hip, environment

from .grids import Case, minor_of
from .wheel import FIXTURES, compile_with_pytorch

_MASKS = {"full": 0, "window": 1, "bias": 2}
WORKER = [sys.executable, "-m", "tests.integration.pytorch.compare"]
Functional = tuple[str, bool, str, int]
"""dtype, dropout, mask and width, as the kernels' rules name them."""


def needed(case: Case, widths: Sequence[int]) -> Functional:
    """The functional that serves a case, of those with these widths."""
    head_dim = case.head_dim + -case.head_dim % 8
    width = min(width for width in widths if width >= head_dim)
    return case.dtype, case.dropout_p > 0, case.mask, width


def plan_of(functionals: Iterable[Functional], arch: str = "gfx908") -> Plan:
    """A plan of exactly these functionals, and the dropout masks that PyTorch requests with them."""
    wanted = set(functionals)
    keep: dict[str, tuple[bool | int | str, ...]] = {
        "flash.dtype": tuple(sorted({dtype for dtype, *_ in wanted} | {"fp32"})),
        "flash.dropout": tuple(sorted({dropout for _, dropout, *_ in wanted})),
        "flash.mask": tuple(sorted({mask for *_, mask, _ in wanted})),
        "flash.width": tuple(sorted({width for *_, width in wanted})),
    }
    profile = Profile(description="cases of PyTorch", complete=False, keep=keep)
    plan = profile_plan("cases", Profiles(schema=1, default="cases", profiles={"cases": profile}), arch)
    keys = {
        (DTYPE_KEY[dtype], int(dropout), _MASKS[mask], width)  # type: ignore[index]
        for dtype, dropout, mask, width in wanted
    }
    masks = {DTYPE_KEY[dtype] for dtype, dropout, *_ in wanted if dropout} | {1}  # type: ignore[index]
    return _only(plan, lambda key: key in keys if len(key) == 4 else _partly(key, keys, masks))


def profile_plan(profile: str | None, profiles: Profiles, arch: str = "gfx908") -> Plan:
    """A plan of attention by one of the profiles, None for the default."""
    kernels = ROOT / "kernels"
    return make_plan(
        tuple(loaded for loaded in load_families(kernels) if loaded.family.name == "flash"),
        SourceTree(root=kernels),
        archs=[arch],
        architectures=load_architectures(ROOT / "manifests"),
        profiles=profiles,
        profile=profile or profiles.default,
        toolchain=read_toolchain(pinned_triton(ROOT / "requirements" / "build.in")),
        hazards=load_hazards(ROOT / "manifests"),
    )


def _partly(key: tuple[int, ...], keys: set[tuple[int, int, int, int]], masks: set[int]) -> bool:
    """Of kernels with fewer choices: (dtype, width), or the dtype of a mask."""
    return key in {(dtype, width) for dtype, _, _, width in keys} if len(key) == 2 else key[0] in masks


def _only(plan: Plan, kept: Callable[[tuple[int, ...]], bool]) -> Plan:
    kernels: list[PlannedKernel] = []
    for kernel in plan.kernels:
        functionals = tuple(one for one in kernel.functionals if kept(one.key))
        if functionals:
            kernels.append(replace(kernel, functionals=functionals))
    used = {c.job for kernel in kernels for f in kernel.functionals for c in f.choices}
    return replace(
        plan, kernels=tuple(kernels), jobs=tuple(job for job in plan.jobs if job.key in used), gates=()
    )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The library of the device, those of calls by API level, and the environment of a process that uses
    them."""

    device: Path
    calls: Mapping[str, Path]
    environment: Mapping[str, str]

    def run(self, cases: Sequence[Case]) -> list[dict[str, Any]]:
        """Results of cases, one after another, in one process."""
        done = subprocess.run(
            [*WORKER, str(self.device), *(f"{level}={path}" for level, path in self.calls.items())],
            input="".join(json.dumps(asdict(case)) + "\n" for case in cases),
            capture_output=True, text=True, check=False, cwd=ROOT, env=dict(self.environment),
        )  # fmt: skip
        assert done.returncode == 0, f"the worker ended with {done.returncode}:\n{done.stderr[-6000:]}"
        return [json.loads(line) for line in done.stdout.splitlines()]


def make_stack(plans: Sequence[Plan], objects: Objects, levels: Iterable[str], folder: Path) -> Stack:
    """Compile the plans' images, of an arch each, and the calls. `objects`: a build of the library with its
    levels."""
    stack = stack_of(_compiled(plans), objects, levels, folder)
    return replace(stack, environment={**stack.environment, "AOTFORGE_PARTIAL_PACK": "1"})


def stack_of(
    packs: Sequence[tuple[Plan, Collection[KernelImage]]],
    objects: Objects,
    levels: Iterable[str],
    folder: Path,
) -> Stack:
    """Packs of compiled images, of an arch each, and the calls; without AOTFORGE_PARTIAL_PACK."""
    virtual = build_virtual_hip(CACHE)
    settings = _written(packs, virtual, folder)
    return Stack(
        device=compile_with_pytorch([FIXTURES / "device.cpp"], folder / "device.so", [str(virtual.library)]),
        calls={level: _calls(objects.at(level), folder / f"calls-{level}.so") for level in levels},
        environment=settings | {"AOTRITON_LOG": "warn"},
    )


def pack(plans: Sequence[Plan], virtual: VirtualHip, folder: Path) -> dict[str, str]:
    """Compile the plans' images into packs; the environment of a process that finds them and the GPUs."""
    return _written(_compiled(plans), virtual, folder)


def _compiled(plans: Sequence[Plan]) -> list[tuple[Plan, Collection[KernelImage]]]:
    architectures = load_architectures(ROOT / "manifests")
    with Cache(CACHE) as cache:
        return [
            (
                plan,
                compile_plan(
                    plan, kernels_root=ROOT / "kernels", architectures=architectures, cache=cache
                ).values(),
            )
            for plan in plans
        ]


def _written(
    packs: Sequence[tuple[Plan, Collection[KernelImage]]], virtual: VirtualHip, folder: Path
) -> dict[str, str]:
    """Writes packs and texts below `folder`; the environment of a process that finds them and the GPUs."""
    images, texts = folder / "images", folder / "texts"
    texts.mkdir()
    for plan, compiled in packs:
        target = images / f"amd-{plan.archs[0]}"
        target.mkdir(parents=True)
        for name, content in write_pack(plan, compiled, release="0.11.2b-r1").files.items():
            (target / name).write_bytes(content)
        for image in compiled:
            (texts / f"{image.digest}.s").write_text(image.asm)
    archs = [arch for plan, _ in packs for arch in plan.archs]
    settings = environment(virtual, devices=archs, texts=[texts], cache=CACHE)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AOTRITON_")}
    clean.pop("AOTFORGE_PARTIAL_PACK", None)
    return clean | settings | {"AOTRITON_IMAGES_DIR": str(images)}


def _calls(objects: Objects, out: Path) -> Path:
    """Calls through the adapter at the level of `objects`."""
    folders = [objects.level_folder / "include", ROOT / "runtime" / "include"]
    name = f"-DLIBRARY_NAME=aotforge_{minor_of(objects.level)}"
    flags = [name, *(f"-I{path}" for path in folders), f"-Wl,-rpath,{objects.level_folder}"]
    return compile_with_pytorch([FIXTURES / "calls.cpp"], out, [*flags, str(objects.library)])
