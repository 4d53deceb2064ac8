"""API levels: releases of AOTriton such as 0.13b whose interface a library has; names from them."""

import re

LEVEL_PATTERN = r"^[0-9]+\.[0-9]+(\.[0-9]+)?b$"

RELEASE_NAME = r"^[0-9]+\.[0-9]+(\.[0-9]+)?b(-r[0-9]+)?$"
"""Our releases: 0.13b-r1."""

RELEASE_PATTERN = r"^0\.[0-9]+(\.[0-9]+)?(b|tp[0-9]*)$"
"""Releases of AOTriton: 0.13b, 0.12.1b, and technology previews such as 0.12.50tp2."""

LIBRARY_PATTERN = r"^libaotriton_v2\.so(\.[0-9]+){3}$"
"""The library's name with its version, as programs need it."""

_SUFFIX = re.compile(r"(b|tp[0-9]*)$")


def _numbers(release: str) -> list[str]:
    return _SUFFIX.sub("", release).split(".")


def version_key(name: str) -> tuple[int, ...]:
    """Sorts 0.9.2b before 0.10b, and 2.9 before 2.10."""
    return tuple(int(part) for part in _numbers(name))


def feature_level(release: str) -> str:
    """0.11 of 0.11.2b: point releases and technology previews keep their feature release's interface."""
    return ".".join(_numbers(release)[:2])


def library_version(release: str) -> str:
    """Three numbers: 0.13.0 of 0.13b, 0.12.50 of 0.12.50tp2."""
    return ".".join((*_numbers(release), "0", "0")[:3])


def library_name(release: str) -> str:
    """SONAME of a release's library: libaotriton_v2.so.0.11.0 of 0.11b."""
    return f"libaotriton_v2.so.{library_version(release)}"


def library_level(name: str) -> str:
    """The feature release of a library's name: 0.12 of libaotriton_v2.so.0.12.50."""
    return ".".join(name.split(".")[-3:-1])


def level_of(version: str) -> str:
    """The API level of a release as users write it: 0.13b of 0.13b or 0.13b-r1."""
    return version.partition("-r")[0]
