"""NVIDIA as a vendor of images: cubins, each for one compute capability."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aotforge.errors import ToolchainError
from aotforge.rules import Target, ValueType
from aotforge.targets.backend import (
    NOT_CODE,
    Backend,
    CodeObject,
    CodeObjectStats,
    allocated,
    check_arguments,
    check_no_scratch,
)
from aotforge.targets.nvidia.cubin import is_cubin, read_cubin
from aotforge.toolchain.backend_options import BackendOptions
from vgpu.code_object import CodeObjectError

if TYPE_CHECKING:
    from aotforge.base.architectures import Architecture, NvidiaArchitecture

_HOST_CALLS = frozenset({"vprintf", "__assertfail"})
"""Functions of the driver that kernels call to print and to assert."""

OPTIONS = BackendOptions(
    maker="NVIDIA",
    source="backends/nvidia/compiler.py",
    options_class="CUDAOptions",
    fields=("num_warps", "num_stages"),
    not_code={
        **NOT_CODE,
        "warp_size": "the target has it",
        "ptx_version": "it follows from the pinned ptxas",
        "ptx_options": "flags of ptxas can name files",
        "ir_override": "it is a path of this machine",
        "min_shared_mem": "it is part of the instrumentation",
        "launch_pdl": "the library launches without programmatic dependencies",
        "clc": "the library launches no clusters",
        "num_ctas": "the library launches no clusters",
    },
)


class NvidiaBackend(Backend):
    """`Backend` of NVIDIA's archs."""

    vendor = "nvidia"
    executed_by = "device"
    triton_name = "cuda"
    archs = re.compile(r"sm_[0-9]{2,3}")
    text_stage = "ptx"
    options = OPTIONS
    framework = "cuda"
    truncates_sums = True  # measured on an H200: docs/nvidia.md

    def triton_target(self, target: Target) -> tuple[str, str | int, int]:
        """Arguments of Triton's GPUTarget."""
        return self.triton_name, _capability(target.arch), target.warp_size

    def check_toolchain(self, target: Target) -> None:
        """Raises ToolchainError when the wheel's ptxas is missing: root filesystems without NVIDIA leave it
        out."""
        found = find_spec("triton")
        assert found is not None and found.origin is not None
        name = "ptxas" if _capability(target.arch) < 90 else "ptxas-blackwell"
        file = Path(found.origin).parent / "backends" / "nvidia" / "bin" / name
        if not os.access(file, os.X_OK):
            raise ToolchainError(
                f"{file} is missing, which makes images for {target.arch}",
                cause="this root filesystem has Triton without its NVIDIA tools",
                hint="--executor local compiles with the complete wheel",
            )

    def read(self, binary: bytes) -> CodeObject:
        """What the cubin states."""
        return read_cubin(binary)

    def check(
        self, binary: bytes, target: Target, types: tuple[ValueType, ...], metadata: Mapping[str, Any]
    ) -> None:
        """Parameters, threads, capability; no scratch buffers, descriptors or clusters."""
        found = read_cubin(binary)
        check_arguments(found.arguments, types, "parameter")
        check_no_scratch(metadata)
        if metadata.get("tensordesc_meta"):
            raise CodeObjectError("takes tensor descriptors, which the runtime does not make")
        if metadata.get("num_ctas", 1) != 1:
            raise CodeObjectError(f"needs clusters of {metadata['num_ctas']}, the runtime launches none")
        if found.capability != _capability(target.arch):
            raise CodeObjectError(f"is for sm_{found.capability}, the target is {target.arch}")
        threads = metadata["num_warps"] * target.warp_size
        if found.threads != threads:
            raise CodeObjectError(f"block of {found.threads} threads, {threads} are launched")

    def stats(self, binary: bytes, metadata: Mapping[str, Any]) -> CodeObjectStats:
        """From the cubin and Triton's metadata. Spilled registers are in `scratch_bytes`; the cubin does not
        count them."""
        found = read_cubin(binary)
        return CodeObjectStats(
            registers=found.registers,
            scratch_bytes=found.frame_bytes,
            static_shared_bytes=found.static_shared_bytes,
            dynamic_shared_bytes=metadata["shared"],
            warp_size=32,
            num_warps=metadata["num_warps"],
        )

    def makes_host_calls(self, binary: bytes) -> bool:
        """Whether the cubin refers to the driver's functions for printing or assertions."""
        return is_cubin(binary) and not _HOST_CALLS.isdisjoint(read_cubin(binary).names)

    def search_options(self, target: Target) -> Mapping[str, tuple[int, ...]]:
        """Copies to shared memory run further ahead than on other vendors' archs."""
        return {"num_stages": (1, 2, 3, 4)}

    def framework_builds(self, versions: Sequence[str]) -> tuple[str, ...]:
        """Those of one major version of CUDA serve the later minor ones; the driver must be of CUDA 12 or
        newer."""
        return ("cu120", "cu130")

    def framework_arch(self, arch: str) -> str:
        """The compute capability."""
        return f"{arch[3:-1]}.{arch[-1]}"

    def occupancy(self, stats: CodeObjectStats, architecture: Architecture) -> int:
        """Warps per scheduler: registers, shared memory, and the limits of warps and blocks of a
        multiprocessor."""
        return _occupancy(stats, cast("NvidiaArchitecture", architecture))


def _capability(arch: str) -> int:
    """90 of sm_90."""
    return int(arch.removeprefix("sm_"))


def _occupancy(stats: CodeObjectStats, arch: NvidiaArchitecture) -> int:
    """After NVIDIA's occupancy calculator: a warp's registers come in units and stay with one scheduler."""
    each = allocated(stats.registers * stats.warp_size, arch.register_granule)
    per_scheduler = arch.registers // arch.schedulers // each
    blocks = min(per_scheduler * arch.schedulers, arch.max_warps) // stats.num_warps
    shared = stats.static_shared_bytes + stats.dynamic_shared_bytes + arch.shared_reserved
    blocks = min(blocks, arch.shared_per_sm // allocated(shared, arch.shared_granule), arch.max_blocks)
    return 0 if blocks == 0 else max(1, blocks * stats.num_warps // arch.schedulers)


NVIDIA = NvidiaBackend()
