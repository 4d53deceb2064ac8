"""Compile jobs and their keys: hashes of everything that can change an image's bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace

from aotforge.plan.context import KernelContext
from aotforge.plan.model import CompileJob
from aotforge.rules import Scalar, Setting, Target
from aotforge.toolchain.triton import Toolchain

RECIPE = 1
"""Enters every job key: raised when this project changes how it drives the compiler, so that old images are not reused."""

_OPTIONS = ("kpack", "matrix_instr_nonkdim", "num_stages", "num_warps", "waves_per_eu")
_NO_LINE_INFO = "TRITON_DISABLE_LINE_INFO"


def toolchain_digest(toolchain: Toolchain) -> str:
    """SHA-256 of everything about the compiler that enters job keys."""
    return json_digest(asdict(toolchain))


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def json_digest(value: object) -> str:
    """SHA-256, hexadecimal, of the value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


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
    job = CompileJob(
        key="",
        family=context.family,
        kernel=context.kernel.name,
        label=label,
        source=context.source,
        function=context.kernel.function,
        source_digest=context.source_digest,
        target=target,
        signature=tuple(signature.items()),
        constants=tuple(constants.items()),
        hints=tuple(hints.items()),
        options=tuple((name, getattr(setting, name)) for name in _OPTIONS),
        toolchain=context.toolchain,
        spills=context.kernel.limits.spills,
    )
    identity = {name: value for name, value in vars(job).items() if name not in {"key", "label", "spills"}}
    identity |= {"recipe": RECIPE, "target": vars(target), "toolchain": context.toolchain_digest}
    return replace(job, key=json_digest(identity))


def with_line_info(job: CompileJob) -> CompileJob:
    """The same job, compiled with line info, under another key: its image shows source lines and is never shipped.

    The image contains the path of its sources, so it is compared with its own machine code only (`aotforge.verify.source_map`).
    """
    environment = dict(job.toolchain.environment) | {_NO_LINE_INFO: "0"}
    return replace(
        job,
        key=hashlib.sha256(f"{job.key} with line info".encode()).hexdigest(),
        toolchain=replace(job.toolchain, environment=tuple(environment.items())),
    )


def has_line_info(job: CompileJob) -> bool:
    """Whether the job was made by `with_line_info`."""
    return dict(job.toolchain.environment).get(_NO_LINE_INFO) == "0"
