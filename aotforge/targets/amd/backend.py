"""AMD as a vendor of images: HSACO code objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from aotforge.rules import Target, ValueType
from aotforge.targets.amd.barriers import wait_at_barriers
from aotforge.targets.amd.code_object import HOST_CALLS, check_code_object, read_arguments, read_stats
from aotforge.targets.amd.dual_issue import split_pairs
from aotforge.targets.amd.occupancy import occupancy
from aotforge.targets.backend import NOT_CODE, Backend, CodeObject, CodeObjectStats
from aotforge.toolchain.backend_options import BackendOptions
from vgpu.code_object import kernel_metadata

if TYPE_CHECKING:
    from aotforge.base.architectures import AmdArchitecture, Architecture

OPTIONS = BackendOptions(
    maker="AMD",
    source="backends/amd/compiler.py",
    options_class="HIPOptions",
    fields=("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack"),
    not_code={**NOT_CODE, "num_ctas": "no arch here launches clusters"},
)


class AmdBackend(Backend):
    """`Backend` of AMD's archs."""

    vendor = "amd"
    executed_by = "virtual GPU"
    triton_name = "hip"
    archs = re.compile(r"gfx[0-9a-f]{3,5}")
    text_stage = "amdgcn"
    options = OPTIONS
    framework = "rocm"

    def aliased(self, aliases: tuple[tuple[str, str], ...]) -> AbstractContextManager[None]:
        """Conversion passes to LLVM's IR have aliases."""
        from aotforge.targets.amd.conversion_aliases import (  # noqa: PLC0415 - loads Triton, which only workers do
            conversion_aliases,
        )

        return conversion_aliases(aliases)

    def without_hazards(self, assembly: str, hazards: Collection[str]) -> str:
        """Hazards are those of dual-issue pairs and of barriers."""
        return wait_at_barriers(split_pairs(assembly, hazards), hazards)

    def read(self, binary: bytes) -> CodeObject:
        """What the code object's metadata states."""
        kernel = kernel_metadata(binary)
        return CodeObject(
            symbol=str(kernel[".name"]),
            arguments=read_arguments(kernel),
            threads=int(kernel[".max_flat_workgroup_size"]),
        )

    def check(
        self, binary: bytes, target: Target, types: tuple[ValueType, ...], metadata: Mapping[str, Any]
    ) -> None:
        """Kernarg layout, workgroup size, wavefront, no scratch buffers."""
        check_code_object(target, types, kernel_metadata(binary), metadata)

    def stats(self, binary: bytes, metadata: Mapping[str, Any]) -> CodeObjectStats:
        """From the code object's metadata and Triton's."""
        return read_stats(kernel_metadata(binary), metadata)

    def makes_host_calls(self, binary: bytes) -> bool:
        """Kernels that print or assert take the buffer of host calls."""
        return HOST_CALLS.encode() in binary

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
        """Waves per SIMD."""
        return occupancy(stats, cast("AmdArchitecture", architecture))


AMD = AmdBackend()
