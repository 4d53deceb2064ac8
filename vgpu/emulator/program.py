"""Programs (decoded, verified and bound kernels), their launches and reports."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vgpu.code_object import CodeObjectError, kernel_metadata, read_elf
from vgpu.emulator import native
from vgpu.emulator.address_space import CODE_BASE, HOST_CALLS_BASE, KERNARG_BASE, AddressSpace, Region
from vgpu.emulator.arguments import (
    HOST_BUFFER,
    SCRATCH_TAG,
    Descriptor,
    Geometry,
    KernelParameter,
    absent_arguments,
    read_descriptor,
    segment,
)
from vgpu.emulator.assembly import place, resolve, verify_assembly
from vgpu.emulator.binding import Binder, bind_lines
from vgpu.emulator.decoded import Checks, Line, Listing, SourceMap
from vgpu.emulator.effects import effects_of
from vgpu.emulator.faults import explain
from vgpu.emulator.generate import Variant
from vgpu.emulator.hooks import HostCalls, InstructionHooks, OnPrint, PrintedText
from vgpu.emulator.interpreter_library import load_library
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.measure import Meter
from vgpu.emulator.races import RaceCheck
from vgpu.emulator.targets import EmulatedTarget, emulated_target
from vgpu.errors import DecodeError, ExecutionError, UnsupportedError
from vgpu.memory import Memory

_PRELOAD_ENTRY = 256
_THREADS = 1024
_MOST_THREADS, _MOST_GROUPS = 0xFFFFFFFF, 65536
_SGPR_UNIT, _PLAIN_SGPRS, _VCC_SGPRS = 8, 102, 2
DEFAULT_LIMIT = 200_000_000
"""Wave-instructions that a workgroup may execute."""
_UNSET = 2  # GARBAGE of state.h: a byte that no instruction has stored


@dataclass(frozen=True, kw_only=True)
class Code:
    """Instructions with a variant's handlers, and their effects unless it is the plain one."""

    library: ctypes.CDLL
    instructions: Any
    effects: Any = None


@dataclass(frozen=True, kw_only=True)
class LaunchReport:
    """Statistics. `counts`: wave-instructions by mnemonic; `printed`: texts of `tl.device_print`."""

    instructions: int
    counts: Counter[str]
    workgroups: int
    seconds: float
    threads: int
    printed: tuple[PrintedText, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """One entry of a trace: `wave`, whose registers can be read, has just executed `line`."""

    wave: Any
    line: Line


Bytes = npt.NDArray[np.uint8]
Trace = Callable[[Step], None]


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """A launch on the buffers of `memory`, whose addresses pointer arguments hold; Triton's two scratch
    pointers may be left out. `lds_bytes`: dynamic LDS of a workgroup; `schedule`: seed of a random wave
    schedule (None: waves in turn between barriers); `seed` fills registers, LDS and scratch; `limit`:
    wave-instructions per workgroup; `jobs`: threads (default: one per CPU, 1 with `trace` or `hooks`);
    `checks` besides bounds (True: all); `races`: looks for data races in global memory; `source` for reports;
    `meter`. Of `checks`, `races` and `meter` a launch has one."""

    grid: tuple[int, int, int]
    arguments: Sequence[int | float]
    memory: Memory
    lds_bytes: int = 0
    schedule: int | None = None
    seed: int = 1
    limit: int = DEFAULT_LIMIT
    jobs: int | None = None
    checks: bool | Checks = False
    races: bool = False
    trace: Trace | None = None
    source: SourceMap | None = None
    hooks: InstructionHooks | None = None
    meter: Meter | None = None
    on_print: OnPrint | None = None

    @property
    def wanted_checks(self) -> Checks | None:
        """The checks, or None for none."""
        return Checks() if self.checks is True else self.checks or None

    @property
    def variant(self) -> Variant:
        """The interpreter that the launch needs."""
        if self.races:
            return "races"
        return "checks" if self.checks else "measure" if self.meter else "plain"

    @property
    def workers(self) -> int:
        """How many threads execute it."""
        alone = self.trace or self.hooks or self.races
        return 1 if alone else min(self.jobs or len(os.sched_getaffinity(0)), math.prod(self.grid))


class _Worker:
    """One thread's copy of a launch, with counters of its own."""

    def __init__(self, launch: native.Launch, length: int) -> None:
        self.launch = native.Launch.from_buffer_copy(launch)
        self.shared = launch  # keeps the arrays that its pointers refer to
        self.counts = np.zeros(length, dtype=np.uint64)
        self.launch.counts = self.counts.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64))


