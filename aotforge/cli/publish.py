"""Tasks that publish releases and maintain their index."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aotforge.base.progress import Report
from aotforge.cli.flags import command
from aotforge.cli.output import Output, print_result
from aotforge.cli.settings import ROOT
from aotforge.cli.values import absolute, cache_folder
from aotforge.errors import UsageError

if TYPE_CHECKING:
    from aotforge.publish.stores.store import Reader
    from aotforge.publish.trust import TrustedIndex

To = Annotated[str, "where to: s3://BUCKET/PREFIX or a folder"]
From = Annotated[
    str | None,
    "where from: s3://BUCKET/PREFIX, http(s)://..., file:///... or a folder (default: AOTFORGE_FROM)",
]
Keys = Annotated[str | None, "folder of signing keys (default: AOTFORGE_KEYS)"]
Trust = Annotated[str | None, "the root of trust, a file (default: AOTFORGE_ROOT, else releases/root.json)"]


def checked_index(
    from_: str | None, root: str | None, cache: str | None = None, output: Output | None = None
) -> "tuple[Reader, TrustedIndex]":
    """The place of releases and its checked index. Raises InstallError, TrustError, StoreError."""
    from aotforge.publish.session import open_index

    folder = cache_folder(cache)
    with (output or Output()).bytes() as shown:
        return open_index(
            from_, root=root, checkout=ROOT, environment=os.environ, cache=folder, on_progress=shown
        )


@command("release.publish")
def publish(
    output: Output,
    to: To,
    folder: Annotated[str | None, "a release folder, as `./dev build` makes it"] = None,
    from_: Annotated[str | None, "instead copy every release and the index from this place"] = None,
    root: Trust = None,
    renew: Annotated[bool, "instead sign the index again, e.g. after a key was rotated"] = False,
    keys: Keys = None,
    dry_run: Annotated[bool, "check everything, list what would be sent, write nothing"] = False,
    allow_development: Annotated[bool, "publish a development build; the index marks it as one"] = False,
) -> Report:
    """Publish a release folder, copy another place, or renew the index: files first, the signed index last.

    ./dev release.publish --folder releases/dist/finished/0.11.2b-r1 --to s3://BUCKET/PREFIX --keys ~/keys
    ./dev release.publish --renew --to s3://BUCKET/PREFIX --keys ~/keys
    """
    from aotforge.publish.session import open_for_publishing, open_publisher
    from aotforge.publish.upload import mirror, publish_release, renew_index

    if sum(map(bool, (folder, from_, renew))) != 1:
        raise UsageError("one of --folder, --from and --renew is needed", hint="./dev release.publish --help")
    if from_:
        store = open_for_publishing(to)
        reader, trusted = checked_index(from_, root, output=output)
        with output.bytes() as on_progress:
            copied = mirror(reader, trusted, store, on_progress=on_progress)
        return output.noted(copied, copied.notes)
    store, signing = open_publisher(to, absolute(keys), os.environ)
    if renew:
        return renew_index(store, signing, now=datetime.now(UTC))
    with output.bytes() as on_progress:
        done = publish_release(
            Path(folder or "").absolute(),
            store,
            signing,
            now=datetime.now(UTC),
            dry_run=dry_run,
            allow_development=allow_development,
            on_progress=on_progress,
        )
    return output.noted(done, done.notes)


@command("release.yank")
def yank(
    release: Annotated[str, "e.g. 0.11.2b-r1"],
    to: To,
    reason: Annotated[str, "why it must not be installed; shown on every attempt"] = "",
    undo: Annotated[bool, "remove the mark"] = False,
    keys: Keys = None,
) -> Report:
    """Mark a published release as one that must not be installed; its files stay.

    ./dev release.yank 0.11.2b-r1 --to s3://BUCKET/PREFIX --reason "wrong results for bf16"
    """
    from aotforge.publish.session import open_publisher
    from aotforge.publish.upload import yank_release

    place = open_publisher(to, absolute(keys), os.environ)
    return yank_release(*place, release, reason=reason, now=datetime.now(UTC), undo=undo)


@command("release.keys")
def keys(
    create: Annotated[str | None, "make keys of a new index in this folder, outside the repository"] = None,
    rotate: Annotated[str | None, "replace the newest key of root, targets, snapshot or timestamp"] = None,
    keys: Keys = None,
    root_keys: Annotated[int, "with --create: how many root keys (default 3)"] = 3,
    threshold: Annotated[int, "with --create: how many of them must sign a root (default 2)"] = 2,
) -> None:
    """Make signing keys, or rotate one.

    ./dev release.keys --create ~/aotforge-keys
    ./dev release.keys --keys ~/aotforge-keys --rotate timestamp
    """
    from aotforge.publish.keys import create_keys, rotate_keys

    now = datetime.now(UTC)
    if bool(create) == bool(rotate):
        raise UsageError("one of --create FOLDER and --rotate ROLE is needed")
    if create:
        path = create_keys(
            Path(create).absolute(), now=now, repository=ROOT, root_keys=root_keys, threshold=threshold
        )
        print_result(f"the root of trust, for everyone: {path}")
        print_result("keep root-*.pem offline: publishing needs the others only")
        return
    folder = keys or os.environ.get("AOTFORGE_KEYS")
    if not folder:
        raise UsageError("--rotate needs the folder of keys", hint="--keys FOLDER")
    print_result(f"the new root: {rotate_keys(Path(folder).absolute(), rotate or '', now=now)}")
    print_result("publish it with `./dev release.publish --renew --to URL`, for every place that you use")
