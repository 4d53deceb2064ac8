"""Reading an installed PyTorch: which AOTriton its libraries were linked to, and which version it is."""

from __future__ import annotations

import re
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from aotforge.deliver.dropin.model import TorchLib
from aotforge.errors import DropInError

_NAME = re.compile(r"^libaotriton_v2\.so(\.\d+){3}$")
_VERSION = re.compile(r"""^__version__\s*=\s*['"]([^'"+]+)""", re.MULTILINE)
_HIP = "libtorch_hip.so"


def read_torch_lib(folder: Path, *, version: str = "") -> TorchLib:
    """What `folder` (a `torch/lib`) asks for. `version` overrides what torch/version.py says.

    Raises DropInError when it is no torch/lib, no ROCm build, or links AOTriton statically or not at all.
    """
    if not folder.is_dir():
        raise DropInError(
            f"{folder} is not a folder",
            hint="name PyTorch's library folder: "
            "python -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parent / \"lib\")'",
        )
    if not (folder / _HIP).is_file():
        there = (folder / "libtorch_cpu.so").is_file() or (folder / "libtorch.so").is_file()
        raise DropInError(
            f"{folder} has no {_HIP}",
            cause="this PyTorch is not built for ROCm" if there else "it is not PyTorch's torch/lib",
            hint="install a ROCm build of PyTorch first, then drop the release into its torch/lib",
        )
    needed = sorted(
        {name for path in sorted(folder.glob("*.so")) for name in _needed(path) if _NAME.match(name)}
    )
    if not needed:
        raise DropInError(
            f"no library in {folder} needs libaotriton_v2.so",
            cause="this PyTorch was built without AOTriton, or before 2.5, when it was linked statically",
            hint="`invoke compat.which` says what this version of PyTorch can use",
        )
    return TorchLib(folder=folder, version=version or _version(folder), needed=tuple(needed))


def _needed(path: Path) -> list[str]:
    if path.is_symlink() or not path.is_file():
        return []
    try:
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".dynamic")
            if not isinstance(section, DynamicSection):
                return []
            return [tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
    except ELFError:
        return []  # a linker script, for instance
    except OSError as error:
        raise DropInError(f"{path} cannot be read: {error.strerror}") from error


def _version(folder: Path) -> str:
    try:
        found = _VERSION.search((folder.parent / "version.py").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""
    return found.group(1) if found else ""
