"""Tasks that make a release, compare releases, make one again, and put one into PyTorch."""

from __future__ import annotations

import json as json_
import os
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from aotforge.cli.command import (
    ARCH,
    EXECUTOR,
    JSON,
    PROFILE,
    ROOT,
    archs_of,
    cache_folder,
    door,
    job_count,
    say,
)


@task(
    default=True,
    help={
        "version": "the API level, 0.11.2b, or the release, 0.11.2b-r1 (manifests/release.yaml decides the revision)",
        "arch": ARCH + " (default: all)",
        "profile": PROFILE,
        "executor": EXECUTOR + " (default here: auto, in a container)",
        "windows": "also the library for Windows (default); --no-windows leaves it out",
        "to": "publish it there: s3://BUCKET/PREFIX or a folder",
        "key": "Ed25519 key to sign with, PEM (default: AOTFORGE_SIGNING_KEY)",
        "keys": "with --to: folder of the index's keys (default: AOTFORGE_KEYS)",
        "unsigned": "without a signature",
        "builder": "URI that names who builds, for the provenance statement",
        "development": "for oneself: sources without a commit, incomplete, below the promised platform; no record",
        "dry-run": "with --to: say what would be sent",
        "output": "folder that gets <release>/ (default: releases/dist/finished)",
        "jobs": "worker processes at most",
        "cache": "folder of compiled images (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "json": JSON,
        "quiet": "no progress and no notes",
    },
)
@door
def make(
    c: Context,
    version: str,
    arch: str = "",
    profile: str | None = None,
    executor: str = "auto",
    windows: bool = True,
    to: str | None = None,
    key: str | None = None,
    keys: str | None = None,
    unsigned: bool = False,
    builder: str = "urn:aotforge:builder:unnamed",
    development: bool = False,
    dry_run: bool = False,
    output: str | None = None,
    jobs: int = 0,
    cache: str | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Build, verify, check, sign and record a release; with --to, publish it."""
    from dataclasses import asdict  # noqa: PLC0415

    from aotforge.cli.publish import load_publisher, say_publication  # noqa: PLC0415
    from aotforge.pipeline import make_release as releasing  # noqa: PLC0415
    from aotforge.pipeline.build_release import BuildRequest  # noqa: PLC0415
    from aotforge.pipeline.display import build_display  # noqa: PLC0415
    from aotforge.release.signing import load_private_key  # noqa: PLC0415

    environment = dict(os.environ)
    # keys and store first: what is missing is said in a second instead of after an hour
    signing = None if unsigned else load_private_key(Path(key).absolute() if key else None, environment)
    publisher = load_publisher(to, keys) if to else None
    asked = BuildRequest(
        root=ROOT, archs=archs_of(arch), profile=profile, output=None, cache=cache_folder(cache),
        jobs=job_count(jobs), executor=executor, environment=environment,
    )  # fmt: skip
    request = releasing.ReleaseRequest(
        version=version, build=asked, windows=windows, key=signing, builder=builder, development=development,
        output=Path(output).absolute() if output else releasing.default_output(ROOT),
    )  # fmt: skip
    with build_display(quiet=quiet or json) as display:
        report = releasing.release(
            request,
            observer=display,
        )
    fields = releasing.report_fields(report)
    if not json:
        say("\n".join(releasing.report_lines(report)))
    if publisher:
        done = publisher(
            report.finished.folder, dry_run=dry_run, allow_development=development, quiet=quiet or json
        )
        fields["publication"] = asdict(done)
        if not json:
            say_publication(done, json=False, quiet=quiet)
    if json:
        say(json_.dumps(fields, indent=1))


@task(
    positional=["release"],
    help={
        "release": "a released version, e.g. 0.11.2b-r1, with a record in releases/",
        "published": "folder with its files, to explain a difference with (default: releases/dist/finished/<release>)",
        "work": "folder that keeps what is built (default: a temporary one)",
        "cache": "its container root filesystems are used, nothing else of it",
        "json": JSON,
        "quiet": "no progress and no notes",
    },
)
@door
def reproduce(
    c: Context,
    release: str,
    published: str | None = None,
    work: str | None = None,
    cache: str | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Build a recorded release again, from its commit and an empty cache, and compare every archive."""
    from dataclasses import asdict  # noqa: PLC0415

    from aotforge.cli.command import HOME  # noqa: PLC0415
    from aotforge.pipeline.display import build_display  # noqa: PLC0415
    from aotforge.pipeline.make_release import default_output  # noqa: PLC0415
    from aotforge.pipeline.reproduce import ReproduceRequest, reproduce  # noqa: PLC0415

    there = Path(published).absolute() if published else default_output(ROOT) / release
    request = ReproduceRequest(
        root=ROOT, release=release, published=there if there.is_dir() else None, cache=cache_folder(cache), home=HOME,
        work=Path(work).absolute() if work else None, environment=dict(os.environ),
    )  # fmt: skip
    with build_display(quiet=quiet or json) as display:
        done = reproduce(request, observer=display)
    if json:
        say(json_.dumps(asdict(done), indent=1))
        return
    say(
        f"{done.release} from {done.commit}: {done.compiled} images compiled, {len(done.archives)} archives identical"
    )


@task(
    positional=["before", "after"],
    help={"before": "a finished release's folder", "after": "another", "json": JSON},
)
@door
def diff(c: Context, before: str, after: str, json: bool = False) -> None:
    """What changed between two releases: tools, packs, images, figures, verdicts, files."""
    from dataclasses import asdict  # noqa: PLC0415

    from aotforge.release.compare import compare_documents  # noqa: PLC0415
    from aotforge.release.release_json import load_release_json  # noqa: PLC0415

    found = compare_documents(*(load_release_json(Path(folder)) for folder in (before, after)))
    if json:
        say(json_.dumps([asdict(one) for one in found], indent=1))
        return
    for one in found:
        say(f"{one.kind:9} {one.name}: {one.before or 'not there'} -> {one.after or 'not there'}")
    if not found:
        say("nothing differs")


@task(
    positional=["folder"],
    help={
        "folder": "a finished release's folder",
        "key": "the publisher's public key, PEM: also check the signatures",
    },
)
@door
def verify(c: Context, folder: str, key: str | None = None) -> None:
    """Hold a release's files against its sums, and the sums against the signatures."""
    from aotforge.release.finalize import check_finalized_release  # noqa: PLC0415
    from aotforge.release.signing import load_public_key  # noqa: PLC0415

    names = check_finalized_release(Path(folder), load_public_key(Path(key)) if key else None)
    say(
        f"{len(names)} files are as listed"
        + (", signatures hold" if key else "; signatures not looked at: no --key")
    )


@task(
    help={
        "release": "a release's folder (default: the newest in releases/dist)",
        "pytorch": "version whose build is to download it, e.g. 2.11",
        "url": "where the release will be, without its name (default: what release.serve says)",
        "fork": "ROCm/pytorch instead of pytorch/pytorch",
        "prefix": "instead the way that needs no edit: AOTRITON_INSTALLED_PREFIX",
    },
)
@door
def pins(
    c: Context, pytorch: str, release: str = "", url: str = "", fork: bool = False, prefix: bool = False
) -> None:
    """The lines for PyTorch's cmake/External/aotriton.cmake that make its build download a release."""
    from aotforge.deliver.pytorch.listing import list_release, newest_release  # noqa: PLC0415
    from aotforge.deliver.pytorch.pins import pins_for_pytorch, prefix_text  # noqa: PLC0415

    chosen = Path(release).absolute() if release else newest_release(ROOT / "releases" / "dist")
    text = pins_for_pytorch(ROOT, chosen, pytorch=pytorch, fork=fork, url=url or "http://127.0.0.1:8080/")
    say((prefix_text(list_release(chosen), url or "http://127.0.0.1:8080/") if prefix else text).rstrip("\n"))


@task(
    help={
        "folder": "folder that holds releases (default: releases/dist/finished)",
        "host": "address to listen on",
        "port": "port; 0 takes a free one",
    }
)
@door
def serve(c: Context, folder: str = "", host: str = "127.0.0.1", port: int = 8080) -> None:
    """Offer releases over HTTP at the addresses that PyTorch's build asks for."""
    import sys  # noqa: PLC0415

    from aotforge.deliver.pytorch.serve import serve  # noqa: PLC0415
    from aotforge.pipeline.make_release import default_output  # noqa: PLC0415

    server = serve(
        Path(folder).absolute() if folder else default_output(ROOT), host=host, port=port,
        log=lambda line: print(line, file=sys.stderr),  # noqa: T201
    )  # fmt: skip
    say(server.url)
    with server:
        server.serve_forever()


@task(
    help={
        "pytorch-lib": "torch/lib of the installed PyTorch",
        "release": "a release's folder (default: the newest in releases/dist)",
        "arch": ARCH + " (default: every pack of the release)",
        "pytorch": "PyTorch's version where torch/version.py does not tell",
        "fork": "it is a build of ROCm/pytorch",
        "dry-run": "say what would change",
        "undo": "put back what was there before",
        "json": JSON,
    }
)
@door
def dropin(
    c: Context,
    pytorch_lib: str,
    release: str = "",
    arch: str = "",
    pytorch: str = "",
    fork: bool = False,
    dry_run: bool = False,
    undo: bool = False,
    json: bool = False,
) -> None:
    """Put a release into an installed PyTorch, or take it out again."""
    from dataclasses import asdict  # noqa: PLC0415

    from aotforge.deliver.dropin.apply import undo as take_out  # noqa: PLC0415
    from aotforge.deliver.dropin.install_dropin import install_dropin  # noqa: PLC0415
    from aotforge.deliver.pytorch.listing import newest_release  # noqa: PLC0415

    lib = Path(pytorch_lib).absolute()
    if undo:
        report = take_out(lib, dry_run=dry_run)
    else:
        folder = Path(release).absolute() if release else newest_release(ROOT / "releases" / "dist")
        report = install_dropin(
            ROOT,
            folder,
            lib,
            archs=archs_of(arch),
            pytorch=pytorch,
            fork=fork,
            dry_run=dry_run,
        )
    if json:
        say(json_.dumps(asdict(report) | {"folder": str(report.folder)}, indent=1))
        return
    for change in report.changes:
        say(f"{'would change: ' if dry_run else ''}{change}")
    if not report.changes:
        say("nothing to do")


@task(
    help={
        "folder": "folder that holds finished releases and gets index.html (default: releases/dist/finished)",
        "url": "where the folder will be, for the commands on the page",
        "from_": "also say which releases were taken back, from this place's index",
        "root": "the root of trust for --from",
    }
)
@door
def page(c: Context, url: str, folder: str = "", from_: str | None = None, root: str | None = None) -> None:
    """Write the static page of releases: downloads with digests, verification, how to install, compatibility."""
    from aotforge.cli.publish import yanked_releases  # noqa: PLC0415
    from aotforge.deliver.page import make_site  # noqa: PLC0415
    from aotforge.pipeline.make_release import default_output  # noqa: PLC0415

    place = Path(folder).absolute() if folder else default_output(ROOT)
    yanked = yanked_releases(from_, root) if from_ else {}
    say(f"{make_site(ROOT, place, base_url=url, yanked=yanked)}")


TASKS = (
    ("release", "make", make),
    ("release", "page", page),
    ("release", "reproduce", reproduce),
    ("release", "diff", diff),
    ("release", "verify", verify),
    ("release", "pins", pins),
    ("release", "serve", serve),
    ("release", "dropin", dropin),
)
