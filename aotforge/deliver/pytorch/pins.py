"""The variables in PyTorch's cmake/External/aotriton.cmake that make its build download a release.

Names and order are those of PyTorch 2.9 to 2.12. The lines replace the ones of the same names in PyTorch's
file.
"""

import re
from pathlib import Path

from aotforge.base.html import render
from aotforge.conformance.matrix import levels_for, load_matrix
from aotforge.errors import ReleaseError, UnsupportedError
from aotforge.formats.api_level import level_of, version_key
from aotforge.formats.sums import SUMS
from aotforge.formats.untrusted_file import parse_json, read_regular
from aotforge.release.release import Release

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_READS_BASE_URL = (2, 13)
"""The first PyTorch whose file reads PYTORCH_AOTRITON_BASE_URL (it pins 0.12b)."""


def pins_text(release: Release, *, base_url: str, commit: str, environment_url: bool) -> str:
    """The lines for a release at `base_url`/<release>/. `commit` is that of our sources, "" when unknown.

    `environment_url`: that PyTorch reads PYTORCH_AOTRITON_BASE_URL, so the file need not contain the address.
    Raises ReleaseError for a release without images or without a runtime for manylinux.
    """
    runtimes = [(name, platform.policy) for name in release.of("runtime") if (platform := name.manylinux)]
    images = release.of("images")
    if not runtimes or not images:
        raise ReleaseError(
            f"{release.folder} is not a release for PyTorch",
            cause=f"{SUMS} names no runtime or no images",
            hint="./dev build --arch gfx908 makes one",
        )
    return render(
        "pytorch_pins.cmake.jinja",
        release=release.name,
        level=level_of(release.name),
        runtimes=[(f"rocm{name.rocm}", policy, release.sums[str(name)]) for name, policy in runtimes],
        images=[(name.pack, release.sums[str(name)]) for name in images],
        base_url=base_url.rstrip("/") + "/",
        commit=commit,
        environment_url=environment_url,
    )


def prefix_text(folder: Path, base_url: str) -> str:
    """The commands that need no edit of PyTorch: they install a prefix that its build takes.

    Raises ReleaseError.
    """
    release = Release.open(folder)
    prefix = f"/opt/aotriton-{release.name}"
    packs = ", ".join(name.pack.removeprefix("amd-") for name in release.of("images"))
    return (
        f"# image packs of the release: {packs}\n"
        f"# {base_url} must have a signed index; root.json comes from the publisher\n"
        f"./dev install --version {release.name} --prefix {prefix} --arch <arch> --from {base_url} "
        "--root root.json\n"
        f"export AOTRITON_INSTALLED_PREFIX={prefix}   # in the shell that builds PyTorch\n"
    )


def pins_for_pytorch(checkout: Path, folder: Path, *, pytorch: str, fork: bool, url: str) -> str:
    """The lines for one version of PyTorch and the release in `folder`.

    Raises UnsupportedError when that PyTorch cannot be built with it, UnknownNameError, ReleaseError.
    """
    release = Release.open(folder)
    levels = levels_for(checkout, pytorch, fork=fork)
    if level_of(release.name) not in levels:
        raise UnsupportedError(
            f"PyTorch {pytorch} cannot be built with {release.name}",
            cause=f"it takes API level {' or '.join(levels)}",
            hint=f"./dev build --version {levels[0]} makes such a release",
        )
    row = load_matrix(checkout).find(pytorch, fork=fork)
    late = row.pytorch == "main" or version_key(row.pytorch) >= _READS_BASE_URL
    return pins_text(release, base_url=url, commit=_commit(folder), environment_url=late)


def _commit(folder: Path) -> str:
    """The commit in a finalized release's release.json; "" for a build's folder, and for a text that is not
    a commit: CMake would execute what follows a quotation mark."""
    try:
        commit = parse_json(read_regular(folder / "release.json"))["origin"]["commit"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else ""
