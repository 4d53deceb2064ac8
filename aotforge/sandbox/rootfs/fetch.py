"""Downloads the locked packages and wheels that the store lacks and verifies their SHA-256.

Packages come from the archives that this machine's apt uses, then from Debian's own. Only addresses, proxies and certificates of apt
are used, not Release files, their dates and signatures: the lock has the SHA-256 of every file.
"""

import http.client
import io
import posixpath
import re
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote, unquote, urlsplit

from aotforge.base.child_processes import run_child
from aotforge.base.downloads import FILE_SECONDS, download, pieces
from aotforge.base.files import open_regular
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.cache_files import Store
from aotforge.sandbox.rootfs.definitions import Lock, LockedFile, LockedPackage, LockedWheel, RootfsSpec
from aotforge.sandbox.rootfs.pip_wheels import fetch_wheel

SOURCES = "AOTFORGE_CONTAINER_SOURCES"
"""Environment variable: folders and URLs, separated by spaces, that are searched for packages and wheels before any mirror."""

DEBIAN = ("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")
SNAPSHOT = "https://snapshot.debian.org/file"
"""Debian's archive of every package ever published, by SHA-1 (https://snapshot.debian.org/)."""

_PARALLEL = 6
_SHOWN = 6
FAILURES = (
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
    ValueError,
    http.client.HTTPException,
    ContainerError,
)
"""Errors of a mirror besides URLError, after which the next one is tried. Other errors of the system are those of this machine's disk."""


@dataclass(frozen=True, kw_only=True)
class AptSettings:
    """apt's configuration: archive URLs in order, proxies by scheme or "scheme::host", file of certificates, timeout in seconds."""

    archives: tuple[str, ...]
    proxies: Mapping[str, str]
    certificates: str = ""
    timeout: int = 30
    snapshot: str = SNAPSHOT


