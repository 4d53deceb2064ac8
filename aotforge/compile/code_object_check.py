"""Check of a code object against its job: kernarg layout, workgroup size, no scratch buffers."""

import itertools
from collections.abc import Mapping
from typing import Any

from aotforge.compile.cache_entry import CodeObjectStats
from aotforge.compile.model import KernelArgument, kernarg_layout
from aotforge.formats.code_object import CodeObjectError
from aotforge.plan.model import CompileJob

SCRATCH_POINTERS = 2
"""Triton's global and profile scratch buffers: pointers after the parameters, null here."""

HOST_CALLS = "hidden_hostcall_buffer"
"""Argument of kernels that print or assert."""
HIDDEN_ARGUMENTS = frozenset(
    (
        *(f"hidden_{what}_{axis}" for what in ("block_count", "group_size", "remainder") for axis in "xyz"),
        *(f"hidden_global_offset_{axis}" for axis in "xyz"),
        *("hidden_grid_dims", "hidden_dynamic_lds_size", HOST_CALLS),
    )
)
"""Hidden arguments after the explicit ones, which HIP sets: launch geometry, and the buffer of host calls. Others (heap, queues)
are refused."""


def expected_arguments(job: CompileJob) -> tuple[KernelArgument, ...]:
    """Kernarg segment of a job: run-time parameters in order, then the scratch pointers."""
    kinds = [kind for _, kind in job.signature if kind != "constexpr"]
    types = ["ptr" if kind.startswith("*") else {"fp32": "f32"}.get(kind, kind) for kind in kinds]
    return kernarg_layout([*types, *["ptr"] * SCRATCH_POINTERS])


def read_arguments(kernel: Mapping[str, Any]) -> tuple[KernelArgument, ...]:
    """Explicit arguments of the code object's metadata; the driver fills the hidden ones."""
    return tuple(argument for argument in _all_arguments(kernel) if not argument.kind.startswith("hidden_"))


def _all_arguments(kernel: Mapping[str, Any]) -> tuple[KernelArgument, ...]:
    return tuple(
        KernelArgument(offset=argument[".offset"], size=argument[".size"], kind=argument[".value_kind"])
        for argument in kernel.get(".args", ())
    )


def read_stats(kernel: Mapping[str, Any], triton: Mapping[str, Any]) -> CodeObjectStats:
    """Resource use from the code object's metadata and Triton's."""
    return CodeObjectStats(
        vgpr=kernel[".vgpr_count"],
        agpr=kernel.get(".agpr_count", 0),
        sgpr=kernel[".sgpr_count"],
        vgpr_spills=kernel[".vgpr_spill_count"],
        sgpr_spills=kernel[".sgpr_spill_count"],
        scratch_bytes=kernel[".private_segment_fixed_size"],
        static_lds_bytes=kernel[".group_segment_fixed_size"],
        dynamic_lds_bytes=triton["shared"],
        wavefront=kernel[".wavefront_size"],
        num_warps=triton["num_warps"],
    )


def check_code_object(job: CompileJob, kernel: Mapping[str, Any], triton: Mapping[str, Any]) -> None:
    """Raises CodeObjectError when the code object does not fit its job."""
    found, wanted = _all_arguments(kernel), expected_arguments(job)
    for number, (have, want) in enumerate(itertools.zip_longest(found, wanted)):
        if have != want and (want is not None or have is None or have.kind not in HIDDEN_ARGUMENTS):
            raise CodeObjectError(f"kernarg {number} is {_text(have)}, the plan's is {_text(want)}")
    for name in ("global_scratch_size", "profile_scratch_size"):
        if triton.get(name):
            raise CodeObjectError(f"needs {name} {triton[name]}, which the runtime does not allocate")
    wavefront = job.target.wavefront
    if kernel[".wavefront_size"] != wavefront:
        raise CodeObjectError(f"wavefront of {kernel['.wavefront_size']}, the arch's is {wavefront}")
    threads = triton["num_warps"] * wavefront
    if kernel[".max_flat_workgroup_size"] != threads:
        raise CodeObjectError(
            f"workgroup of {kernel['.max_flat_workgroup_size']} threads, {threads} are launched"
        )
    if kernel.get(".uses_dynamic_stack"):
        raise CodeObjectError("uses a dynamic stack")


def check_no_paths(hsaco: bytes, paths: tuple[str, ...]) -> None:
    """Images must not contain paths of this machine. Raises CodeObjectError naming the path."""
    for path in paths:
        if len(path) > 3 and path.encode() in hsaco:
            raise CodeObjectError(f"contains the host path {path}")


def _text(argument: KernelArgument | None) -> str:
    return f"{argument.size} bytes at {argument.offset} ({argument.kind})" if argument else "missing"
