"""The first stages of a compilation: Triton's own passes, LLVM IR."""

from __future__ import annotations

from typing import Any

from triton import knobs
from triton._C.libtriton import ir, passes

from .codegen import optimised
from .context import Machine
from .image import ImageDescription
from .levels import Level
from .lowering import lower_module
from .ttir import read_module


def make_ttir(module: Any) -> Any:
    """Triton's target-independent passes."""
    manager = ir.pass_manager(module.context)
    manager.enable_debug()
    passes.common.add_inliner(manager)
    passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_combine(manager)
    passes.ttir.add_reorder_broadcast(manager)
    passes.common.add_cse(manager)
    passes.ttir.add_triton_licm(manager)
    passes.common.add_symbol_dce(manager)
    passes.ttir.add_loop_unroll(manager)
    manager.run(module, "make_ttir")
    return module


def make_llir(module: Any, metadata: dict[str, Any], level: Level, *, contract: bool) -> str:
    """Optimised LLVM IR; what launching needs goes to the metadata."""
    machine = Machine(lanes=level.lanes, contract=contract, pairs_bf16=level.pairs_bf16)
    lines = not knobs.compilation.disable_line_info
    lowered = lower_module(read_module(module), machine, lines=lines)
    metadata["name"] = lowered.name
    metadata["shared"] = lowered.scratch
    metadata["messages"] = list(lowered.messages)
    if lowered.parameters is None:
        return optimised(lowered.name, lowered.text, level)
    described = ImageDescription(
        symbol=lowered.name,
        level=level.name,
        scratch=lowered.scratch,
        parameters=lowered.parameters,
        messages=lowered.messages,
    )
    return optimised(lowered.name, lowered.text, level, described.encode())
