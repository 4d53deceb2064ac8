"""The archives of a release that PyTorch's build downloads, with their digests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import ReleaseError
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import SUMS, read_sums


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A runtime archive: its platform tag without the machine, the ROCm in its name, its SHA-256."""

    tag: str
    rocm: str
    sha256: str

    @property
    def label(self) -> str:
        """E.g. `rocm7.0`."""
        return f"rocm{self.rocm}"


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A release's runtimes by ROCm, oldest first, and image packs as (name, SHA-256), by name."""

    release: str
    runtimes: tuple[Runtime, ...]
    images: tuple[tuple[str, str], ...]


def list_release(folder: Path) -> Listing:
    """Reads SHA256SUMS in `folder`. Raises ReleaseError when it is missing or names no runtime or no images."""
    sums = read_sums(folder / SUMS)
    names = [(name, digest) for file, digest in sums.items() if (name := parse_artifact_name(file))]
    runtimes = [
        (name.rocm_version, Runtime(tag=platform.policy, rocm=name.rocm, sha256=digest))
        for name, digest in names
        if (platform := name.manylinux)
    ]
    images = [(name.pack, digest) for name, digest in names if name.kind == "images"]
    releases = {name.release for name, _ in names if name.manylinux or name.kind == "images"}
    if not runtimes or not images or len(releases) != 1:
        raise ReleaseError(
            f"{folder} is not a release for PyTorch",
            cause=f"{SUMS} names no runtime, no images, or archives of several releases",
            hint="./dev build --arch gfx908 makes one",
        )
    return Listing(
        release=releases.pop(),
        runtimes=tuple(runtime for _, runtime in sorted(runtimes, key=lambda one: one[0])),
        images=tuple(sorted(images)),
    )


def newest_release(dist: Path) -> Path:
    """The newest release below `dist`: a finalized one before one that was only built. Raises ReleaseError."""
    for folder in (dist / "finished", dist):
        # a name with a dot is a release in progress, or one that was left by a killed process
        if found := list(folder.glob(f"[!.]*/{SUMS}")):
            return max(found, key=lambda path: path.stat().st_mtime).parent
    raise ReleaseError(
        f"{dist} holds no release",
        cause="none was made yet, or elsewhere",
        hint="./dev build --arch gfx908, or name a folder",
    )
