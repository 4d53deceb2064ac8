"""Downloads the locked packages and wheels that the store lacks and verifies their SHA-256."""

from __future__ import annotations

import http.client
import posixpath
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.cache_files import Store
from aotforge.sandbox.rootfs.definitions import Lock, LockedFile, LockedPackage, LockedWheel, RootfsSpec
from aotforge.sandbox.rootfs.mirrors import AptSettings, apt_settings
from aotforge.sandbox.rootfs.pip_wheels import fetch_wheel

SOURCES = "AOTFORGE_CONTAINER_SOURCES"
"""Environment variable: folders and URLs, separated by spaces, that are searched for packages and wheels before any mirror."""

_PARALLEL = 6
_SHOWN = 6
_FAILURES = (ConnectionError, TimeoutError, ValueError, http.client.HTTPException, ContainerError)


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
            try:
                with opened(url, self.settings) as stream:
                    self.store.put(entry.sha256, stream)
                return
            except urllib.error.HTTPError as error:
                refused.append(f"{url}: {error.code} {error.reason}")
            except urllib.error.URLError as error:
                refused.append(f"{url}: {error.reason}")
            except _FAILURES as error:
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


@contextmanager
def opened(url: str, settings: AptSettings) -> Iterator[BinaryIO]:
    """The bytes behind a URL, through apt's proxy and certificates. Raises URLError, OSError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        try:
            file = Path(unquote(parts.path)).open("rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise urllib.error.URLError(error.strerror or str(error)) from error
        with file:
            yield file
        return
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(_proxies(parts.scheme, parts.hostname or "", settings)),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=settings.certificates or None)),
    )
    with opener.open(url, timeout=settings.timeout) as response:
        yield response


def _proxies(scheme: str, host: str, settings: AptSettings) -> dict[str, str]:
    """apt's precedence: a proxy for the host, one for the scheme, the environment's; DIRECT is none."""
    named = settings.proxies.get(f"{scheme}::{host}") or settings.proxies.get(scheme)
    if named is None:
        return urllib.request.getproxies()
    return {} if named.upper() == "DIRECT" else {scheme: named}
