"""Tasks that publish releases and install them."""

from __future__ import annotations

import json as json_
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from invoke.context import Context
from invoke.tasks import task

from aotforge.cli.command import JSON, ROOT, cache_folder, door, say

if TYPE_CHECKING:
    from aotforge.deliver.install.model import DropIn
    from aotforge.publish.index import Index, Publication
    from aotforge.publish.keys import KeySet
    from aotforge.publish.stores.store import Reader
    from aotforge.publish.trust import TrustedIndex


class Publisher(Protocol):
    """Publishes a release's folder to a place that was chosen before."""

    def __call__(self, folder: Path, *, dry_run: bool, allow_development: bool, quiet: bool) -> Publication:
        """Raises PublishError, TrustError."""


TO = "where to: s3://BUCKET/PREFIX or a folder"
FROM = "where from: s3://BUCKET/PREFIX, http(s)://..., file:///... or a folder (default: AOTFORGE_FROM)"
KEYS = "folder of signing keys (default: AOTFORGE_KEYS, or AOTFORGE_KEY_TARGETS, _SNAPSHOT and _TIMESTAMP)"
TRUST = "the root of trust, a file (default: AOTFORGE_ROOT, else releases/root.json)"
QUIET = "no progress and no notes"


@task(
    positional=["folder"],
    help={
        "folder": "a release folder, as `invoke build` makes it",
        "to": TO,
        "keys": KEYS,
        "dry-run": "check everything, say what would be sent, write nothing",
        "allow-development": "publish a development build; the index says that it is one",
        "json": JSON,
        "quiet": QUIET,
    },
)
@door
def publish(
    c: Context, folder: str, to: str, keys: str | None = None, dry_run: bool = False, allow_development: bool = False,
    json: bool = False, quiet: bool = False,
) -> None:  # fmt: skip
    """Publish a release folder: every file read back, the signed index last."""
    done = load_publisher(to, keys)(
        Path(folder).absolute(), dry_run=dry_run, allow_development=allow_development, quiet=quiet or json
    )
    say_publication(done, json=json, quiet=quiet)


@task(positional=["from_", "to"], help={"from": FROM, "to": TO, "root": TRUST, "json": JSON, "quiet": QUIET})
@door
def mirror(
    c: Context, from_: str, to: str, root: str | None = None, json: bool = False, quiet: bool = False
) -> None:
    """Copy every release and the signed index to another place."""
    from aotforge.publish.maintenance import mirror  # noqa: PLC0415
    from aotforge.publish.stores.addresses import open_store  # noqa: PLC0415
    from aotforge.publish.upload import publish_errors  # noqa: PLC0415

    with publish_errors():
        store = open_store(to)
        reader, trusted = _trusted(from_, root)
    with _watched(quiet=quiet or json) as watch:
        done = mirror(reader, trusted, store, on_progress=watch)
    say_publication(done, json=json, quiet=quiet)


@task(
    positional=["release"],
    help={
        "release": "e.g. 0.11.2b-r1",
        "to": TO,
        "reason": "why nobody may install it; shown to whoever tries",
        "undo": "take the mark away again",
        "keys": KEYS,
        "json": JSON,
    },
)
@door
def yank(
    c: Context, release: str, to: str, reason: str = "", undo: bool = False, keys: str | None = None, json: bool = False
) -> None:  # fmt: skip
    """Mark a published release as one that must not be installed; its files stay."""
    from aotforge.publish.maintenance import yank_release  # noqa: PLC0415
    from aotforge.publish.stores.addresses import open_store  # noqa: PLC0415
    from aotforge.publish.upload import publish_errors  # noqa: PLC0415

    with publish_errors():
        store = open_store(to)
    index = yank_release(store, _keys(keys), release, reason=reason, now=datetime.now(UTC), undo=undo)
    _say_index(index, json=json)


