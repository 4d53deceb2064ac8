"""Check of an HSACO against its target and parameters: kernargs, workgroup size, no scratch buffers."""

from collections.abc import Mapping, Sequence
from typing import Any

from aotforge.rules import Target
from aotforge.targets.backend import CodeObjectStats, KernelArgument, check_arguments, check_no_scratch
from vgpu.code_object import CodeObjectError

HOST_CALLS = "hidden_hostcall_buffer"
"""Argument of kernels that print or assert."""
HIDDEN_ARGUMENTS = frozenset(
    (
        *(f"hidden_{what}_{axis}" for what in ("block_count", "group_size", "remainder") for axis in "xyz"),
        *(f"hidden_global_offset_{axis}" for axis in "xyz"),
        *("hidden_grid_dims", "hidden_dynamic_lds_size", HOST_CALLS),
    )
)
"""Hidden arguments after the explicit ones, which HIP sets: launch geometry, and the buffer of host calls.
Others (heap, queues) are refused."""


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
        registers=kernel[".vgpr_count"],
        accumulation_registers=kernel.get(".agpr_count", 0),
        scalar_registers=kernel[".sgpr_count"],
        spilled_registers=kernel[".vgpr_spill_count"],
        spilled_scalar_registers=kernel[".sgpr_spill_count"],
        scratch_bytes=kernel[".private_segment_fixed_size"],
        static_shared_bytes=kernel[".group_segment_fixed_size"],
        dynamic_shared_bytes=triton["shared"],
        warp_size=kernel[".wavefront_size"],
        num_warps=triton["num_warps"],
    )


def check_code_object(
    target: Target, types: Sequence[str], kernel: Mapping[str, Any], triton: Mapping[str, Any]
) -> None:
    """Raises CodeObjectError when the code object does not fit its target, its parameters' types or Triton's
    metadata."""
    check_arguments(_all_arguments(kernel), types, "kernarg", HIDDEN_ARGUMENTS)
    check_no_scratch(triton)
    wavefront = target.warp_size
    if kernel[".wavefront_size"] != wavefront:
        raise CodeObjectError(f"wavefront of {kernel['.wavefront_size']}, the arch's is {wavefront}")
    threads = triton["num_warps"] * wavefront
    if kernel[".max_flat_workgroup_size"] != threads:
        raise CodeObjectError(
            f"workgroup of {kernel['.max_flat_workgroup_size']} threads, {threads} are launched"
        )
    if kernel.get(".uses_dynamic_stack"):
        raise CodeObjectError("uses a dynamic stack")
