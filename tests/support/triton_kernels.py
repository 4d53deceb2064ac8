"""Triton kernels from source text: compiled directly, without a family, and executed on the virtual GPU."""

from __future__ import annotations

import importlib.util
import linecache
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy.typing as npt

from vgpu.emulator.decoded import Checks
from vgpu.emulator.program import Emulator, LaunchReport, LaunchRequest, Program
from vgpu.emulator.targets import emulated_target
from vgpu.memory import Memory

_HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """Triton's outputs for one kernel. `lds`: dynamic LDS of a workgroup in bytes."""

    binary: bytes
    asm: str
    lds: int

    def load(self, arch: str) -> Program:
        return Emulator(arch).load(self.binary, self.asm)


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
def _module(text: str) -> ModuleType:
    """Triton reads a function's source from its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel_source.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("kernel_source", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        linecache.getlines(str(path))
    return module


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
    arrays = {f"argument {i}": one for i, one in enumerate(arguments) if not isinstance(one, int | float)}
    values = [one if isinstance(one, int | float) else int(one.ctypes.data) for one in arguments]
    return program.launch(
        LaunchRequest(
            grid=grid, arguments=values, memory=Memory(arrays), lds_bytes=lds, checks=checks, **options
        )
    )
