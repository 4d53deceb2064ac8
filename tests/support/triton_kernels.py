"""Triton kernels from source text: compiled directly, without a family, and executed on the virtual GPU."""

from __future__ import annotations

import linecache
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tests.support.modules import load_module
from vgpu.emulator.decoded import Checks
from vgpu.emulator.program import Emulator, LaunchReport, LaunchRequest, Program
from vgpu.emulator.targets import emulated_target
from vgpu.memory import Memory

_LINES = "import triton\nimport triton.language as tl\n\n\n"
_HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """Triton's outputs for one kernel. `lds`: dynamic LDS of a workgroup in bytes."""

    binary: bytes
    asm: str
    lds: int

    def load(self, arch: str) -> Program:
        return Emulator(arch).load(self.binary, self.asm)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Code object and text as files."""
        image, text = folder / "kernel.hsaco", folder / "kernel.s"
        image.write_bytes(self.binary)
        text.write_text(self.asm)
        return image, text


def compile_kernel(
    source: str,
    arch: str,
    types: Mapping[str, str],
    *,
    constants: Mapping[str, Any] | None = None,
    name: str = "kernel",
    divisible_by: Mapping[str, int] | None = None,
    **options: Any,
) -> CompiledKernel:
    """Compile `name` of a source that begins with `@triton.jit`. `types` of the arguments, such as `*fp16`;
    `divisible_by`: hints."""
    frozen = (
        tuple(sorted(types.items())),
        tuple(sorted((constants or {}).items())),
        tuple(sorted(options.items())),
        tuple(sorted((divisible_by or {}).items())),
    )
    return _compiled(source, arch, name, *frozen)


@cache
def _compiled(
    source: str, arch: str, name: str, types: Any, constants: Any, options: Any, hints: Any
) -> CompiledKernel:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as triton_compile

    function = getattr(_module(_HEAD + source), name)
    given = dict(types)
    signature = {argument: given.get(argument, "constexpr") for argument in function.arg_names}
    places = {name: (number,) for number, name in enumerate(signature)}
    attributes = {places[argument]: [["tt.divisibility", number]] for argument, number in hints}
    made = triton_compile(
        ASTSource(fn=function, signature=signature, constexprs=dict(constants), attrs=attributes or None),
        target=GPUTarget("hip", arch, emulated_target(arch).lanes),
        options=dict(options),
    )
    return CompiledKernel(binary=made.asm["hsaco"], asm=made.asm["amdgcn"], lds=made.metadata.shared)


@cache
def _module(text: str) -> Any:
    """Triton reads a function's source from its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel_source.py"
        module = load_module(path, text)
        linecache.getlines(str(path))
    return module


def compile_text(
    folder: Path,
    text: str,
    signature: Mapping[str, str],
    *,
    constants: Mapping[str, int],
    arch: str = "gfx908",
    cures: tuple[str, ...] = (),
    **options: Any,
) -> CompiledKernel:
    """`text` has one function `kernel`; it becomes `folder`/source.py, its first line being line 5 of that
    file. `cures`: as a job has them."""
    from triton.backends.compiler import GPUTarget

    from aotforge.base.architectures import load_architectures
    from aotforge.compile.triton_compiler import lower
    from aotforge.targets.amd.backend import AMD

    module = load_module(folder / "source.py", _LINES + text.lstrip("\n"))
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    hints: dict[Any, Any] = {
        (i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind.startswith("*")
    }
    target = GPUTarget("hip", arch, emulated_target(arch).lanes)
    given = {"num_warps": 4, **options}
    with AMD.aliased(load_architectures().aliases(arch)):
        hsaco, asm, metadata = lower(module.kernel, target, types, dict(constants), hints, given, cures)
    return CompiledKernel(binary=hsaco, asm=asm, lds=int(metadata["shared"]))


def launch(
    program: Program,
    arguments: Sequence[npt.NDArray[Any] | int | float],
    *,
    grid: tuple[int, int, int] = (1, 1, 1),
    lds: int = 0,
    checks: bool | Checks = True,
    **options: Any,
) -> LaunchReport:
    """Execute a kernel on arrays, which may be written, and numbers. Raises ExecutionError."""
    arrays = {f"argument {i}": a for i, a in enumerate(arguments) if not isinstance(a, int | float)}
    values = [a if isinstance(a, int | float) else int(a.ctypes.data) for a in arguments]
    return program.launch(
        LaunchRequest(
            grid=grid, arguments=values, memory=Memory(arrays), lds_bytes=lds, checks=checks, **options
        )
    )