class Emulator:
    """Virtual GPUs of one arch. `cache`: folder for the interpreter. Raises UnknownNameError."""

    def __init__(self, arch: str, *, cache: Path | None = None) -> None:
        self.target = emulated_target(arch)
        self._cache = cache

    def load(self, hsaco: bytes, asm: str) -> Program:
        """Decode a kernel's text, verify that it is the image's, bind it. Raises DecodeError,
        UnsupportedError for modes that are not modelled, ToolchainError."""
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
        if elf.relocations or descriptor.properties >> 11 & 1:
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
        """Execute a launch. Raises ExecutionError for a fault of the kernel; DecodeError, ToolchainError."""
        _check_grid(self.listing.kernel, request.grid, self.threads)
        if bool(request.checks) + bool(request.meter) + request.races > 1:
            raise UnsupportedError(
                "a launch cannot be checked and measured at once, nor be searched for races besides",
                hint="launch it twice",
            )
        code = self.code(request.variant)
        began = time.perf_counter()  # compiling the interpreter is no part of the launch
        # all of these must outlive the launch: its structures have pointers to them
        calls = any(p.kind == HOST_BUFFER for p in self.parameters)
        host = HostCalls(code.library, request.on_print) if calls else None
        space = AddressSpace(request.memory)
        kernarg = np.frombuffer(bytearray(self.kernarg(request, space)), dtype=np.uint8)
        unset = _unset(request)
        system = [Region.of(kernarg, KERNARG_BASE), Region.of(self.image, CODE_BASE)]
        if host:
            system.append(Region.of(host.memory, HOST_CALLS_BASE, writable=True))
        ranges = _ranges(space, system, unset)
        callback = _callback(self, request.trace)
        launch = _launch(self, request, kernarg, code)
        launch.ranges, launch.range_count = ranges, len(ranges)
        launch.trace = ctypes.cast(callback, ctypes.c_void_p).value if callback else None
        if host:
            host.attach(launch)
        workers = [_Worker(launch, len(self.lines)) for _ in range(1 if host else request.workers)]
        if request.meter:
            request.meter.prepare(ranges)
            for worker in workers:
                worker.launch.observer = request.meter.observer(len(self.lines))
        if request.races:
            races = RaceCheck(self.lines, self.target, space, ranges)
            workers[0].launch.observer = races.observer(request.grid, launch.waves)
        results = _run(code.library, workers)
        if request.hooks and request.hooks.error:
            raise request.hooks.error
        if -1 in results:
            raise ExecutionError("not enough memory for the waves of a workgroup")
        if stopped := [
            worker.launch.fault for worker, result in zip(workers, results, strict=True) if result
        ]:
            raise explain(
                stopped[0],
                self.lines,
                space.spans(),
                request.source,
                kernel=self.listing.kernel,
                absent=absent_arguments(self.parameters),
                message=host.texts[-1].text if host and host.texts else "",
                grid=request.grid,
            )
        totals = np.stack([worker.counts for worker in workers]).sum(axis=0, dtype=np.uint64)
        if request.meter:
            request.meter.finish(self.lines, totals)
        counts: Counter[str] = Counter()
        for line, total in zip(self.lines, totals.tolist(), strict=True):
            counts[line.name] += total
        return LaunchReport(
            instructions=int(totals.sum()),
            counts=+counts,
            workgroups=math.prod(request.grid),
            seconds=time.perf_counter() - began,
            threads=len(workers),
            printed=tuple(host.texts) if host else (),
        )

    def code(self, variant: Variant) -> Code:
        """The instructions for a variant of the interpreter, which may be compiled now. Raises
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


def _check_grid(kernel: str, grid: tuple[int, int, int], threads: int) -> None:
    """Raises ExecutionError for what HIP refuses; ids along y and z have 16 bits on some archs."""
    limits = (_MOST_THREADS // threads, _MOST_GROUPS, _MOST_GROUPS)
    for axis, count, limit in zip("xyz", grid, limits, strict=True):
        if not 1 <= count <= limit:
            of_threads = f" of {threads} threads" if axis == "x" else ""
            raise ExecutionError(
                f"{kernel} is launched with {count} workgroups along {axis}: a GPU takes 1 to "
                f"{limit}{of_threads}",
                cause="HIP refuses the launch: hipErrorInvalidConfiguration",
                hint="put the large axis along x, or launch several times" if count > limit else "",
            )


def _launch(program: Program, request: LaunchRequest, kernarg: Any, code: Code) -> native.Launch:
    """The structure that all threads share, without memory and trace."""
    launch = program.template(request.grid, kernarg, request.lds_bytes)
    launch.next, launch.stop = ctypes.pointer(ctypes.c_uint64()), ctypes.pointer(ctypes.c_uint32())
    launch.program, launch.effects = code.instructions, code.effects
    launch.limit, launch.seed = request.limit, request.seed
    if checks := request.wanted_checks:
        launch.checks = checks.bits
    if request.schedule is not None:
        launch.schedule, launch.seed = 1, (request.seed << 32) ^ request.schedule
    if request.hooks:
        launch.program = request.hooks.attach(code.instructions, lanes=program.target.lanes, launch=launch)
    return launch


def _unset(request: LaunchRequest) -> dict[str, Bytes]:
    """State per byte of the unwritten buffers. Raises ExecutionError for an unknown buffer."""
    checks, spans = request.wanted_checks, request.memory.spans()
    wanted = checks.unwritten if checks and checks.uninitialised else frozenset()
    if unknown := sorted(wanted - {name for name, *_ in spans}):
        raise ExecutionError(f"the launch's memory has no buffer {unknown[0]}")
    return {
        name: np.full(high - low, _UNSET, dtype=np.uint8) for name, low, high, _ in spans if name in wanted
    }


def _ranges(space: AddressSpace, system: Sequence[Region], unset: Mapping[str, Bytes]) -> Any:
    """All that the kernel may touch; the host's addresses last, as tensors may hold pointers of the host."""
    spaces = [*space.regions, *(one for one in system if one.size), *space.host_regions()]
    states = {name: state.ctypes.data for name, state in unset.items()}
    return (native.Range * len(spaces))(*[one.native_range(states.get(one.name)) for one in spaces])


def _callback(program: Program, trace: Trace | None) -> Any:
    if trace is None:
        return None
    kind = native.WAVES[program.target.lanes]

    def call(address: int, index: int) -> None:
        trace(Step(wave=kind.from_address(address), line=program.lines[index]))

    return native.TRACE(call)


def _run(library: ctypes.CDLL, workers: Sequence[_Worker]) -> list[int]:
    """Results per worker. A single one runs in the caller's thread, where a debugger's prompt belongs."""

    def run(worker: _Worker) -> int:
        return int(library.run(ctypes.byref(worker.launch)))

    if len(workers) == 1:
        return [run(workers[0])]
    with ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(run, workers))


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
