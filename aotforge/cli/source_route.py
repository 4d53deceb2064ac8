"""Tasks that the source route (CMakeLists.txt) calls."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from aotforge.cli.command import ARCH, PROFILE, ROOT, archs_of, cache_folder, door, job_count, say


@task(
    help={
        "arch": ARCH,
        "output": "folder that gets <pack>/ for every pack, and loses everything else",
        "profile": PROFILE,
        "minutes": "minutes that the compilation of one kernel may take; 0: no limit",
        "jobs": "worker processes at most (default: as many as CPUs and free memory allow)",
        "cache": "folder of compiled images (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "verify": "execute every image on the virtual GPU before it is packed",
        "quiet": "no progress",
    }
)
@door
def images(
    c: Context,
    arch: str,
    output: str,
    profile: str | None = None,
    minutes: float = 10.0,
    jobs: int = 0,
    cache: str | None = None,
    verify: bool = True,
    quiet: bool = False,
) -> None:
    """Image packs alone, unpacked, for a build with cmake (docs/source-route.md)."""
    from aotforge.pipeline.display import build_display  # noqa: PLC0415
    from aotforge.pipeline.image_packs import ImagesRequest, build_images, report_text  # noqa: PLC0415

    request = ImagesRequest(
        root=ROOT, archs=archs_of(arch), profile=profile, output=Path(output).absolute(), cache=cache_folder(cache),
        jobs=job_count(jobs), minutes=minutes, verify=verify,
    )  # fmt: skip
    with build_display(quiet=quiet) as display:
        report = build_images(request, observer=display)
    say(report_text(report))


TASKS = (("source", "images", images),)