def apt_settings() -> AptSettings:
    """This machine's settings; only Debian's own archives where there is no apt."""
    sites = _lines(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"])
    dump = dict(_setting(line) for line in _lines(["apt-config", "dump"]))
    return settings_from(sites, dump)


def settings_from(sites: Sequence[str], dump: Mapping[str, str]) -> AptSettings:
    """Settings from the sites of `apt-get indextargets` and the keys (lower case) and values of `apt-config dump`."""
    usable = [site.rstrip("/") for site in sites if re.match(r"(https?|file|copy):", site)]
    archives = [re.sub(r"^copy:", "file:", site) for site in usable]
    proxies = {}
    for key, value in dump.items():
        if (found := re.fullmatch(r"acquire::(https?)::proxy(?:::(.+))?", key)) and value:
            proxies["::".join(part for part in found.groups() if part)] = value
    seconds = dump.get("acquire::http::timeout", "")
    return AptSettings(
        archives=tuple(dict.fromkeys((*archives, *DEBIAN))),
        proxies=proxies,
        certificates=dump.get("acquire::https::cainfo", ""),
        timeout=int(seconds) if seconds.isdigit() and int(seconds) else 30,
    )


def _setting(line: str) -> tuple[str, str]:
    key, _, value = line.partition(" ")
    return key.lower(), value.strip().rstrip(";").strip('"')


def _lines(command: Sequence[str]) -> list[str]:
    if shutil.which(command[0]) is None:
        return []
    done = run_child(command, capture_output=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def fetch_locked(
    spec: RootfsSpec, lock: Lock, store: Store, *, sources: Sequence[str], observer: Observer
) -> None:
    """Downloads every missing file of `lock`. `sources` are folders or URLs that are searched first.

    Raises ContainerError that names the first file that was not found, and where it was searched.
    """
    wheels = spec.definition.wheels
    download = _Download(store, sources, apt_settings(), wheels.python if wheels else "3")
    missing = {entry.sha256: entry for entry in lock.files if not store.has(entry.sha256)}
    done, report = 0, stage_reporter(spec.name, "fetching", observer)
    report(done, len(missing))
    pool = ThreadPoolExecutor(_PARALLEL)
    try:
        waiting = [pool.submit(download.fetch, entry) for entry in missing.values()]
        for future in as_completed(waiting):
            future.result()
            report(done := done + 1, len(missing))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def stage_reporter(name: str, what: str, observer: Observer) -> Callable[[int, int], None]:
    """A callback (done, total) that reports the begin and every fifth of the work, and nothing when there is none."""
    reported = -1

    def report(done: int, total: int) -> None:
        nonlocal reported
        fifth = done * 5 // total if total else 5
        if total and fifth != reported and done < total:
            observer.stage(f"{name}: {what}, {done} of {total} files")
        reported = fifth

    return report


@dataclass(frozen=True)
class _Download:
    store: Store
    sources: Sequence[str]
    settings: AptSettings
    python: str

    def fetch(self, entry: LockedFile) -> None:
        refused = []
        for url in self.urls(entry):
            if "@" in (host := urlsplit(url).netloc):
                refused.append(
                    f"an address of {host.rpartition('@')[2]}: it has a password, which is not sent"
                )
                continue
            try:
                with opened(url, self.settings, size=entry.size) as stream:
                    self.store.put(entry.sha256, stream)
                return
            except urllib.error.HTTPError as error:
                refused.append(f"{url}: {error.code} {error.reason}")
            except urllib.error.URLError as error:
                refused.append(f"{url}: {error.reason}")
            except FAILURES as error:
                refused.append(f"{url}: {error}")
        if isinstance(entry, LockedWheel):
            refused.append(fetch_wheel(entry, store=self.store, python=self.python))
            if self.store.has(entry.sha256):
                return
        raise ContainerError(
            f"{posixpath.basename(entry.file)} (SHA-256 {entry.sha256}) cannot be fetched",
            cause="; ".join(refused[:_SHOWN]) or "no source is known",
            hint="name a folder or URL that has it (--source), import a store, or lock what mirrors have now: ./dev containers.lock",
        )

    def urls(self, entry: LockedFile) -> Iterator[str]:
        base = posixpath.basename(entry.file)
        for source in self.sources:
            root = source.rstrip("/") if "://" in source else Path(source).absolute().as_uri()
            for name in dict.fromkeys((entry.sha256, quote(entry.file), quote(base))):
                yield f"{root}/{name}"
        if isinstance(entry, LockedPackage):
            security = entry.suite.endswith("-security")
            for archive in sorted(self.settings.archives, key=lambda url: ("security" in url) != security):
                yield f"{archive}/{quote(entry.file)}"
            yield f"{self.settings.snapshot}/{entry.sha1}"


class _Stream(io.RawIOBase):
    """A download as a file: `read` returns the next piece, of any length."""

    def __init__(self, received: Iterator[bytes]) -> None:
        self._received = received

    def read(self, _size: int = -1) -> bytes:
        """Empty at the end."""
        return next(self._received, b"")


@contextmanager
def opened(url: str, settings: AptSettings, *, size: int) -> Iterator[BinaryIO]:
    """The bytes behind a URL, at most `size`, through apt's proxy and certificates. Raises URLError, OSError, others of `FAILURES`."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with ExitStack() as stack:
            try:
                file = stack.enter_context(open_regular(Path(unquote(parts.path)), flags=0))
            except OSError as error:
                raise urllib.error.URLError(error.strerror or str(error)) from error
            yield cast(BinaryIO, _Stream(pieces(file.read, size)))
        return
    proxies = urllib.request.ProxyHandler(_proxies(parts.scheme, parts.hostname or "", settings))
    trusted = ssl.create_default_context(cafile=settings.certificates or None)
    received = download(
        url, proxies, limit=size, seconds=FILE_SECONDS, timeout=settings.timeout, context=trusted
    )
    with closing(received):
        yield cast(BinaryIO, _Stream(received))


def _proxies(scheme: str, host: str, settings: AptSettings) -> dict[str, str]:
    """apt's precedence: a proxy for the host, one for the scheme, the environment's; DIRECT is none."""
    named = settings.proxies.get(f"{scheme}::{host}") or settings.proxies.get(scheme)
    if named is None:
        return urllib.request.getproxies()
    return {} if named.upper() == "DIRECT" else {scheme: named}
