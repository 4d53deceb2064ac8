"""Values of the drop-in: what an installed PyTorch asks for, and what a drop-in changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

IMAGES = "aotriton.images"
PLAIN_NAME = "libaotriton_v2.so"
"""The name that linkers look for; the loader looks for names with a version."""


@dataclass(frozen=True, kw_only=True)
class TorchLib:
    """An installed PyTorch's `torch/lib`. `version` is PyTorch's own without a local part, "" when nothing tells; `needed` holds the
    AOTriton names that its libraries ask the loader for."""

    folder: Path
    version: str
    needed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Source:
    """An unpacked release to put in: `prefix`/lib has the library under `soname`, links for `names`, and image packs."""

    release: str
    prefix: Path
    soname: str
    names: tuple[str, ...]
    packs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a drop-in or its undoing changed, or would change: one line per name, none when all was so already."""

    folder: Path
    release: str
    changes: tuple[str, ...]
    dry_run: bool
