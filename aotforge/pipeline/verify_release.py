"""Verification of a profile's images, or of a release folder: its bytes, dispatch data and texts."""

from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Any

from aotforge.errors import ReleaseError, UnsupportedError
from aotforge.pack.reader import open_files
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.image_texts import check_texts
from aotforge.pipeline.images import check_no_host_calls, make_plans, open_builder
from aotforge.pipeline.requests import VerifyRequest
from aotforge.pipeline.shared_cache import shared_objects
from aotforge.plan.checkout import Checkout
from aotforge.plan.selection import Only
from aotforge.release.release import Release
from aotforge.release.release_tasks import check_dispatch, operator_kernels, release_tasks
from aotforge.verify.report import VerifyReport, joined_report
from aotforge.verify.verify_plan import verify_tasks


def verify(request: VerifyRequest, *, observer: BuildObserver) -> VerifyReport:
    """Verdicts on the images that the request selects; missing images of a profile are compiled."""
    if request.release:
        if request.profile:
            raise UnsupportedError(
                "--profile does not fit --release",
                cause="a release has the profile that it was built with",
                hint="./dev verify --release FOLDER",
            )
        return verify_release(
            request.release,
            checkout=request.checkout,
            cache=request.cache,
            archs=request.archs,
            only=Only(request.only),
            jobs=request.jobs,
            on_event=observer.verdict,
            on_stage=observer.stage,
            device=request.device,
        )
    if not request.archs:
        raise UnsupportedError(
            "--arch or --release is missing",
            hint="./dev verify --arch gfx908, or --release releases/dist/...",
        )
    plans = make_plans(request, only=Only(request.only))
    with (
        shared_objects(request, observer.note) as shared,
        open_builder(request, shared, observer, device=request.device) as builder,
    ):
        images = [builder.compile(plan) for plan in plans]
        return joined_report([builder.verify(plan, made) for plan, made in zip(plans, images, strict=True)])


def verify_release(
    folder: Path,
    *,
    checkout: Checkout,
    archs: Iterable[str] = (),
    only: Only | None = None,
    **options: Any,
) -> VerifyReport:
    """Verdicts on every image of the release in `folder`, once each; with `archs` and `only`, on theirs.

    Raises ReleaseError for an archive that is missing, altered or damaged and for an arch that no pack has,
    PackError, RulesError for a kernel family that the checkout lacks, and what `verify_tasks` raises, whose
    `options` these are.
    """
    wanted = frozenset(archs)
    packs = [(released, open_files(released.pack)) for released in Release.open(folder).packs()]
    if lacking := wanted - {arch for _, opened in packs for arch in opened.signature.archs}:
        raise ReleaseError(
            f"{folder} has no images for {', '.join(sorted(lacking))}",
            hint=f"./dev verify --release {quote(str(folder))} without --arch",
        )
    selected = (only or Only()).kernels(row for _, opened in packs for row in operator_kernels(opened))
    reports = []
    for released, opened in packs:
        chosen = tuple(arch for arch in opened.signature.archs if not wanted or arch in wanted)
        if chosen:
            name, profile = released.pack.name, opened.signature.profile
            if on_stage := options.get("on_stage"):
                on_stage(f"comparing images of {name} with their assembly texts")
            tasks = release_tasks(released, opened, chosen, checkout, selected)
            check_dispatch(opened, checkout)
            check_no_host_calls(tasks)
            check_texts(tasks, jobs=options.get("jobs"))
            reports.append(
                verify_tasks(tasks, name, chosen, profile, kernels_root=checkout.kernels, **options)
            )
    return joined_report(reports)
