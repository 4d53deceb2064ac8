"""What a lock names and the store lacks is fetched, by name, and taken only with the locked bytes."""

from __future__ import annotations

import http.client
import posixpath
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.definitions import LockedPackage, LockedWheel
from aotforge.sandbox.rootfs.mirrors import AptSettings
from aotforge.sandbox.rootfs.package_store import Store
from aotforge.sandbox.rootfs.pip_wheels import fetch_wheels

_AT_ONCE = 6
_SHOWN = 6

Report = Callable[[int, int], None]


def fetch(
    packages: Sequence[LockedPackage],
    wheels: Sequence[LockedWheel],
    *,
    store: Store,
    sources: Sequence[str],
    settings: AptSettings,
    wheel_python: str,
    on_file: Report,
) -> None:
    """Bring every missing file into `store`. `sources` are folders or URLs that are asked first.

    Raises ContainerError that names the first file that nobody has, and where it was looked for.
    """
    named: tuple[LockedPackage | LockedWheel, ...] = (*wheels, *packages)
    lacking = {entry.sha256: entry for entry in named if not store.has(entry.sha256)}
    done, total = 0, len(lacking)
    on_file(done, total)
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        waiting = [
            pool.submit(_fetch, entry, store, sources, settings, wheel_python) for entry in lacking.values()
        ]
        for future in as_completed(waiting):
            future.result()
            on_file(done := done + 1, total)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _fetch(
    entry: LockedPackage | LockedWheel,
    store: Store,
    sources: Sequence[str],
    settings: AptSettings,
    wheel_python: str,
) -> None:
    refused = []
    for url in _places(entry, sources, settings):
        try:
            with opened(url, settings) as stream:
                store.put(entry.sha256, stream)
            return
        except urllib.error.HTTPError as error:
            refused.append(f"{url}: {error.code} {error.reason}")
        except urllib.error.URLError as error:
            refused.append(f"{url}: {error.reason}")
        except (
            ConnectionError,
            TimeoutError,
            ValueError,
            http.client.HTTPException,
            ContainerError,
        ) as error:
            refused.append(f"{url}: {error}")
    if isinstance(entry, LockedWheel):
        refused += fetch_wheels((entry,), store=store, python=wheel_python)
        if store.has(entry.sha256):
            return
    raise ContainerError(
        f"{posixpath.basename(entry.file)} (SHA-256 {entry.sha256}) cannot be fetched",
        cause="; ".join(refused[:_SHOWN]) or "no place to fetch it from is known",
        hint="name a folder or URL that has it (--source), import a store, or take what mirrors have now: invoke containers.lock",
    )


def _places(
    entry: LockedPackage | LockedWheel, sources: Iterable[str], settings: AptSettings
) -> Iterator[str]:
    base = posixpath.basename(entry.file)
    for source in sources:
        rootfs = source.rstrip("/") if "://" in source else Path(source).absolute().as_uri()
        for name in dict.fromkeys((entry.sha256, quote(entry.file), quote(base))):
            yield f"{rootfs}/{name}"
    if isinstance(entry, LockedPackage):
        security = entry.suite.endswith("-security")
        for archive in sorted(settings.archives, key=lambda address: ("security" in address) != security):
            yield f"{archive}/{quote(entry.file)}"
        yield f"{settings.snapshot}/{entry.sha1}"


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
    with opener.open(url, timeout=settings.timeout) as answer:
        yield answer


def _proxies(scheme: str, host: str, settings: AptSettings) -> dict[str, str]:
    """apt's rule: a proxy for the host before one for the scheme before the environment's; DIRECT is none."""
    named = settings.proxies.get(f"{scheme}::{host}") or settings.proxies.get(scheme)
    if named is None:
        return urllib.request.getproxies()
    return {} if named.upper() == "DIRECT" else {scheme: named}
