"""The variables in PyTorch's cmake/External/aotriton.cmake that make its build download a release.

Names and order are those of PyTorch 2.9 to 2.12. The lines replace the ones of the same names in PyTorch's
file.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.html import render
from aotforge.conformance.matrix import levels_for, load_matrix
from aotforge.errors import ReleaseError, UnsupportedError
from aotforge.formats.api_level import level_of, version_key
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import SUMS, read_sums
from aotforge.formats.untrusted_file import parse_json, read_regular

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_READS_BASE_URL = (2, 13)
"""The first PyTorch whose file reads PYTORCH_AOTRITON_BASE_URL (it pins 0.12b)."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A runtime archive: its platform tag without the machine, the ROCm in its name (`rocm7.0`), its
    SHA-256."""

    tag: str
    rocm: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A release's runtimes by ROCm, oldest first, and image packs as (name, SHA-256), by name."""

    release: str
    runtimes: tuple[Runtime, ...]
    images: tuple[tuple[str, str], ...]


def list_release(folder: Path) -> Listing:
    """Reads SHA256SUMS in `folder`. Raises ReleaseError when it is missing or names no runtime or no
    images."""
    sums = read_sums(folder / SUMS)
    names = [(name, digest) for file, digest in sums.items() if (name := parse_artifact_name(file))]
    runtimes = [
        (name.rocm_version, Runtime(tag=platform.policy, rocm=f"rocm{name.rocm}", sha256=digest))
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


def pins_text(listing: Listing, *, base_url: str, commit: str, environment_url: bool) -> str:
    """The lines for a release at `base_url`/<release>/. `commit` is that of our sources, "" when unknown.

    `environment_url`: that PyTorch reads PYTORCH_AOTRITON_BASE_URL, so the file need not contain the address.
    """
    return render(
        "pytorch_pins.cmake.jinja",
        listing=listing,
        level=level_of(listing.release),
        base_url=base_url.rstrip("/") + "/",
        commit=commit,
        environment_url=environment_url,
    )


def prefix_text(listing: Listing, base_url: str) -> str:
    """The commands that need no edit of PyTorch: they install a prefix that its build takes."""
    prefix = f"/opt/aotriton-{listing.release}"
    packs = ", ".join(pack.removeprefix("amd-") for pack, _ in listing.images)
    return (
        f"# image packs of the release: {packs}\n"
        f"# {base_url} must have a signed index; root.json comes from the publisher\n"
        f"./dev install --version {listing.release} --prefix {prefix} --arch <arch> --from {base_url} "
        "--root root.json\n"
        f"export AOTRITON_INSTALLED_PREFIX={prefix}   # in the shell that builds PyTorch\n"
    )


def pins_for_pytorch(checkout: Path, folder: Path, *, pytorch: str, fork: bool, url: str) -> str:
    """The lines for one version of PyTorch and the release in `folder`.

    Raises UnsupportedError when that PyTorch cannot be built with it, UnknownNameError, ReleaseError.
    """
    listing = list_release(folder)
    levels = levels_for(checkout, pytorch, fork=fork)
    if level_of(listing.release) not in levels:
        raise UnsupportedError(
            f"PyTorch {pytorch} cannot be built with {listing.release}",
            cause=f"it takes API level {' or '.join(levels)}",
            hint=f"./dev build --version {levels[0]} makes such a release",
        )
    row = load_matrix(checkout).find(pytorch, fork=fork)
    late = row.pytorch == "main" or version_key(row.pytorch) >= _READS_BASE_URL
    return pins_text(listing, base_url=url, commit=_commit(folder), environment_url=late)


def _commit(folder: Path) -> str:
    """The commit in a finalized release's release.json; "" for a build's folder, and for a text that is not
    a commit: CMake would execute what follows a quotation mark."""
    try:
        commit = parse_json(read_regular(folder / "release.json"))["origin"]["commit"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else ""
