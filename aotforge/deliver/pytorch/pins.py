"""The variables in PyTorch's cmake/External/aotriton.cmake that make its build download a release.

Names and order are those of PyTorch 2.9 to 2.12. The lines replace the ones of the same names in PyTorch's file.
"""

from __future__ import annotations

import json
from pathlib import Path

from aotforge.base.html import render
from aotforge.conformance.matrix import load_matrix
from aotforge.conformance.matrix_models import version_key
from aotforge.deliver.pytorch.listing import Listing, list_release
from aotforge.errors import UnsupportedError

_READS_BASE_URL = (2, 13)
"""The first PyTorch whose file reads PYTORCH_AOTRITON_BASE_URL (it pins 0.12b)."""


def pins_text(listing: Listing, *, base_url: str, commit: str, environment_url: bool) -> str:
    """The lines for a release at `base_url`/<release>/. `commit` is that of our sources, "" when unknown.

    `environment_url`: that PyTorch reads PYTORCH_AOTRITON_BASE_URL, so the file need not contain the address.
    """
    return render(
        "pytorch_pins.cmake.jinja",
        listing=listing,
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
        f"# {base_url} must have been published to, for its signed index; root.json comes from the publisher\n"
        f"./dev install --version {listing.release} --prefix {prefix} --arch <arch> --from {base_url} --root root.json\n"
        f"export AOTRITON_INSTALLED_PREFIX={prefix}   # in the shell that builds PyTorch\n"
    )


def pins_for_pytorch(checkout: Path, folder: Path, *, pytorch: str, fork: bool, url: str) -> str:
    """The lines for one version of PyTorch and the release in `folder`.

    Raises UnsupportedError when that PyTorch cannot be built with it, UnknownNameError, ReleaseError.
    """
    matrix = load_matrix(checkout)
    row = matrix.find(pytorch, fork=fork)
    service = matrix.service(row)
    listing = list_release(folder)
    if not service.build:
        raise UnsupportedError(
            f"PyTorch {pytorch} cannot be built with {listing.release}",
            cause=service.reason or "the matrix has no statement that it compiles",
            hint=f"`./dev compat.which --pytorch {pytorch} --arch gfx908` shows what it takes",
        )
    late = row.pytorch == "main" or version_key(row.pytorch) >= _READS_BASE_URL
    return pins_text(listing, base_url=url, commit=_commit(folder), environment_url=late)


def _commit(folder: Path) -> str:
    """The commit in a finalized release's release.json; "" for a build's folder."""
    try:
        return str(json.loads((folder / "release.json").read_bytes())["origin"]["commit"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