@task(help={"to": TO, "keys": KEYS, "json": JSON})
@door
def renew(c: Context, to: str, keys: str | None = None, json: bool = False) -> None:
    """Sign the index again before it expires, or after a key was rotated."""
    from aotforge.publish.maintenance import renew_index  # noqa: PLC0415
    from aotforge.publish.stores.addresses import open_store  # noqa: PLC0415
    from aotforge.publish.upload import publish_errors  # noqa: PLC0415

    with publish_errors():
        store = open_store(to)
    _say_index(renew_index(store, _keys(keys), now=datetime.now(UTC)), json=json)


@task(name="list", help={"from": FROM, "root": TRUST, "json": JSON})
@door
def list_(c: Context, from_: str | None = None, root: str | None = None, json: bool = False) -> None:
    """List the releases of a place, from its checked index."""
    from aotforge.deliver.install.install_release import install_errors  # noqa: PLC0415

    with install_errors():
        _, trusted = _trusted(from_, root)
    _say_index(trusted.index, json=json)


@task(
    help={
        "create": "make the keys of a new index in this folder, which must be outside of the repository",
        "rotate": "replace the newest key of this role: root, targets, snapshot or timestamp",
        "keys": KEYS,
        "root-keys": "with --create: how many root keys (default 3)",
        "threshold": "with --create: how many of them must sign a root (default 2)",
    }
)
@door
def keys(
    c: Context, create: str | None = None, rotate: str | None = None, keys: str | None = None, root_keys: int = 3, threshold: int = 2
) -> None:  # fmt: skip
    """Make signing keys, or rotate one."""
    from aotforge.errors import UnsupportedError  # noqa: PLC0415
    from aotforge.publish.keys import create_keys, rotate_keys  # noqa: PLC0415

    now = datetime.now(UTC)
    if bool(create) == bool(rotate):
        raise UnsupportedError("one of --create FOLDER and --rotate ROLE is needed")
    if create:
        path = create_keys(
            Path(create).absolute(), now=now, repository=ROOT, root_keys=root_keys, threshold=threshold
        )
        say(f"the root of trust, for everyone: {path}")
        say("keep root-*.pem offline: publishing needs the others only")
        return
    folder = keys or os.environ.get("AOTFORGE_KEYS")
    if not folder:
        raise UnsupportedError("--rotate needs the folder of keys", hint="--keys FOLDER")
    say(f"the new root: {rotate_keys(Path(folder).absolute(), rotate or '', now=now)}")
    say("publish it with `invoke release.renew --to URL`, for every place that you publish to")


