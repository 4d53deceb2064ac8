"""Programs: decoded, verified and bound kernels that can be launched."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from vgpu.code_object import CodeObjectError, kernel_metadata
from vgpu.elf import read_elf
from vgpu.emulator import native
from vgpu.emulator.address_space import CODE_BASE, HOST_CALLS_BASE, KERNARG_BASE, AddressSpace
from vgpu.emulator.arguments import Geometry, KernelParameter, segment
from vgpu.emulator.assembly import verify_assembly
from vgpu.emulator.binding import Binder, bind_lines
from vgpu.emulator.decoded import Listing
from vgpu.emulator.descriptor import SCRATCH_TAG, Descriptor, read_descriptor
from vgpu.emulator.effects import effects_of
from vgpu.emulator.generate import Variant
from vgpu.emulator.interpreter_library import load_library
from vgpu.emulator.launch import Code, LaunchReport, LaunchRequest, execute
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.placement import place, resolve
from vgpu.emulator.targets import EmulatedTarget, emulated_target
from vgpu.errors import DecodeError, ExecutionError, UnsupportedError

_PRELOAD_ENTRY = 256
_THREADS = 1024
_SGPR_UNIT, _PLAIN_SGPRS, _VCC_SGPRS = 8, 102, 2


class Emulator:
    """Virtual GPUs of one arch. `cache`: folder for the interpreter. Raises UnknownNameError."""

    def __init__(self, arch: str, *, cache: Path | None = None) -> None:
        self.target = emulated_target(arch)
        self._cache = cache

    def load(self, hsaco: bytes, asm: str) -> Program:
        """Decode a kernel's text, verify that it is the image's, bind it. Raises DecodeError when it is not,
        or for anything unknown in it; UnsupportedError for modes that are not modelled; ToolchainError."""
        listing = parse_listing(asm)
        if listing.arch != self.target.arch:
            raise DecodeError(f"the text is for {listing.arch}, not for {self.target.arch}")
        places = verify_assembly(asm, listing.kernel, listing.arch, hsaco)
        return Program(self.target, place(listing, places), hsaco, self._cache)


class Program:
    """A kernel ready to launch, by `Emulator.load`. `lines`: instructions in the order of execution (a
    dual-issue pair is two or three at one address), `instructions` the structures for them, without handlers;
    `threads` of a workgroup; `registers`: VGPRs and AGPRs; `image`, with the kernel at `kernel_at`, when the
    kernel computes addresses in it."""

    def __init__(self, target: EmulatedTarget, listing: Listing, hsaco: bytes, cache: Path | None) -> None:
        try:
            elf, metadata = read_elf(hsaco), kernel_metadata(hsaco)
            descriptor = read_descriptor(elf, listing.kernel)
        except CodeObjectError as error:
            raise DecodeError(f"the image cannot be read: {error}") from error
        if elf.relocations or descriptor.dynamic_stack:
            raise UnsupportedError(f"{listing.kernel} has relocations or a stack of unknown size")
        if descriptor.entry != elf.symbol(listing.kernel).value:
            raise DecodeError(
                f"the descriptor of {listing.kernel} enters {descriptor.entry:#x}, where the kernel does not "
                f"begin"
            )
        listing = resolve(listing, elf.memory, descriptor.entry)
        self.target, self.listing, self.descriptor = target, listing, descriptor
        reads_itself = any(line.name == "s_getpc_b64" for line in listing.lines)
        self.image = np.frombuffer(elf.memory if reads_itself else b"", dtype=np.uint8)
        self.kernel_at = descriptor.entry
        self.parameters = tuple(
            KernelParameter(offset=a[".offset"], size=a[".size"], kind=a[".value_kind"])
            for a in metadata.get(".args", [])
        )
        self.threads = int(metadata[".max_flat_workgroup_size"])
        if not 0 < self.threads <= _THREADS:
            raise UnsupportedError(
                f"{listing.kernel} has workgroups of {self.threads} threads: a GPU's have 1 to {_THREADS}"
            )
        self.registers = _register_counts(descriptor, target)
        _check_scalars(listing, descriptor, target)
        self._cache = cache
        self._binder = Binder(target, self.registers)  # owns the constants that instructions point to
        self.lines, self.instructions = bind_lines(listing, self._binder)
        self._entry = self._entry_index()
        self._codes: dict[Variant, Code] = {}

    def launch(self, request: LaunchRequest) -> LaunchReport:
        """Execute a launch. Raises ExecutionError for a fault of the kernel, after which results are
        undefined; DecodeError, ToolchainError."""
        return execute(self, request)

    def code(self, variant: Variant) -> Code:
        """The instructions for a variant of the interpreter, compiled at its first use. Raises
        DecodeError."""
        if variant not in self._codes:
            library = load_library(
                self.target.lanes, self._cache, variant, {line.name for line in self.lines}
            )
            copy = type(self.instructions).from_buffer_copy(self.instructions)
            for one in copy:
                one.handler = library.handler(one.opcode)
            effects = None if variant == "plain" else self.effects()
            self._codes[variant] = Code(library=library, instructions=copy, effects=effects)
        return self._codes[variant]

    def effects(self) -> Any:
        """The effects of every instruction as an array of native.Effects. Raises DecodeError."""
        bound = zip(self.instructions, self.lines, strict=True)
        found = [effects_of(one, line, self.target) for one, line in bound]
        return (native.Effects * len(found))(*found)

    def kernarg(self, request: LaunchRequest, space: AddressSpace) -> bytes:
        """The kernel argument segment, with pointers into `space`. Raises ExecutionError."""
        geometry = Geometry(
            grid=request.grid, threads=self.threads, lds_bytes=request.lds_bytes, host_buffer=HOST_CALLS_BASE
        )
        size = self.descriptor.kernarg_bytes
        return segment(self.listing.kernel, self.parameters, size, request.arguments, geometry, space.address)

    def template(self, grid: tuple[int, int, int], kernarg: Any, lds_bytes: int) -> native.Launch:
        """A launch without memory, options and pointers. Raises ExecutionError."""
        descriptor, target = self.descriptor, self.target
        total_lds = descriptor.lds_bytes + lds_bytes
        if total_lds > target.lds_bytes:
            raise ExecutionError(f"{total_lds} bytes of LDS are more than {target.arch} has")
        user = descriptor.user_sgprs(KERNARG_BASE, kernarg.tobytes() + bytes(64))
        x, y, z = descriptor.workgroup_ids
        return native.Launch(
            length=len(self.lines),
            entry=self._entry,
            waves=-(-self.threads // target.lanes),
            lds_bytes=total_lds,
            scratch_bytes=descriptor.scratch_bytes,
            vgprs=max(*self.registers, 3),
            grid=grid,
            user_sgprs=descriptor.user_sgpr_count,
            user_values=len(user),
            user=(ctypes.c_uint32 * 32)(*user),
            ids_in_ttmp=target.ids_in_ttmp,
            item_ids=1 if target.packed_ids else descriptor.work_item_ids,
            id_x=x,
            id_y=y,
            id_z=z,
            wave_offset=descriptor.scratch_enabled and target.scratch_offset,
            code_base=CODE_BASE + self.kernel_at,
            first_address=self.lines[0].address,
            scratch_base=SCRATCH_TAG,
        )

    def _entry_index(self) -> int:
        address = _PRELOAD_ENTRY if self.descriptor.preload[0] else 0
        for index, line in enumerate(self.lines):
            if line.address == address:
                return index
        raise DecodeError(f"no instruction at the kernel's entry, byte {address}")


def _register_counts(descriptor: Descriptor, target: EmulatedTarget) -> tuple[int, int]:
    total = ((descriptor.rsrc1 & 63) + 1) * target.vgpr_unit
    if target.accumulators == "split":
        return min(total, 256), min(total, 256)
    if target.accumulators == "unified":
        first = ((descriptor.rsrc3 & 63) + 1) * 4
        return min(first, 256), max(0, min(total - first, 256))
    return min(total, 256), 0


def _check_scalars(listing: Listing, descriptor: Descriptor, target: EmulatedTarget) -> None:
    """The kernel has the SGPRs that it names; on gfx10 and later every kernel has all. Raises DecodeError."""
    if target.generation > 9:
        return
    count = ((descriptor.rsrc1 >> 6 & 15) + 1) * _SGPR_UNIT
    for line in listing.lines:
        for one in line.operands:
            # VCC is the last of those that the kernel has; operands do not name flat_scratch and xnack_mask
            # before it
            if (
                one.space == "scalar"
                and one.index < _PLAIN_SGPRS
                and one.index + one.words > count - _VCC_SGPRS
            ):
                raise DecodeError(
                    f"{line.location}: operand {one.text} is beyond the {count} SGPRs that the kernel has"
                )
