"""Attention by a release on virtual devices: builds it unless named, runs calls that it serves."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aotforge.base.files import make_folders
from aotforge.deliver.extract import extract_release
from aotforge.devtools.demo.client import ClientRunner, build_client
from aotforge.devtools.demo.demo_report import DemoReport
from aotforge.errors import UnsupportedError
from aotforge.pack.model import DispatchKernel
from aotforge.pack.reader import open_pack
from aotforge.pipeline.build_release import build
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.images import make_plans
from aotforge.pipeline.requests import BuildRequest
from aotforge.plan.model import PlannedKernel
from aotforge.release.release import Release
from aotforge.run.release_programs import available_programs
from aotforge.verify.interpreter.number_formats import DType
from kernels.flash.call import DTYPE_KEY
from kernels.flash.call import Case as Problem
from vgpu.hip.build_hip import build_virtual_hip, environment

_LARGEST_HEAD_DIM = 64
_SHAPE = Problem(batch=2, heads_q=4, heads_k=2, seqlen_q=200, seqlen_k=200)


def demo(request: BuildRequest, named: Path | None, *, observer: BuildObserver) -> DemoReport:
    """Build unless a release is `named`, run on a virtual device of every arch, compare with float64.

    A named release must be complete and have the sums that it lists. Raises what `build` raises,
    ReleaseError, ToolchainError, ExecutorError without a sandbox, ExecutionError when a call fails,
    UnsupportedError when the profile has no attention.
    """
    plans, cache = make_plans(request), request.cache
    if named:
        Release.open(named).check_files()
    release = named or build(request, observer=observer).release.folder
    programs = available_programs()
    observer.stage("virtual GPU")
    archs = [arch for plan in plans for arch in plan.archs]
    with tempfile.TemporaryDirectory(prefix="aotforge-demo-") as made:
        folder = Path(made)
        extracted = extract_release(release, [plan.pack for plan in plans], folder)
        images = extracted.prefix / "lib" / "aotriton.images"
        problems = problems_of([open_pack(images / plan.pack).dispatch.kernels for plan in plans])
        virtual = build_virtual_hip(cache)
        client = build_client(request.root, extracted, virtual, folder / "client", programs)
        make_folders(cache)
        runner = ClientRunner(
            client=client,
            folder=folder,
            programs=programs,
            settings=environment(virtual, devices=archs, texts=extracted.texts, cache=cache),
            readable=(folder, *python_folders(request.root), virtual.folder.parent, *extracted.texts),
            cache=cache,
        )
        results = tuple(
            runner.run(problem, device, arch) for device, arch in enumerate(archs) for problem in problems
        )
    return DemoReport(release=release.name, tarballs=extracted.names, results=results)


def python_folders(root: Path) -> set[Path]:
    """What the virtual HIP needs to prepare an image: this interpreter with its packages, and sources of the
    checkout; not the folder that Python is installed in, which may be the user's home."""
    own = {root / name for name in ("aotforge", "vgpu", "ttcpu", "kernels", "manifests")}
    prefixes = (Path(sys.prefix), Path(sys.base_prefix))
    inner = {prefix / name for prefix in prefixes for name in ("bin", "lib", "pyvenv.cfg")}
    return {*own, *(path for path in inner if path.exists() and not path.is_relative_to("/usr"))}


def problems_of(packs: Sequence[Sequence[DispatchKernel | PlannedKernel]]) -> tuple[Problem, ...]:
    """Calls that the kernels of every pack serve: each dtype, full and causal, with the largest head_dim up
    to 64. Raises UnsupportedError.

    Wider images, such as general ones, are called only where there are no others.
    """
    every = set.intersection(*map(_served, packs))
    served = {call for call in every if call[1] <= _LARGEST_HEAD_DIM} or every
    problems = []
    dtypes: dict[int, DType] = {number: dtype for dtype, number in DTYPE_KEY.items()}
    for dtype, causal in sorted({(dtype, causal) for dtype, _, causal in served}):
        dims = [dim for served_dtype, dim, mask in served if (served_dtype, mask) == (dtype, causal)]
        dim = max(dims) if max(dims) <= _LARGEST_HEAD_DIM else min(dims)
        made = replace(_SHAPE, dtype=dtypes[dtype], head_dim=dim, sm_scale=dim**-0.5)
        problems.append(replace(made, window_right=0 if causal else None))
    if not problems:
        raise UnsupportedError(
            "the release has no attention that all of these archs serve",
            hint="choose another --profile, or a --release of one",
        )
    return tuple(problems)


def _served(kernels: Sequence[DispatchKernel | PlannedKernel]) -> set[tuple[int, int, int]]:
    """(dtype, width, whether it has a window) of the forward kernel, without bias and dropout."""
    return {
        (named["dtype"], named["width"], named["mask"])
        for kernel in kernels
        if kernel.operator == "attn_fwd"
        for functional in kernel.functionals
        for named in [dict(zip(kernel.keys, functional.key, strict=True))]
        if not named["dropout"] and named["mask"] in {0, 1}
    }
