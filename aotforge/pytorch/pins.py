"""What a PyTorch checkout must hold to download a release: the variables of its cmake/External/aotriton.cmake.

Names and order are those of PyTorch 2.9 to 2.12. The file itself is PyTorch's; these lines take the place of the ones with the same names.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotforge.pytorch.listing import Listing

_BASE_IN_ENVIRONMENT = "PYTORCH_AOTRITON_BASE_URL"


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


def prefix_text(release: str, archs: Sequence[str], base_url: str) -> str:
    """The way that needs no edit: a prefix that PyTorch's build takes as it is."""
    return (
        f"./dev install --prefix /opt/aotriton-{release} --arch {','.join(archs)} --from {base_url}\n"
        f"AOTRITON_INSTALLED_PREFIX=/opt/aotriton-{release} python setup.py develop   # in the PyTorch checkout\n"
    )


def _list(name: str, values: Sequence[str], labels: Sequence[str] = ()) -> list[str]:
    notes = [f"  # {label}" for label in labels] or [""] * len(values)
    return [
        f"set({name}",
        *(f'    "{value}"{note}' for value, note in zip(values, notes, strict=True)),
        "    )",
    ]