@task(
    help={
        "prefix": "a folder to install into, as AOTRITON_INSTALLED_PREFIX wants it",
        "pytorch-lib": "torch/lib of an installed PyTorch to put the release into",
        "arch": "chip, e.g. gfx908; several are joined by commas",
        "from": FROM,
        "version": "a release (0.11.2b-r1) or an API level (0.11.2b); default: the newest",
        "rocm": "ROCm version whose library to take (default: the one in ROCM_PATH or /opt/rocm)",
        "root": TRUST,
        "cache": "folder for downloads and what was seen of indexes (default: AOTFORGE_CACHE, else .aotforge/cache)",
        "allow-yanked": "install a release although it was taken back",
        "uninstall": "remove what is installed in --prefix",
        "json": JSON,
        "quiet": QUIET,
    }
)
@door
def install(
    c: Context, prefix: str | None = None, pytorch_lib: str | None = None, arch: str | None = None, from_: str | None = None,
    version: str | None = None, rocm: str | None = None, root: str | None = None, cache: str | None = None,
    allow_yanked: bool = False, uninstall: bool = False, json: bool = False, quiet: bool = False,
) -> None:  # fmt: skip
    """Install a published release: fetch what this machine and chip need, check all of it, put it in place in one step."""
    from aotforge.deliver.install.install_release import install as run  # noqa: PLC0415
    from aotforge.deliver.install.install_release import install_errors  # noqa: PLC0415
    from aotforge.deliver.install.model import InstallRequest, this_machine  # noqa: PLC0415
    from aotforge.errors import UnsupportedError  # noqa: PLC0415

    if bool(prefix) == bool(pytorch_lib):
        raise UnsupportedError("one of --prefix DIR and --pytorch-lib TORCH/LIB is needed")
    if uninstall:
        _uninstall(prefix, json=json)
        return
    if not arch:
        raise UnsupportedError("--arch is needed: the chip to install images for", hint="e.g. --arch gfx908")
    request = InstallRequest(
        packs=_packs(arch), version=version, rocm=rocm, prefix=Path(prefix).absolute() if prefix else None,
        torch_lib=Path(pytorch_lib).absolute() if pytorch_lib else None, allow_yanked=allow_yanked,
    )  # fmt: skip
    drop_in = _drop_in() if pytorch_lib else None
    with install_errors(), _watched(quiet=quiet or json) as watch:
        reader, trusted = _trusted(from_, root, cache)
        done = run(
            reader, trusted.index, request, this_machine(os.environ), downloads=cache_folder(cache) / "downloads", drop_in=drop_in, on_progress=watch
        )  # fmt: skip
    fields = {"release": done.release, "place": str(done.place), "archs": done.archs, "files": done.files, "source": done.source,
              "fresh": done.fresh, "notes": done.notes}  # fmt: skip
    if json:
        say(json_.dumps(fields, indent=1))
        return
    for note in () if quiet else done.notes:
        say(f"note: {note}")
    say(
        f"{done.release} for {', '.join(done.archs)} {'is in' if done.fresh else 'was already in'} {done.place}"
    )


def _drop_in() -> DropIn:
    """What puts an unpacked release into an installed PyTorch; the one place where installing meets it."""
    from aotforge.deliver.dropin.install_dropin import install_dropin_prefix  # noqa: PLC0415

    def put(prefix: Path, release: str, torch_lib: Path) -> None:
        install_dropin_prefix(ROOT, prefix, release, torch_lib)

    return put


def load_publisher(to: str, keys: str | None) -> Publisher:
    """What publishes a folder to `to`; keys and address are looked at now. Raises PublishError, TrustError."""
    from aotforge.publish.stores.addresses import open_store  # noqa: PLC0415
    from aotforge.publish.upload import publish_errors, publish_release  # noqa: PLC0415

    with publish_errors():
        store = open_store(to)
    signing = _keys(keys)

    def publish(folder: Path, *, dry_run: bool, allow_development: bool, quiet: bool) -> Publication:
        with _watched(quiet=quiet) as watch:
            return publish_release(
                folder, store, signing, now=datetime.now(UTC), dry_run=dry_run, allow_development=allow_development, on_progress=watch
            )  # fmt: skip

    return publish


def _uninstall(prefix: str | None, *, json: bool) -> None:
    from aotforge.deliver.install.prefix import uninstall  # noqa: PLC0415
    from aotforge.errors import UnsupportedError  # noqa: PLC0415

    if not prefix:
        raise UnsupportedError(
            "--uninstall removes from a --prefix", hint="`invoke release.dropin --undo` for a torch/lib"
        )
    release, count = uninstall(Path(prefix).absolute())
    say(
        json_.dumps({"removed": release, "files": count}) if json else f"{release} was removed, {count} files"
    )


def _packs(archs: str) -> dict[str, str]:
    """Image pack by arch. Raises UnknownNameError."""
    from aotforge.base.architectures import load_architectures, parse_archs  # noqa: PLC0415

    known = load_architectures(ROOT / "manifests").architectures
    return {arch: known[arch].pack for arch in parse_archs(archs, known)}


def _keys(folder: str | None) -> KeySet:
    from aotforge.publish.keys import load_keys  # noqa: PLC0415

    return load_keys(Path(folder).absolute() if folder else None, os.environ)


