"""Values of flags: archs, folders, numbers, lists."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from aotforge.cli.output import print_status
from aotforge.cli.settings import HOME, ROOT
from aotforge.errors import UnsupportedError, UsageError
from aotforge.pipeline.requests import ONLY
from vgpu.cache import check_cache

Arch = Annotated[
    str, "arch or product, e.g. gfx908 or MI100, several separated by commas; native: this machine's GPUs"
]
OptionalArch = Annotated[str | None, f"{Arch.__metadata__[0]} (default: every pack)"]
Profile = Annotated[
    str | None, "smoke, quick, core (the default), serving or full; see manifests/profiles.yaml"
]
OnlyNames = Annotated[str | None, ONLY]
Cache = Annotated[str | None, "cache folder (default: AOTFORGE_CACHE, else .aotforge/cache)"]
Key = Annotated[str | None, "the publisher's public key, PEM: also check the signatures"]


def archs_of(arch: str | None) -> tuple[str, ...]:
    """The archs of an --arch flag; none where it is omitted. `native`: those of this machine's GPUs.

    Raises as `find_arch` and `native_archs`, and ManifestError.
    """
    if not arch:
        return ()
    from aotforge.base.architectures import load_architectures, parse_archs

    known = load_architectures(ROOT / "manifests")
    if arch.strip().lower() == "native":
        from aotforge.targets.installed import native_archs

        native = native_archs()
        served = [native_arch for native_arch in native if native_arch in known.architectures]
        others = ", ".join(native_arch for native_arch in native if native_arch not in served)
        arch = ",".join(served or native)
        print_status(f"note: native is {arch}" + (f"; no kernels for {others}" if served and others else ""))
    archs = parse_archs(arch, known)
    for parsed in archs:
        if parsed.note:
            print_status(f"note: {parsed.note}")
    return tuple(parsed.arch for parsed in archs)


def one_arch(arch: str) -> str:
    """The arch of a flag that takes one. Raises UsageError for several, and as `archs_of`."""
    if len(archs := archs_of(arch)) != 1:
        raise UsageError(f"--arch {arch!r} is not one arch", hint="--arch gfx908")
    return archs[0]


def named_cache(folder: str | None) -> Path:
    """The flag, else AOTFORGE_CACHE, else .aotforge/cache."""
    return Path(folder or os.environ.get("AOTFORGE_CACHE") or HOME / "cache").absolute()


def cache_folder(folder: str | None) -> Path:
    """The path of `named_cache`. Warns or raises CacheError as `check_cache`, and raises it for its name."""
    from aotforge.base.cache_folder import check_cache_name

    path = named_cache(folder)
    check_cache_name(path)
    check_cache(path, print_status)
    return path


def job_count(count: int | None) -> int | None:
    """The flag. Raises UsageError for a number below 1."""
    if count is not None and count < 1:
        raise UsageError(
            f"--jobs {count} is not a valid number",
            cause="--jobs is at least 1",
            hint="omit --jobs, or --jobs 1",
        )
    return count


def absolute(path: str | None) -> Path | None:
    """The flag as an absolute path."""
    return Path(path).absolute() if path else None


def names(text: str | None) -> tuple[str, ...]:
    """The names of a flag, separated by commas."""
    return tuple(part for part in (text or "").split(",") if part)


def pairs(text: str) -> dict[str, str]:
    """`a=1,b=2` as a table. Raises UnsupportedError."""
    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(name and sign and value for name, sign, value in parts):
        raise UnsupportedError(f"{text!r} is not a list of NAME=VALUE", hint="NAME=VALUE,NAME=VALUE")
    return {name: value for name, _, value in parts}


CONVERTED: Mapping[str, Callable[[Any], object]] = {
    "archs": archs_of,
    "cache": cache_folder,
    "jobs": job_count,
    "only": names,
    "images": lambda text: tuple(map(Path, names(text))),
}
"""Fields of requests whose flag has another type."""

GIVEN: Mapping[str, Callable[[], object]] = {
    "root": lambda: ROOT,
    "home": lambda: HOME,
    "environment": lambda: dict(os.environ),
}
"""Fields of requests that are not flags."""
