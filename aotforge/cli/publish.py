"""Tasks that publish releases and maintain their index."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aotforge.cli.command import (
    ROOT,
    Json,
    ProgressKind,
    Quiet,
    absolute,
    cache_folder,
    cli_command,
    print_report,
    print_result,
    progress_events,
)

if TYPE_CHECKING:
    from aotforge.publish.stores.store import Reader
    from aotforge.publish.trust import TrustedIndex

To = Annotated[str, "where to: s3://BUCKET/PREFIX or a folder"]
From = Annotated[
    str | None,
    "where from: s3://BUCKET/PREFIX, http(s)://..., file:///... or a folder (default: AOTFORGE_FROM)",
]
Keys = Annotated[
    str | None,
    "folder of signing keys (default: AOTFORGE_KEYS, or AOTFORGE_KEY_TARGETS, _SNAPSHOT and _TIMESTAMP)",
]
Trust = Annotated[str | None, "the root of trust, a file (default: AOTFORGE_ROOT, else releases/root.json)"]


def checked_index(
    from_: str | None,
    root: str | None,
    cache: str | None = None,
    *,
    quiet: bool = False,
    events: bool = False,
) -> "tuple[Reader, TrustedIndex]":
    """The place of releases and its checked index, with progress. Raises InstallError, TrustError, StoreError."""
    from aotforge.base.progress import byte_progress
    from aotforge.publish.session import open_index

    folder = cache_folder(cache)
    with byte_progress(quiet=quiet, events=events) as shown:
        return open_index(
            from_, root=root, checkout=ROOT, environment=os.environ, cache=folder, on_progress=shown
        )


@cli_command("release.publish", positional=["folder"])
def publish(
    folder: Annotated[str, "a release folder, as `./dev build` makes it"],
    to: To,
    keys: Keys = None,
    dry_run: Annotated[bool, "check everything, list what would be sent, write nothing"] = False,
    allow_development: Annotated[bool, "publish a development build; the index marks it as one"] = False,
    json: Json = False,
    quiet: Quiet = False,
    progress: ProgressKind = "auto",
) -> None:
    """Publish a release folder: every file read back, the signed index last."""
    from aotforge.base.progress import byte_progress
    from aotforge.publish.session import open_publisher
    from aotforge.publish.upload import publish_release

    events = progress_events(progress, quiet=quiet)
    store, signing = open_publisher(to, absolute(keys), os.environ)
    with byte_progress(quiet=quiet or json, events=events) as on_progress:
        done = publish_release(
            Path(folder).absolute(),
            store,
            signing,
            now=datetime.now(UTC),
            dry_run=dry_run,
            allow_development=allow_development,
            on_progress=on_progress,
        )
    print_report(done, json=json, notes=() if quiet else done.notes)


@cli_command("release.mirror", positional=["from_", "to"])
def mirror(
    from_: From,
    to: To,
    root: Trust = None,
    json: Json = False,
    quiet: Quiet = False,
    progress: ProgressKind = "auto",
) -> None:
    """Copy every release and the signed index to another place."""
    from aotforge.base.progress import byte_progress
    from aotforge.publish.maintenance import mirror
    from aotforge.publish.session import open_for_publishing
    from aotforge.publish.upload import publish_errors

    events = progress_events(progress, quiet=quiet)
    store = open_for_publishing(to)
    with publish_errors():
        reader, trusted = checked_index(from_, root, quiet=quiet or json, events=events)
    with byte_progress(quiet=quiet or json, events=events) as on_progress:
        done = mirror(reader, trusted, store, on_progress=on_progress)
    print_report(done, json=json, notes=() if quiet else done.notes)


@cli_command("release.yank", positional=["release"])
def yank(
    release: Annotated[str, "e.g. 0.11.2b-r1"],
    to: To,
    reason: Annotated[str, "why it must not be installed; shown on every attempt"] = "",
    undo: Annotated[bool, "remove the mark"] = False,
    keys: Keys = None,
    json: Json = False,
) -> None:
    """Mark a published release as one that must not be installed; its files stay."""
    from aotforge.publish.maintenance import yank_release
    from aotforge.publish.session import open_publisher

    place = open_publisher(to, absolute(keys), os.environ)
    index = yank_release(*place, release, reason=reason, now=datetime.now(UTC), undo=undo)
    print_report(index, json=json)


@cli_command("release.renew")
def renew(
    to: To,
    keys: Keys = None,
    json: Json = False,
) -> None:
    """Sign the index again before it expires, or after a key was rotated."""
    from aotforge.publish.maintenance import renew_index
    from aotforge.publish.session import open_publisher

    place = open_publisher(to, absolute(keys), os.environ)
    print_report(renew_index(*place, now=datetime.now(UTC)), json=json)


@cli_command("release.keys")
def keys(
    create: Annotated[
        str | None, "make the keys of a new index in this folder, which must be outside of the repository"
    ] = None,
    rotate: Annotated[
        str | None, "replace the newest key of this role: root, targets, snapshot or timestamp"
    ] = None,
    keys: Keys = None,
    root_keys: Annotated[int, "with --create: how many root keys (default 3)"] = 3,
    threshold: Annotated[int, "with --create: how many of them must sign a root (default 2)"] = 2,
) -> None:
    """Make signing keys, or rotate one."""
    from aotforge.errors import UnsupportedError
    from aotforge.publish.keys import create_keys, rotate_keys

    now = datetime.now(UTC)
    if bool(create) == bool(rotate):
        raise UnsupportedError("one of --create FOLDER and --rotate ROLE is needed")
    if create:
        path = create_keys(
            Path(create).absolute(), now=now, repository=ROOT, root_keys=root_keys, threshold=threshold
        )
        print_result(f"the root of trust, for everyone: {path}")
        print_result("keep root-*.pem offline: publishing needs the others only")
        return
    folder = keys or os.environ.get("AOTFORGE_KEYS")
    if not folder:
        raise UnsupportedError("--rotate needs the folder of keys", hint="--keys FOLDER")
    print_result(f"the new root: {rotate_keys(Path(folder).absolute(), rotate or '', now=now)}")
    print_result("publish it with `./dev release.renew --to URL`, for every place that you publish to")
