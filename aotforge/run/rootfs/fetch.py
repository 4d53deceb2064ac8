"""The cache's downloads: locked packages and wheels, by SHA-256 of their bytes."""

import http.client
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aotforge.base.downloads import FILE_SECONDS, download
from aotforge.base.files import make_folders, new_file, scratch_folder
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.formats.archive import sha256_file
from aotforge.run.pip_download import SOURCES, fetch_wheel
from aotforge.run.rootfs.definitions import Lock, LockedFile, RootfsSpec

DEBIAN = "http://deb.debian.org/"
SNAPSHOT = "https://snapshot.debian.org/archive/"
"""Debian's archive of every package ever published, by time."""

_PARALLEL = 6


class Downloads:
    """A folder of files by SHA-256, each verified when it enters and again when a rootfs is made of it."""

    def __init__(self, cache: Path) -> None:
        self.folder = cache.absolute() / "containers" / "store"

    def path(self, sha256: str) -> Path:
        """Path of a file, stored or not."""
        return self.folder / sha256

    def checked(self, sha256: str) -> Path:
        """The verified file. Raises ContainerError and removes a damaged one, which is fetched again."""
        path = self.path(sha256)
        if (actual := sha256_file(path)) != sha256:
            path.unlink()
            raise ContainerError(
                f"{path} was damaged: its SHA-256 is {actual}",
                cause="a failing disk, or a program that wrote into the cache",
                hint="it has been removed; the same command downloads it again",
            )
        return path

    def put(self, sha256: str, path: Path) -> None:
        """Copies a file into the folder. Raises ContainerError for other bytes."""
        if (actual := sha256_file(path)) != sha256:
            raise ContainerError(f"SHA-256 {actual} instead of {sha256}")
        make_folders(self.folder)
        with path.open("rb") as source, new_file(self.path(sha256)) as file:
            shutil.copyfileobj(source, file, 1 << 20)

    def fetch(
        self, spec: RootfsSpec, lock: Lock, *, environment: Mapping[str, str], observer: Observer
    ) -> None:
        """Downloads every missing file of `lock`. Raises ContainerError that names one that is not found."""
        missing = {entry.sha256: entry for entry in lock.files if not self.path(entry.sha256).is_file()}
        if not missing:
            return
        size = sum(entry.size for entry in missing.values()) / 1e6
        observer.stage(f"{spec.name}: downloading {len(missing)} files, {size:.0f} MB")
        python = spec.definition.wheels.python if spec.definition.wheels else ""
        make_folders(self.folder.parent)
        with (
            scratch_folder(self.folder.parent, ".download-") as folder,
            ThreadPoolExecutor(_PARALLEL) as pool,
        ):

            def fetched(entry: LockedFile) -> None:
                urls = list(places(entry, lock.snapshot, environment.get(SOURCES, "").split()))
                self._fetch(entry, urls, folder, python)

            list(pool.map(fetched, missing.values()))

    def _fetch(self, entry: LockedFile, urls: Sequence[str], folder: Path, python: str) -> None:
        """Stores one file, from the first place that has it. Raises ContainerError."""
        refused, file = [], folder / entry.sha256
        for url in (*urls, *urls):  # again: name servers and mirrors fail for moments
            try:
                receive(url, file, limit=entry.size)
                return self.put(entry.sha256, file)
            except (OSError, ValueError, http.client.HTTPException, ContainerError) as error:
                refused.append(f"{url}: {error}")
        if not entry.url:
            try:
                wheel = fetch_wheel(entry.name, entry.version, {entry.sha256}, python, folder / entry.name)
                return self.put(entry.sha256, wheel)
            except ContainerError as error:
                refused.append(error.cause)
        raise ContainerError(
            f"{entry.name} {entry.version} (SHA-256 {entry.sha256}) cannot be fetched",
            cause="; ".join(dict.fromkeys(refused[-3:])),
            hint=f"name a folder or URL that has it by its SHA-256 ({SOURCES}), or lock what mirrors have "
            "now: ./dev containers.lock",
        )


def places(entry: LockedFile, snapshot: str, sources: Sequence[str]) -> Iterator[str]:
    """URLs of a file, in order."""
    for source in sources:
        base = source.rstrip("/") if "://" in source else Path(source).absolute().as_uri()
        yield f"{base}/{entry.sha256}"
    if entry.url:
        yield entry.url
    if entry.url.startswith(DEBIAN):
        archive, _, path = entry.url.removeprefix(DEBIAN).partition("/")
        yield f"{SNAPSHOT}{archive}/{snapshot}/{path}"


def receive(url: str, path: Path, *, limit: int) -> None:
    """Writes what is behind a URL (file, http, https), at most `limit` bytes, to `path`."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        shutil.copyfile(unquote(parts.path), path)
        return
    received = download(url, limit=limit, seconds=FILE_SECONDS)
    with closing(received), path.open("wb") as file:
        file.writelines(received)
