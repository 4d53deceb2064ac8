"""Features of the Triton language (tests/integration/vgpu/coverage) on the CPU: compiled by the back end's
stages, run in this process."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.integration.vgpu.coverage.execute import (
    NOT_COMPILED,
    PASSED,
    REFUSED,
    WRONG,
    Outcome,
    buffers_of,
    compiler_reason,
    difference,
    kernel_of,
)
from tests.integration.vgpu.coverage.feature import Feature
from tests.integration.vgpu.coverage.formats import Array
from tests.support.cpu_launch import Loaded, load
from tests.support.cpu_launch import run as launch
from ttcpu.compiler import CPUBackend
from ttcpu.errors import TtcpuError
from ttcpu.launch import SCALARS
from ttcpu.levels import host_level


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What the stages made of a kernel."""

    name: str
    code: bytes
    scratch: int
    messages: Sequence[str]


def compile_kernel(
    function: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    level: str,
    hints: int = 0,
    **chosen: Any,
) -> Compiled:
    """One specialisation; the first `hints` arguments are aligned to 16 bytes."""
    target = GPUTarget("cpu", level, 1)
    backend = CPUBackend(target)
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(hints)}
    source = ASTSource(function, dict(signature), dict(constants), aligned)
    options = backend.parse_options(chosen)
    context = ir.context()
    ir.load_dialects(context)
    generators = backend.get_codegen_implementation(options)
    module: Any = source.make_ir(target, options, generators, backend.get_module_map(), context)
    metadata: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    for stage in stages.values():
        module = stage(module, metadata)
    return Compiled(
        name=metadata["name"], code=module, scratch=metadata["shared"], messages=metadata["messages"]
    )


def loaded(
    function: Any, signature: Mapping[str, str], constants: Mapping[str, Any], level: str = ""
) -> Loaded:
    """A specialisation for this processor or a level of it, to be run."""
    made = compile_kernel(function, signature, constants, level or host_level())
    return load(made.name, made.code, made.scratch, made.messages)


def executed(feature: Feature, made: Compiled) -> dict[str, Array]:
    """The tensors after a launch. Raises RuntimeError when a `device_assert` fails."""
    buffers = buffers_of(feature)
    codes = ["Q"] * len(buffers) + [SCALARS[kind] for kind, _ in feature.values.values()]
    numbers = [*(b.ctypes.data for b in buffers.values()), *(value for _, value in feature.values.values())]
    launch(
        load(made.name, made.code, made.scratch, made.messages),
        feature.grid,
        struct.pack("<" + "".join(codes), *numbers),
    )
    return buffers


def compiled(feature: Feature, level: str, folder: Path) -> Compiled:
    """A feature's kernel. Raises what compilers raise."""
    kernel = kernel_of(feature, folder)
    return compile_kernel(
        kernel, feature.signature, feature.constants, level, len(feature.tensors), **feature.options
    )


def run(feature: Feature, level: str, folder: Path) -> Outcome:
    """Compile, run and compare with numpy."""
    try:
        made = compiled(feature, level, folder)
    except Exception as error:  # noqa: BLE001 - compilers may raise anything
        reason = error.what if isinstance(error, TtcpuError) else compiler_reason(error)
        return Outcome(feature=feature.name, arch=level, verdict=NOT_COMPILED, reason=reason)
    try:
        buffers = executed(feature, made)
    except RuntimeError as error:
        verdict = PASSED if feature.expects else REFUSED
        return Outcome(feature=feature.name, arch=level, verdict=verdict, reason=str(error))
    reason = f"no fault {feature.expects!r}" if feature.expects else difference(feature, buffers)
    return Outcome(feature=feature.name, arch=level, verdict=WRONG if reason else PASSED, reason=reason)
