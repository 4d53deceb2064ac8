"""Kernels compiled ahead of time for the CPU, without Triton's driver: one specialisation to a shared library, and into this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .compiler import CPUBackend
from .driver import load_library
from .launch import Loaded


@dataclass(frozen=True, kw_only=True)
class CPUImage:
    """A compiled kernel: `code` is an ELF shared library, `scratch` the bytes of memory that a thread brings, `messages` those of its assertions."""

    name: str
    level: str
    code: bytes
    assembly: str
    scratch: int
    messages: tuple[str, ...]

    def load(self) -> Loaded:
        """The kernel in this process."""
        library, function = load_library(self.name, self.code)
        return Loaded(library=library, function=function, scratch=self.scratch, messages=self.messages)


def compile_kernel(
    function: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    hints: Mapping[tuple[int], Sequence[Any]],
    options: Mapping[str, Any],
    level: str,
) -> CPUImage:
    """One specialisation of a Triton function. Raises UnsupportedError for what the back end does not have, and Triton's own errors."""
    target = GPUTarget("cpu", level, 1)
    backend = CPUBackend(target)
    source = ASTSource(function, dict(signature), dict(constants), dict(hints))
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    generators = backend.get_codegen_implementation(parsed)
    module: Any = source.make_ir(target, parsed, generators, backend.get_module_map(), context)
    metadata: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    assembly = ""
    for name, stage in stages.items():
        module = stage(module, metadata)
        assembly = module if name == "asm" else assembly
    return CPUImage(
        name=metadata["name"], level=level, code=module, assembly=assembly,
        scratch=metadata["shared"], messages=tuple(metadata["messages"]),
    )  # fmt: skip
