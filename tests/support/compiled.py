"""Kernels given as text, compiled in this process as a kernel writer would: with line numbers, for any
arch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER = "import triton\nimport triton.language as tl\n\n\n"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    binary: bytes
    asm: str
    lds: int

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Code object and text as files."""
        image, text = folder / "kernel.hsaco", folder / "kernel.s"
        image.write_bytes(self.binary)
        text.write_text(self.asm)
        return image, text


def compile_text(
    folder: Path,
    text: str,
    signature: Mapping[str, str],
    *,
    constants: Mapping[str, int] | None = None,
    arch: str = "gfx908",
    warps: int = 4,
    name: str = "source",
) -> Compiled:
    """`text` has one function `kernel`; it becomes `folder`/`name`.py, its first line being line 5 of that
    file."""
    from triton.backends.compiler import GPUTarget

    from aotforge.compile.triton_compiler import lower

    file = folder / f"{name}.py"
    file.write_text(HEADER + text.lstrip("\n"))
    spec = importlib.util.spec_from_file_location(f"compiled_{name}_{abs(hash(str(file)))}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    target = GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
    types = {**signature, **dict.fromkeys(constants or {}, "constexpr")}
    hints: dict[Any, Any] = {
        (i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind.startswith("*")
    }
    hsaco, asm, metadata = lower(
        module.kernel, target, types, dict(constants or {}), hints, {"num_warps": warps}
    )
    return Compiled(binary=hsaco, asm=asm, lds=int(metadata["shared"]))
