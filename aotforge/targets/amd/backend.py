"""AMD as a vendor of images: HSACO code objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from aotforge.errors import ToolchainError
from aotforge.rules import Target, ValueType
from aotforge.targets.amd.barriers import wait_at_barriers
from aotforge.targets.amd.dual_issue import split_pairs
from aotforge.targets.backend import (
    NOT_CODE,
    Backend,
    CodeObject,
    CodeObjectStats,
    KernelArgument,
    allocated,
    check_arguments,
    check_no_scratch,
)
from aotforge.toolchain.backend_options import BackendOptions
from vgpu.code_object import CodeObjectError, kernel_metadata

if TYPE_CHECKING:
    from aotforge.base.architectures import AmdArchitecture, Architecture

OPTIONS = BackendOptions(
    maker="AMD",
    source="backends/amd/compiler.py",
    options_class="HIPOptions",
    fields=("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
    not_code={**NOT_CODE, "num_ctas": "no arch here launches clusters"},
)

_ARCH = 1
"""Position of the arch among the arguments of Triton's passes, behind the pass manager."""

_HOST_CALLS = "hidden_hostcall_buffer"
"""Argument of kernels that print or assert."""
_HIDDEN_ARGUMENTS = frozenset(
    (
        *(f"hidden_{what}_{axis}" for what in ("block_count", "group_size", "remainder") for axis in "xyz"),
        *(f"hidden_global_offset_{axis}" for axis in "xyz"),
        *("hidden_grid_dims", "hidden_dynamic_lds_size", _HOST_CALLS),
    )
)
"""Hidden arguments after the explicit ones, which HIP sets: launch geometry, and the buffer of host calls.
Others (heap, queues) are refused."""


class AmdBackend(Backend):
    """`Backend` of AMD's archs."""

    vendor = "amd"
    executed_by = "virtual GPU"
    triton_name = "hip"
    archs = re.compile(r"gfx[0-9a-f]{3,5}")
    text_stage = "amdgcn"
    options = OPTIONS
    framework = "rocm"

    @contextmanager
    def aliased(self, aliases: tuple[tuple[str, str], ...]) -> Iterator[None]:
        """Conversion passes to LLVM's IR (`to_llvmir`) get their alias (`gfx1100`)."""
        from triton._C.libtriton import amd  # noqa: PLC0415 - Triton, which only workers load

        passes, before = amd.passes.ttgpuir, dict[str, Callable[..., Any]]()
        for name, _ in aliases:
            if not hasattr(passes, f"add_{name}"):
                raise ToolchainError(
                    f"the installed Triton has no pass {name}",
                    cause="`compile_aliases` of manifests/architectures.yaml fit another version of Triton",
                    hint="compare its `passes` with make_llir of triton/backends/amd/compiler.py",
                )
            before[f"add_{name}"] = getattr(passes, f"add_{name}")
        try:
            for name, arch in aliases:
                setattr(passes, f"add_{name}", _given(before[f"add_{name}"], arch))
            yield
        finally:
            for name, function in before.items():
                setattr(passes, name, function)

    def without_hazards(self, assembly: str, hazards: Collection[str]) -> str:
        """Hazards are those of dual-issue pairs and of barriers."""
        return wait_at_barriers(split_pairs(assembly, hazards), hazards)

    def read(self, binary: bytes) -> CodeObject:
        """What the code object's metadata states."""
        kernel = kernel_metadata(binary)
        return CodeObject(
            symbol=str(kernel[".name"]),
            arguments=tuple(one for one in _arguments(kernel) if not one.kind.startswith("hidden_")),
            threads=int(kernel[".max_flat_workgroup_size"]),
        )

    def check(
        self, binary: bytes, target: Target, types: tuple[ValueType, ...], metadata: Mapping[str, Any]
    ) -> None:
        """Kernarg layout, workgroup size, wavefront, no scratch buffers."""
        check_code_object(target, types, kernel_metadata(binary), metadata)

    def stats(self, binary: bytes, metadata: Mapping[str, Any]) -> CodeObjectStats:
        """From the code object's metadata and Triton's."""
        kernel = kernel_metadata(binary)
        return CodeObjectStats(
            registers=kernel[".vgpr_count"],
            accumulation_registers=kernel.get(".agpr_count", 0),
            scalar_registers=kernel[".sgpr_count"],
            spilled_registers=kernel[".vgpr_spill_count"],
            spilled_scalar_registers=kernel[".sgpr_spill_count"],
            scratch_bytes=kernel[".private_segment_fixed_size"],
            static_shared_bytes=kernel[".group_segment_fixed_size"],
            dynamic_shared_bytes=metadata["shared"],
            warp_size=kernel[".wavefront_size"],
            num_warps=metadata["num_warps"],
        )

    def makes_host_calls(self, binary: bytes) -> bool:
        """Kernels that print or assert take the buffer of host calls."""
        return _HOST_CALLS.encode() in binary

    def search_options(self, target: Target) -> Mapping[str, tuple[int, ...]]:
        """Least waves per SIMD, the size of matrix instructions, and how many of their operands are read from
        LDS at once."""
        options: dict[str, tuple[int, ...]] = {"waves_per_eu": (0, 2, 3)}
        if target.matrix == "MFMA":
            options["matrix_instr_nonkdim"] = (0, 16, 32)
            if target.arch != "gfx950":  # Triton makes it 1 there
                options["kpack"] = (1, 2)
        return options

    def framework_builds(self, versions: Sequence[str]) -> tuple[str, ...]:
        """One for each version of ROCm."""
        return tuple(f"rocm{version.replace('.', '')}" for version in versions)

    def framework_arch(self, arch: str) -> str:
        """The same."""
        return arch

    def occupancy(self, stats: CodeObjectStats, architecture: Architecture) -> int:
        """Waves per SIMD: complete workgroups that fit a compute unit, spread over its SIMDs."""
        own = cast("AmdArchitecture", architecture)
        groups = resident_workgroups(stats, own)
        return max(1, groups * stats.num_warps // own.simds_per_cu) if groups else 0


def _given(function: Callable[..., Any], arch: str) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments[:_ARCH], arch, *arguments[_ARCH + 1 :])


