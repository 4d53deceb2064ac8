"""Unpacked image packs for the source route (CMakeLists.txt), laid out as below `aotriton.images`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import output_lock, staged_folder
from aotforge.compile.cache import Cache
from aotforge.compile.pool import WorkerLimits
from aotforge.library.interface import check_interfaces
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.images import ImageBuilder, make_plans, pack_images
from aotforge.pipeline.requests import PacksRequest
from aotforge.plan.model import Plan
from aotforge.release.release_manifest import load_release_manifest


@dataclass(frozen=True, kw_only=True)
class PacksReport:
    """The plans whose packs the output has; `changed` is False when it had exactly these before."""

    plans: tuple[Plan, ...]
    output: Path
    changed: bool

    def lines(self) -> list[str]:
        """Lines of text."""
        count = sum(len(plan.jobs) for plan in self.plans)
        state = "are in" if self.changed else "were in already:"
        return [f"{count} images of {', '.join(plan.pack for plan in self.plans)} {state} {self.output}"]


def build_packs(request: PacksRequest, *, observer: BuildObserver) -> PacksReport:
    """The packs that a build puts into its image tarballs, byte for byte, without tarballs and library.

    Raises AotforgeError; the output stays as it was until all packs are complete.
    """
    plans = make_plans(request)
    check_interfaces(request.root, plans)
    manifest = load_release_manifest(request.root / "manifests" / "release.yaml")
    limits = WorkerLimits(job_seconds=request.minutes * 60 or math.inf)
    builder = ImageBuilder(request=request, observer=observer, limits=limits)
    with output_lock(request.output):
        files: dict[str, bytes] = {}
        with Cache(request.cache) as cache:
            for plan in plans:
                images, verdicts = builder.build(plan, cache, verify=request.verify)
                pack = pack_images(plan, images, manifest, verdicts).pack
                files |= {f"{pack.name}/{name}": data for name, data in pack.files.items()}
        changed = _files(request.output) != files
        if changed:
            with staged_folder(request.output) as staged:
                for name, data in files.items():
                    (staged / name).parent.mkdir(exist_ok=True)
                    (staged / name).write_bytes(data)
    return PacksReport(plans=plans, output=request.output, changed=changed)


def _files(output: Path) -> dict[str, bytes] | None:
    """Files below `output`; None when it cannot be read."""
    try:
        return {p.relative_to(output).as_posix(): p.read_bytes() for p in output.rglob("*") if not p.is_dir()}
    except OSError:
        return None
