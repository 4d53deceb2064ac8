"""Tasks that make a release, build one again, compare and check releases."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from aotforge.cli.build import observed
from aotforge.cli.flags import command
from aotforge.cli.output import Json, Output, print_either, print_report
from aotforge.cli.values import absolute
from aotforge.pipeline.requests import ReleaseRequest, ReproduceRequest


@command("release")
def make(request: ReleaseRequest, output: Output) -> None:
    """Build, verify, check, sign and record a release; with --to, publish it.

    ./dev release --version 0.11.2b --arch gfx908 --key key.pem --to s3://BUCKET/PREFIX --keys ~/keys
    ./dev release --version 0.11.2b --arch gfx908 --development --unsigned --executor local --no-windows
    """
    from aotforge.base.progress import byte_progress
    from aotforge.pipeline.make_release import release
    from aotforge.publish.session import open_publisher
    from aotforge.publish.upload import publish_release

    # store and keys first: what is missing is reported in a second instead of after an hour
    place = None
    if request.to:
        place = open_publisher(request.to, absolute(request.keys), request.environment)
    with observed(request, output) as observer:
        report = release(request, observer=observer)
        observer.end("finished")
    fields = report.fields()
    if not output.json:
        print_report(report, json=False)
    if place:
        with byte_progress(quiet=output.silent, events=output.events) as on_progress:
            publication = publish_release(
                report.finished.folder,
                *place,
                now=datetime.now(UTC),
                dry_run=request.dry_run,
                allow_development=request.development,
                on_progress=on_progress,
            )
        fields["publication"] = publication.fields()
        if not output.json:
            output.report(publication, publication.notes)
    if output.json:
        print_either(fields, (), json=True)


@command("release.reproduce")
def reproduce(request: ReproduceRequest, output: Output) -> None:
    """Build a recorded release again, from its commit and an empty cache, and compare every archive.

    ./dev release.reproduce 0.11.2b-r1
    """
    from aotforge.pipeline.display import BuildDisplay
    from aotforge.pipeline.reproduce import reproduce

    with BuildDisplay(quiet=output.silent, events=output.events) as display:
        done = reproduce(request, observer=display)
    print_report(done, json=output.json)


@command("release.diff")
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
