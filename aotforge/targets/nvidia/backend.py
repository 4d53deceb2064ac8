"""NVIDIA as a vendor of images: cubins, each for one compute capability.

Cubins are ELF files with `.nv.info` sections of attributes, in a format that is not published. Attributes and
layouts are those that NVIDIA's `cuobjdump -elf` names for cubins of CUDA 12.9 and 13.4: a byte for the form
of the value, a byte for the attribute, two bytes of value or of the value's size.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    KernelArgument,
    allocated,
    check_arguments,
    check_no_scratch,
)
from aotforge.toolchain.backend_options import BackendOptions
from vgpu.code_object import CodeObjectError, ElfFile, read_elf

if TYPE_CHECKING:
    from aotforge.base.architectures import Architecture, NvidiaArchitecture

_HOST_CALLS = frozenset({"vprintf", "__assertfail"})
"""Functions of the driver that kernels call to print and to assert."""

_MACHINE = 190
"""EM_CUDA."""
_OLD_ABI = 0x33
"""EI_OSABI up to CUDA 12: the capability is the lowest byte of e_flags. Later it is the second lowest."""
_SIZED = 4
_REGISTERS, _FRAME_SIZE = 0x2F, 0x11
_PARAMETER, _THREADS = 0x17, 0x10
_GLOBAL_MEMORY = 4
_TEXT = ".text."

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
        """Warps per scheduler, after NVIDIA's calculator; a warp's registers come in units."""
        arch = cast("NvidiaArchitecture", architecture)
        each = allocated(stats.registers * stats.warp_size, arch.register_granule)
        per_scheduler = arch.registers // arch.schedulers // each
        blocks = min(per_scheduler * arch.schedulers, arch.max_warps) // stats.num_warps
        shared = stats.static_shared_bytes + stats.dynamic_shared_bytes + arch.shared_reserved
        blocks = min(blocks, arch.shared_per_sm // allocated(shared, arch.shared_granule), arch.max_blocks)
        return 0 if blocks == 0 else max(1, blocks * stats.num_warps // arch.schedulers)


def _capability(arch: str) -> int:
    """90 of sm_90."""
    return int(arch.removeprefix("sm_"))


@dataclass(frozen=True, kw_only=True)
class Cubin(CodeObject):
    """A cubin with one kernel. `capability` is 90 for sm_90. Registers and `frame_bytes` (local memory) are
    per thread.

    `names` are those of all symbols, functions of the driver such as vprintf included.
    """

    capability: int
    registers: int
    frame_bytes: int
    static_shared_bytes: int
    names: frozenset[str]


def is_cubin(data: bytes) -> bool:
    """Whether the bytes begin as a cubin does."""
    return data[:6] == b"\x7fELF\x02\x01" and data[18:20] == struct.pack("<H", _MACHINE)


def read_cubin(data: bytes) -> Cubin:
    """Parse a cubin. Raises CodeObjectError for anything else, and for several kernels."""
    if not is_cubin(data) or len(data) < 64:
        raise CodeObjectError("not a cubin: no 64-bit little-endian ELF file for CUDA")
    elf = read_elf(data)
    kernels = [section.name for section in elf.sections if section.name.startswith(_TEXT)]
    if len(kernels) != 1:
        raise CodeObjectError(f"{len(kernels)} kernels in the cubin")
    symbol = kernels[0].removeprefix(_TEXT)
    own, every = _attributes(elf, f".nv.info.{symbol}"), _attributes(elf, ".nv.info")
    strings = elf.section(".strtab").data
    try:
        return Cubin(
            symbol=symbol,
            capability=_image_capability(data),
            arguments=_arguments(own.get(_PARAMETER, [])),
            threads=math.prod(struct.unpack("<III", own[_THREADS][0])),
            registers=_largest(every, _REGISTERS),
            frame_bytes=_largest(every, _FRAME_SIZE),
            static_shared_bytes=sum(s.size for s in elf.sections if s.name == f".nv.shared.{symbol}"),
            names=frozenset(name.decode("latin-1") for name in strings.split(b"\0") if name),
        )
    except (struct.error, KeyError, IndexError) as error:
        raise CodeObjectError(f"truncated or damaged: {error}") from error


def _image_capability(data: bytes) -> int:
    (flags,) = struct.unpack_from("<I", data, 48)
    return int(flags & 0xFF if data[7] == _OLD_ABI else flags >> 8 & 0xFF)


def _attributes(elf: ElfFile, name: str) -> dict[int, list[bytes]]:
    """Values of sized attributes by number. Raises CodeObjectError."""
    found: dict[int, list[bytes]] = {}
    data, at = elf.section(name).data, 0
    while at + 4 <= len(data):
        form, number, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            if at + size > len(data):
                raise CodeObjectError("truncated or damaged: an attribute ends behind its section")
            found.setdefault(number, []).append(data[at : at + size])
            at += size
    return found


def _arguments(entries: list[bytes]) -> tuple[KernelArgument, ...]:
    """By u32 index, u16 number, u16 offset, u32: bits 8 to 11 what it points to, 18 to 31 its size."""
    fields = sorted(struct.unpack("<IHHI", entry)[1:] for entry in entries)
    if [number for number, _, _ in fields] != list(range(len(fields))):
        raise CodeObjectError(f"parameters {[number for number, _, _ in fields]}")
    return tuple(
        KernelArgument(
            offset=offset,
            size=word >> 18,
            kind="global_buffer" if word >> 8 & 15 == _GLOBAL_MEMORY else "by_value",
        )
        for _, offset, word in fields
    )


def _largest(every: dict[int, list[bytes]], number: int) -> int:
    """The largest value of an attribute that functions have: u32 symbol, u32 value."""
    return int(max((struct.unpack("<II", entry)[1] for entry in every.get(number, [])), default=0))


NVIDIA = NvidiaBackend()
