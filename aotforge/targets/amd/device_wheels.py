"""AMD's device wheels of an installed PyTorch that lack the wheel with their attention images.

The wheel aotforge-attention has this file too: it needs Python 3.9 and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_LEAF = "amd_torch_device_gfx"
_INFO = ".dist-info"
_OF_FAMILIES = ("110", "115", "120")
"""Archs that have their images in a wheel of their family, without the last digit."""


def without_family(torch_lib: str, needed: Sequence[str]) -> tuple[str, str] | None:
    """Why attention fails in a PyTorch of AMD's wheels that needs the AOTriton libraries `needed`, and what
    to do.

    None when its device wheels have their images, or it has none. Raises nothing.
    """
    lib = Path(torch_lib)
    metadata, packs = _names_in(lib.parents[1]), _names_in(lib / "aotriton.images")
    leaves = [
        name[len(_LEAF) : -len(_INFO)].partition("-")
        for name in sorted(metadata)
        if name.startswith(_LEAF) and name.endswith(_INFO)
    ]
    lacking = [(arch, version) for arch, _, version in leaves if arch[:-1] in _OF_FAMILIES and len(arch) == 4]
    lacking = [one for one in lacking if not {f"amd-gfx{name}" for name in _folders(one[0])} & packs]
    if not lacking or not needed:
        return None
    level = tuple(int(part) for part in needed[0].split(".")[-3:-1] if part.isdigit())
    wheels = sorted({f"amd-torch-device-{_family(arch, level)}=={version}" for arch, version in lacking})
    leaf = ", ".join(f"amd-torch-device-gfx{arch}" for arch, _ in lacking)
    return (
        f"PyTorch has no images for {', '.join(f'gfx{arch}' for arch, _ in lacking)}, "
        "and its attention fails: "
        f"{leaf} is installed without the wheel of its family",
        f"pip install --index-url INDEX {' '.join(wheels)} (INDEX: where this PyTorch was installed from)",
    )


def _names_in(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except OSError:
        return set()


def _folders(arch: str) -> tuple[str, str, str]:
    """Names of folders that may have the images of an arch."""
    return arch, f"{arch[:-1]}x", f"{arch[:-2]}xx"


def _family(arch: str, level: tuple[int, ...]) -> str:
    """The end of the name of the wheel that has an arch's images: AOTriton 0.12 divided those of gfx11."""
    if arch.startswith("12"):
        return "gfx12-0"
    return f"gfx{arch[:-1]}x" if level >= (0, 12) else "gfx11"
