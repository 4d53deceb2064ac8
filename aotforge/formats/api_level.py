"""API levels: releases of AOTriton such as 0.13b whose interface a library has; names from them."""

LEVEL_PATTERN = r"^[0-9]+\.[0-9]+(\.[0-9]+)?b$"


def version_key(name: str) -> tuple[int, ...]:
    """Sorts 0.9.2b before 0.10b, and 2.9 before 2.10."""
    return tuple(int(part) for part in name.removesuffix("b").split("."))


def feature_level(release: str) -> str:
    """0.11 of 0.11.2b: point releases keep their feature release's interface."""
    return ".".join(release.removesuffix("b").split(".")[:2])


def library_version(release: str) -> str:
    """Three numbers: 0.13.0 of 0.13b."""
    return ".".join((*release.removesuffix("b").split("."), "0", "0")[:3])


def library_name(release: str) -> str:
    """SONAME of a release's library: libaotriton_v2.so.0.11.0 of 0.11b."""
    return f"libaotriton_v2.so.{library_version(release)}"


def level_of(version: str) -> str:
    """The API level of a release as users write it: 0.13b of 0.13b or 0.13b-r1."""
    return version.partition("-r")[0]
