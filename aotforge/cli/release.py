"""Tasks that make a release, build one again, compare and check releases."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from aotforge.cli.command import (
    Json,
    ProgressKind,
    Quiet,
    absolute,
    cli_command,
    print_either,
    print_report,
    print_result,
    progress_events,
)
from aotforge.pipeline.requests import ReleaseRequest, ReproduceRequest


@cli_command("release")
def make(
    request: ReleaseRequest, json: Json = False, quiet: Quiet = False, progress: ProgressKind = "auto"
) -> None:
    """Build, verify, check, sign and record a release; with --to, publish it."""
    from aotforge.base.progress import byte_progress
    from aotforge.pipeline.build_record import recorded
    from aotforge.pipeline.display import BuildDisplay
    from aotforge.pipeline.make_release import release
    from aotforge.publish.session import open_publisher
    from aotforge.publish.upload import publish_release

    events = progress_events(progress, quiet=quiet)
    # store and keys first: what is missing is reported in a second instead of after an hour
    place = None
    if request.to:
        place = open_publisher(request.to, absolute(request.keys), request.environment)
    with (
        BuildDisplay(quiet=quiet or json, events=events) as display,
        recorded(request.cache, sys.argv[1:], request.root, display) as observer,
    ):
        report = release(request, observer=observer)
        observer.end("finished")
    fields = report.fields()
    if not json:
        print_report(report, json=False)
    if place:
        with byte_progress(quiet=quiet or json, events=events) as on_progress:
            publication = publish_release(
                report.finished.folder,
                *place,
                now=datetime.now(UTC),
                dry_run=request.dry_run,
                allow_development=request.development,
                on_progress=on_progress,
            )
        fields["publication"] = publication.fields()
        if not json:
            print_report(publication, json=False, notes=() if quiet else publication.notes)
    if json:
        print_either(fields, (), json=True)


@cli_command("release.reproduce", positional=["release"])
def reproduce(
    request: ReproduceRequest, json: Json = False, quiet: Quiet = False, progress: ProgressKind = "auto"
) -> None:
    """Build a recorded release again, from its commit and an empty cache, and compare every archive."""
    from aotforge.pipeline.display import BuildDisplay
    from aotforge.pipeline.reproduce import reproduce

    events = progress_events(progress, quiet=quiet)
    with BuildDisplay(quiet=quiet or json, events=events) as display:
        done = reproduce(request, observer=display)
    print_report(done, json=json)


@cli_command("release.diff", positional=["before", "after"])
def diff(
    before: Annotated[str, "a finished release's folder"],
    after: Annotated[str, "another"],
    json: Json = False,
) -> None:
    """Differences of two releases: tools, packs, images, resources, verdicts, files."""
    from aotforge.release.compare import compare_releases

    found = compare_releases(Path(before), Path(after))
    lines = [
        f"{one.kind:9} {one.name}: {one.before or 'missing'} -> {one.after or 'missing'}".replace("\n", "\\n")
        for one in found
    ]
    print_either([asdict(one) for one in found], lines or ["nothing differs"], json=json)


@cli_command("release.verify", positional=["folder"])
def verify(
    folder: Annotated[str, "a finished release's folder"],
    key: Annotated[str | None, "the publisher's public key, PEM: also check the signatures"] = None,
) -> None:
    """Check a release's files against its sums, and the sums against the signatures."""
    from aotforge.release.finalize import check_finalized_release
    from aotforge.release.signing import load_public_key

    checked = check_finalized_release(Path(folder), load_public_key(Path(key)) if key else None)
    signatures = ", signatures are valid" if key else "; signatures were not checked: no --key"
    print_result(f"{len(checked.sums)} files are as listed{signatures}")
