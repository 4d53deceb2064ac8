"""What a PyTorch checkout must hold to download a release: the variables of its cmake/External/aotriton.cmake.

Names and order are those of PyTorch 2.9 to 2.12. The file itself is PyTorch's; these lines take the place of the ones with the same names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from aotforge.deliver.pytorch.listing import Listing, list_release
from aotforge.errors import UnsupportedError

_BASE_IN_ENVIRONMENT = "PYTORCH_AOTRITON_BASE_URL"
_READS_BASE_URL = (2, 13)
"""The first PyTorch whose file reads the variable (it pins 0.12b)."""


def pins_text(listing: Listing, *, base_url: str, commit: str, environment_url: bool) -> str:
    """The lines for a release at `base_url`/<release>/. `commit` is that of our sources, "" when unknown. `environment_url`: that PyTorch reads
    PYTORCH_AOTRITON_BASE_URL, so the address need not stand in the file.
    """
    base = base_url.rstrip("/") + "/"
    labels = [f"rocm{one.rocm}" for one in listing.runtimes]
    lines = [
        f'set(__AOTRITON_VER "{listing.release}")',
        *_list("__AOTRITON_MANYLINUX_LIST", [one.tag for one in listing.runtimes], labels),
        *_list("__AOTRITON_ROCM_LIST", labels),
    ]
    if commit:
        lines += [
            "# of aotforge's sources: only used with AOTRITON_INSTALL_FROM_SOURCE and for a ROCm that the list lacks, and then",
            "# GIT_REPOSITORY must name them too",
            f'set(__AOTRITON_CI_COMMIT "{commit}")',
        ]
    lines += _list("__AOTRITON_SHA256_LIST", [one.sha256 for one in listing.runtimes], labels)
    lines += _list("__AOTRITON_IMAGE_LIST", [pack for pack, _ in listing.images])
    lines += _list(
        "__AOTRITON_IMAGE_SHA256_LIST",
        [digest for _, digest in listing.images],
        [pack for pack, _ in listing.images],
    )
    if environment_url:
        lines.append(f"# and in the environment of the build: {_BASE_IN_ENVIRONMENT}={base}")
    else:
        lines.append(f'set(__AOTRITON_BASE_URL "{base}")')
    lines.append('set(__AOTRITON_Z "gz")')
    return "".join(f"  {line}\n" for line in lines)


def prefix_text(listing: Listing, base_url: str) -> str:
    """The way that needs no edit: a prefix that PyTorch's build takes as it is."""
    place = f"/opt/aotriton-{listing.release}"
    packs = ", ".join(pack.removeprefix("amd-") for pack, _ in listing.images)
    return (
        f"# image packs of the release: {packs}\n"
        f"# {base_url} must have been published to, for its signed index; root.json comes from the publisher\n"
        f"./dev install --version {listing.release} --prefix {place} --arch <your chip> --from {base_url} --root root.json\n"
        f"export AOTRITON_INSTALLED_PREFIX={place}   # in the shell that builds PyTorch\n"
    )


def pins_for_pytorch(checkout: Path, folder: Path, *, pytorch: str, fork: bool, url: str) -> str:
    """The lines for one version of PyTorch, and the release in `folder`. Raises UnsupportedError when that PyTorch cannot be built with it,
    UnknownNameError, ReleaseError."""
    from aotforge.conformance.matrix import load_matrix  # noqa: PLC0415 - only this function asks the matrix
    from aotforge.conformance.matrix_models import version_key  # noqa: PLC0415

    matrix = load_matrix(checkout)
    row = matrix.find(pytorch, fork=fork)
    service = matrix.service(row)
    listing = list_release(folder)
    if not service.build:
        raise UnsupportedError(
            f"PyTorch {pytorch} cannot be built with {listing.release}",
            cause=service.reason or "the matrix does not say that it compiles",
            hint=f"`./dev compat.which --pytorch {pytorch} --arch gfx908` says what it takes",
        )
    late = row.pytorch == "main" or version_key(row.pytorch) >= _READS_BASE_URL
    return pins_text(listing, base_url=url, commit=_commit(folder), environment_url=late)


def _commit(folder: Path) -> str:
    """The commit in a finished release's release.json; "" for a build's folder."""
    try:
        return str(json.loads((folder / "release.json").read_bytes())["origin"]["commit"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _list(name: str, values: Sequence[str], labels: Sequence[str] = ()) -> list[str]:
    notes = [f"  # {label}" for label in labels] or [""] * len(values)
    return [
        f"set({name}",
        *(f'    "{value}"{note}' for value, note in zip(values, notes, strict=True)),
        "    )",
    ]