def _trusted(address: str | None, root: str | None, cache: str | None = None) -> tuple[Reader, TrustedIndex]:
    """Where to read, and its checked index. Raises InstallError, TrustError, StoreError."""
    from aotforge.errors import InstallError  # noqa: PLC0415
    from aotforge.publish.stores.addresses import open_reader  # noqa: PLC0415
    from aotforge.publish.trust import trusted_index, trusted_root  # noqa: PLC0415

    address = address or os.environ.get("AOTFORGE_FROM")
    if not address:
        raise InstallError(
            "it is not said where releases are", hint="--from URL or AOTFORGE_FROM; a folder will do"
        )
    reader = open_reader(address)
    return reader, trusted_index(reader, trusted_root(root, ROOT, os.environ), cache_folder(cache) / "trust")


def yanked_releases(from_: str, root: str | None) -> dict[str, str]:
    """Releases that were taken back, with the reason, from a place's checked index. Raises InstallError, TrustError."""
    from aotforge.deliver.install.install_release import install_errors  # noqa: PLC0415

    with install_errors():
        _, trusted = _trusted(from_, root)
    return {release.name: release.yanked.reason for release in trusted.index.releases if release.yanked}


class _watched:
    """Progress in MiB, one line per stage."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._stage = ""
        self._line: Any = None

    def __enter__(self) -> Callable[[str, int, int], None]:
        return self._watch

    def __exit__(self, *error: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._line is not None:
            self._line.__exit__(None, None, None)
            self._line = None

    def _watch(self, stage: str, done: int, total: int) -> None:
        from aotforge.base.progress import progress  # noqa: PLC0415

        if stage != self._stage:
            self._end()
            self._stage, self._line = stage, progress(f"{stage}, MiB", quiet=self._quiet)
            self._line.__enter__()
        self._line.update(done >> 20, (total >> 20) + 1)


def say_publication(done: Publication, *, json: bool, quiet: bool) -> None:
    """What a publication came to."""
    from dataclasses import asdict  # noqa: PLC0415

    if json:
        say(json_.dumps(asdict(done), indent=1))
        return
    for note in () if quiet else done.notes:
        say(f"note: {note}")
    if done.dry_run:
        for name in done.sent:
            say(f"would send {name}")
        say(
            f"{done.release} to {done.url}: {len(done.sent)} files, {done.bytes_sent} bytes, {len(done.found)} there already; nothing was written"
        )
        return
    rates = [
        f"{verb} {size} bytes in {seconds:.1f} s"
        for verb, size, seconds in (
            ("sent", done.bytes_sent, done.seconds_sending),
            ("read back", done.bytes_read, done.seconds_reading),
        )
    ]
    say(
        f"{done.release} is at {done.url}, index {done.index_version}: {', '.join(rates)}; {len(done.found)} files were there already"
    )


def _say_index(index: Index, *, json: bool) -> None:
    from dataclasses import asdict  # noqa: PLC0415

    if json:
        say(json_.dumps(asdict(index), indent=1))
        return
    for release in index.releases:
        packs = [
            file.name.split("-images-")[1].removesuffix(".tar.gz")
            for file in release.files
            if "-images-" in file.name
        ]
        state = (
            f"yanked: {release.yanked.reason}"
            if release.yanked
            else "development build"
            if release.development
            else ""
        )
        state = state or ("verified" if release.verified else "not verified")
        size = sum(file.size for file in release.files)
        say(
            f"{release.name:14} {release.published[:10]}  {len(release.files)} files, {size} bytes  {' '.join(packs)}  {state}"
        )
    if not index.releases:
        say("no releases")


TASKS = (
    ("release", "publish", publish),
    ("release", "mirror", mirror),
    ("release", "yank", yank),
    ("release", "renew", renew),
    ("release", "list", list_),
    ("release", "keys", keys),
    ("", "install", install),
)
