"""A compile job and its key: the hash of everything that can change an image's bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from aotforge.plan.checks import Place
from aotforge.plan.model import CompileJob
from aotforge.plan.signature import FunctionSignature
from aotforge.rules import Family, Kernel, Operator, Scalar, Setting, Target, ValueType
from aotforge.toolchain.triton import Toolchain

RECIPE = 1
"""Enters every job key: raised when this project changes how it drives the compiler, so that old images are not reused."""


@dataclass(frozen=True, kw_only=True)
class KernelContext:
    """What expanding one kernel needs: rules, operator (its values' types too), function and its source digest, compiler."""

    family: Family
    kernel: Kernel
    operator: Operator
    types: dict[str, ValueType]
    source: str
    function: FunctionSignature
    source_digest: str
    toolchain: Toolchain
    toolchain_digest: str
    place: Place


def toolchain_digest(toolchain: Toolchain) -> str:
    """SHA-256 of everything about the compiler that enters job keys."""
    return hashlib.sha256(canonical_json(asdict(toolchain)).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: one text per value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def make_job(
    context: KernelContext,
    *,
    target: Target,
    label: str,
    signature: Mapping[str, str],
    constants: Mapping[str, Scalar],
    hints: Mapping[str, int],
    setting: Setting,
) -> CompileJob:
    """The job with its key. `signature` and `constants` are in the order of the function's parameters."""
    options = (
        ("kpack", setting.kpack),
        ("matrix_instr_nonkdim", setting.matrix_instr_nonkdim),
        ("num_stages", setting.num_stages),
        ("num_warps", setting.num_warps),
        ("waves_per_eu", setting.waves_per_eu),
    )
    identity = {
        "recipe": RECIPE,
        "family": context.family.name,
        "kernel": context.kernel.name,
        "source": context.source,
        "function": context.kernel.function,
        "source_digest": context.source_digest,
        "target": [target.arch, target.wavefront, target.matrix, target.lds_bytes],
        "signature": list(signature.items()),
        "constants": list(constants.items()),
        "hints": list(hints.items()),
        "options": options,
        "toolchain": context.toolchain_digest,
    }
    return CompileJob(
        key=hashlib.sha256(canonical_json(identity).encode()).hexdigest(),
        family=context.family.name,
        kernel=context.kernel.name,
        label=label,
        source=context.source,
        function=context.kernel.function,
        source_digest=context.source_digest,
        target=target,
        signature=tuple(signature.items()),
        constants=tuple(constants.items()),
        hints=tuple(hints.items()),
        options=options,
        toolchain=context.toolchain,
        spills=context.kernel.limits.spills,
    )
