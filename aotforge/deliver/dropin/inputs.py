"""Inputs of a drop-in: an installed PyTorch's `torch/lib`, and an unpacked release."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import DropInError
from aotforge.formats.api_level import LIBRARY_PATTERN
from aotforge.formats.shared_library import LibraryFileError, read_shared_library
from aotforge.formats.untrusted_file import read_regular
from aotforge.release.platform_tag import read_soname

IMAGES = "aotriton.images"
PLAIN_NAME = "libaotriton_v2.so"
"""The name that linkers look for; the loader looks for names with a version."""

_VERSIONED_NAME = re.compile(LIBRARY_PATTERN)
_VERSION = re.compile(r"""^__version__\s*=\s*['"]([^'"]+)""", re.MULTILINE)
_HIP = "libtorch_hip.so"


@dataclass(frozen=True, kw_only=True)
class TorchLib:
    """An installed PyTorch's `torch/lib`. `version` is empty when unknown.

    `needed`: the AOTriton names that its libraries load.
    """

    folder: Path
    version: str
    needed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class UnpackedRelease:
    """`prefix`/lib has the library under `soname`, links for `names`, and image packs."""

    release: str
    prefix: Path
    soname: str
    names: tuple[str, ...]
    packs: tuple[str, ...]


def read_torch_lib(folder: Path) -> TorchLib:
    """Reads `folder` (a `torch/lib`).

    Raises DropInError when it is not a torch/lib of a ROCm build, or links AOTriton statically or not at all.
    """
    if not folder.is_dir():
        raise DropInError(
            f"{folder} is not a folder",
            hint="name PyTorch's library folder: "
            "python -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parent / \"lib\")'",
        )
    if not (folder / _HIP).is_file():
        is_torch = (folder / "libtorch_cpu.so").is_file() or (folder / "libtorch.so").is_file()
        raise DropInError(
            f"{folder} has no {_HIP}",
            cause="this PyTorch is not built for ROCm" if is_torch else "it is not PyTorch's torch/lib",
            hint="install a ROCm build of PyTorch first, then drop the release into its torch/lib",
        )
    needed = set()
    for path in folder.glob("*.so"):
        if path.is_file() and not path.is_symlink():
            with suppress(LibraryFileError):  # a linker script, for instance
                needed |= {name for name in read_shared_library(path).needed if _VERSIONED_NAME.match(name)}
    if not needed:
        raise DropInError(
            f"no library in {folder} needs {PLAIN_NAME}",
            cause="this PyTorch was built without AOTriton, or before 2.5, when it was linked statically",
            hint="`./dev compat` shows what this version of PyTorch can use",
        )
    return TorchLib(folder=folder, version=torch_version(folder), needed=tuple(sorted(needed)))


def torch_version(folder: Path) -> str:
    """The version that torch/version.py beside `folder` states, or an empty string."""
    try:
        match = _VERSION.search(read_regular(folder.parent / "version.py").decode("utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""
    return match.group(1) if match else ""


def read_prefix(prefix: Path, *, release: str) -> UnpackedRelease:
    """The release in `prefix`. Raises DropInError when the library is missing or image packs are
    incomplete."""
    library = prefix / "lib" / PLAIN_NAME
    if not library.exists():
        raise DropInError(
            f"{prefix} has no lib/{PLAIN_NAME}",
            cause="it is not an unpacked release",
            hint="`./dev install --prefix DIR` unpacks one",
        )
    real = library.resolve()
    if real.name != (soname := read_soname(real)):
        raise DropInError(f"{real} has SONAME {soname}", cause="the library was renamed")
    images = prefix / "lib" / IMAGES
    packs = sorted(path.name for path in images.glob("*") if path.is_dir())
    incomplete = [name for name in packs if not (images / name / "__signature__").is_file()]
    if incomplete or not packs:
        raise DropInError(
            f"{images} has no complete image pack" + (f": {', '.join(incomplete)}" if incomplete else ""),
            cause="the image tarballs of the release were not unpacked, or only in part",
            hint="`./dev install --prefix DIR --arch ARCH` unpacks library and images together",
        )
    links = (path for path in (prefix / "lib").glob(f"{PLAIN_NAME}*") if path.exists())  # not one to itself
    names = sorted(path.name for path in links if path.resolve() == real)
    return UnpackedRelease(
        release=release, prefix=prefix, soname=soname, names=tuple(names), packs=tuple(packs)
    )