def _arguments(kernel: Mapping[str, Any]) -> tuple[KernelArgument, ...]:
    """All of the metadata; the driver fills the hidden ones."""
    return tuple(
        KernelArgument(offset=argument[".offset"], size=argument[".size"], kind=argument[".value_kind"])
        for argument in kernel.get(".args", ())
    )


def check_code_object(
    target: Target, types: Sequence[str], kernel: Mapping[str, Any], triton: Mapping[str, Any]
) -> None:
    """Raises CodeObjectError when the code object does not fit its target, its parameters' types or Triton's
    metadata."""
    check_arguments(_arguments(kernel), types, "kernarg", _HIDDEN_ARGUMENTS)
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


def register_waves(stats: CodeObjectStats, architecture: AmdArchitecture) -> int:
    """Waves per SIMD that the register files and wave slots allow.

    Files and granules: LLVM's AMDGPU target (`AMDGPUBaseInfo`, occupancy from register counts). With `split`
    accumulators AGPRs have a file of their own as large as the VGPRs'; with `unified` ones `.vgpr_count`
    already holds both.
    """
    vectors = (
        max(stats.registers, stats.accumulation_registers)
        if architecture.accumulators == "split"
        else stats.registers
    )
    waves = [
        architecture.max_waves_per_simd,
        architecture.vgprs // allocated(vectors, architecture.vgpr_granule),
    ]
    if architecture.sgprs:
        scalars = allocated(stats.scalar_registers + architecture.sgprs_reserved, architecture.sgpr_granule)
        waves.append(architecture.sgprs // scalars)
    return min(waves)


def resident_workgroups(stats: CodeObjectStats, architecture: AmdArchitecture) -> int:
    """Workgroups that a compute unit has at once when only this kernel runs; 0 where one does not fit."""
    slots = register_waves(stats, architecture) * architecture.simds_per_cu
    groups = slots // stats.num_warps
    lds = stats.static_shared_bytes + stats.dynamic_shared_bytes
    if lds:
        groups = min(groups, architecture.lds_per_cu // allocated(lds, architecture.lds_granule))
    if stats.num_warps > 1:
        groups = min(groups, architecture.max_workgroups_per_cu)
    return groups


AMD = AmdBackend()
