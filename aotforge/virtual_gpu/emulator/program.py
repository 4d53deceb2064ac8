"""Programs: decoded, proven and bound kernels that can be launched."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aotforge.errors import DecodeError, ExecutionError, UnsupportedError
from aotforge.formats.code_object import CodeObjectError, kernel_metadata
from aotforge.formats.elf import read_elf
from aotforge.virtual_gpu.emulator import native
from aotforge.virtual_gpu.emulator.binding import Binder
from aotforge.virtual_gpu.emulator.decoded import Checks, Line, Listing, SourceMap
from aotforge.virtual_gpu.emulator.descriptor import (
    SCRATCH_TAG,
    Descriptor,
    dynamic_stack,
    kernarg_segment,
    read_descriptor,
)
from aotforge.virtual_gpu.emulator.effects import effects_of
from aotforge.virtual_gpu.emulator.faults import explain
from aotforge.virtual_gpu.emulator.generate import Variant
from aotforge.virtual_gpu.emulator.interpreter_library import load_library
from aotforge.virtual_gpu.emulator.listing import parse_listing
from aotforge.virtual_gpu.emulator.measure import Meter
from aotforge.virtual_gpu.emulator.probes import Probes
from aotforge.virtual_gpu.emulator.proof import Proof, locate, prove
from aotforge.virtual_gpu.emulator.targets import EmulatedTarget, emulated_target
from aotforge.virtual_gpu.emulator.vopd import in_order
from aotforge.virtual_gpu.interpreter.memory import Memory

DEFAULT_LIMIT = 200_000_000
"""Wave-instructions that a workgroup may execute."""
_PRELOAD_ENTRY = 256


@dataclass(frozen=True, kw_only=True)
class LaunchReport:
    """What a launch did. `counts`: wave-instructions by mnemonic; `instructions` their sum; `seconds` wall time."""

    instructions: int
    counts: Counter[str]
    workgroups: int
    seconds: float
    threads: int


@dataclass(frozen=True, kw_only=True)
class KernelParameter:
    """A parameter from the code object's metadata."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """A place in a trace: `line` has just been executed by `wave` of `lanes` lanes, whose registers can be read."""

    wave: Any
    line: Line


Trace = Callable[[Step], None]


class Emulator:
    """Virtual GPUs of one architecture. `cache`: folder for the compiled interpreter. Raises UnknownNameError."""

    def __init__(self, arch: str, *, cache: Path | None = None) -> None:
        self.target = emulated_target(arch)
        self._cache = cache

    def load(self, hsaco: bytes, asm: str) -> Program:
        """Decode a kernel's text, prove that it is the image, bind it.

        Raises DecodeError when it is not, or for anything unknown in it; UnsupportedError for modes that are not modelled;
        ToolchainError without Triton. The interpreter is compiled when a launch first needs it.
        """
        listing = self._listing(asm)
        return self._program(listing, prove(asm, listing.kernel, self.target.arch, hsaco), hsaco)

    def load_altered(self, hsaco: bytes, asm: str) -> Program:
        """A text that need not be the image's: for faults planted on purpose, never for a verdict about the image.

        Descriptor and metadata are the image's, instructions and addresses the text's. Raises what `load` raises.
        """
        listing = self._listing(asm)
        return self._program(listing, locate(asm, listing.kernel, self.target.arch), hsaco)

    def _listing(self, asm: str) -> Listing:
        listing = parse_listing(asm)
        if listing.arch != self.target.arch:
            raise DecodeError(f"the text is for {listing.arch}, not for {self.target.arch}")
        return listing

    def _program(self, listing: Listing, proof: Proof, hsaco: bytes) -> Program:
        lines = tuple(
            replace(line, address=here, next_address=after)
            for line, here, after in zip(
                listing.lines, proof.addresses[:-1], proof.addresses[1:], strict=True
            )
        )
        try:
            elf = read_elf(hsaco)
            descriptor = read_descriptor(elf, listing.kernel)
            metadata = kernel_metadata(hsaco)
        except CodeObjectError as error:
            raise DecodeError(f"the image cannot be read: {error}") from error
        if elf.relocations or dynamic_stack(descriptor):
            raise UnsupportedError(f"{listing.kernel} has relocations or a stack of unknown size")
        return Program(
            self.target,
            replace(listing, lines=lines),
            descriptor,
            metadata,
            self._cache,
        )


@dataclass(frozen=True, kw_only=True)
class _Binding:
    """Bound instructions without handlers, the line of each, and the arrays that they point to."""

    instructions: Any
    lines: tuple[Line, ...]
    keep: object


@dataclass(frozen=True, kw_only=True)
class _Code:
    """Instructions with the handlers of one variant of the interpreter, and their effects where it looks at them."""

    library: ctypes.CDLL
    instructions: Any
    effects: Any = None


def bind_lines(
    lines: Sequence[Line], labels: dict[str, int], target: EmulatedTarget, registers: tuple[int, int]
) -> _Binding:
    """Bind instructions in order; dual-issue pairs become two or three. Raises DecodeError."""
    flat: list[Line] = []
    starts = []
    for line in lines:
        starts.append(len(flat))
        flat.extend(in_order(line) if line.partner else (line,))
    starts.append(len(flat))
    positions = {label: starts[index] for label, index in labels.items()}
    binder = Binder(target, registers)
    bound = [binder.bind(line, positions) for line in flat]
    if any(one.target >= len(flat) for one in bound):
        raise DecodeError("a branch leads behind the last instruction")
    return _Binding(
        instructions=(native.Instruction * len(bound))(*bound),
        lines=tuple(flat),
        keep=binder,
    )


class Program:
    """A kernel ready to launch. Made by `Emulator.load`."""

    def __init__(
        self,
        target: EmulatedTarget,
        listing: Listing,
        descriptor: Descriptor,
        metadata: dict[str, Any],
        cache: Path | None,
    ) -> None:
        self.target, self.listing, self.descriptor = target, listing, descriptor
        self.parameters = tuple(
            KernelParameter(offset=a[".offset"], size=a[".size"], kind=a[".value_kind"])
            for a in metadata.get(".args", [])
        )
        self.threads = int(metadata[".max_flat_workgroup_size"])
        self._cache = cache
        self.registers = _register_counts(descriptor, target)
        self._binding = bind_lines(listing.lines, dict(listing.labels), target, self.registers)
        self._entry = self._entry_index()
        self._codes: dict[Variant, _Code] = {}

    @property
    def lines(self) -> tuple[Line, ...]:
        """Instructions as they are executed, in the text's order: a dual-issue pair is two or three, with one address."""
        return self._binding.lines

    def launch(
        self,
        grid: tuple[int, int, int],
        arguments: Sequence[int | float],
        memory: Memory,
        *,
        lds_bytes: int = 0,
        schedule: int | None = None,
        seed: int = 1,
        limit: int = DEFAULT_LIMIT,
        jobs: int | None = None,
        trace: Trace | None = None,
        checks: bool | Checks = False,
        source: SourceMap | None = None,
        probes: Probes | None = None,
        meter: Meter | None = None,
    ) -> LaunchReport:
        """Execute every workgroup of `grid` on the buffers of `memory`, whose addresses pointer arguments hold.

        `arguments` in the order of the kernel's parameters, without Triton's two scratch pointers; `lds_bytes` dynamic LDS of a
        workgroup; `schedule` a seed for random wave schedules, None runs waves one after another between barriers; `seed` fills
        registers, LDS and scratch; `limit` wave-instructions per workgroup; `jobs` threads (default: one per CPU; 1 when
        tracing or with `probes`); `checks` what to look for beside bounds (True: everything); `source` lets reports name source
        lines; `meter` measures traffic, without `checks`. Raises ExecutionError for whatever the kernel must not do; results are
        then undefined; ToolchainError without a C compiler.
        """
        began = time.perf_counter()
        if min(grid) < 1 or max(grid) > 0xFFFFFFFF:
            raise ExecutionError(f"a grid of {grid} has no workgroups")
        kernarg = np.frombuffer(bytearray(self._kernarg(arguments)), dtype=np.uint8)
        count = (
            1 if trace or probes else min(jobs or len(os.sched_getaffinity(0)), grid[0] * grid[1] * grid[2])
        )
        wanted = Checks() if checks is True else checks or None
        if wanted and meter:
            raise UnsupportedError("a launch cannot be checked and measured at once", hint="launch it twice")
        shared = _Shared(ranges=_ranges(memory, kernarg), unset=_unset(memory, wanted))
        for place, state in shared.unset.items():
            shared.ranges[place].unset = state.ctypes.data
        code = self._code("checks" if wanted else "measure" if meter else "plain")
        plan = self._plan(grid, kernarg, shared, lds_bytes, limit)
        plan.program, plan.checks = code.instructions, wanted.bits if wanted else 0
        plan.effects = code.effects
        plan.seed, plan.schedule = seed, 0 if schedule is None else 1
        if schedule is not None:
            plan.seed = (seed << 32) ^ schedule
        callback = self._callback(trace)
        if meter:
            meter.prepare(shared.ranges)
        if probes:
            plan.program = probes.attach(code.instructions, lanes=self.target.lanes, plan=plan)
        plan.trace = ctypes.cast(callback, ctypes.c_void_p).value if callback else None
        workers = [_Worker(plan, len(self._binding.lines)) for _ in range(count)]
        if meter:
            for worker in workers:
                worker.launch.observer = meter.observer(len(self._binding.lines))
        results = _execute(code, workers)
        if probes and probes.error:
            raise probes.error
        self._raise(results, workers, memory, source)
        return self._report(workers, began, meter)

    def _report(self, workers: Sequence[_Worker], began: float, meter: Meter | None) -> LaunchReport:
        totals = np.stack([worker.counts for worker in workers]).sum(axis=0, dtype=np.uint64)
        if meter:
            meter.finish(self._binding.lines, totals)
        counts: Counter[str] = Counter()
        for line, total in zip(self._binding.lines, totals.tolist(), strict=True):
            if total:
                counts[line.name] += total
        x, y, z = workers[0].launch.grid
        return LaunchReport(
            instructions=int(totals.sum()),
            counts=counts,
            workgroups=x * y * z,
            seconds=time.perf_counter() - began,
            threads=len(workers),
        )

    def _code(self, variant: Variant) -> _Code:
        """The instructions for a variant of the interpreter, which is compiled if need be. Raises DecodeError."""
        if variant not in self._codes:
            library = load_library(self.target.lanes, self._cache, variant)
            copy = type(self._binding.instructions).from_buffer_copy(self._binding.instructions)
            for one in copy:
                one.handler = library.handler(one.opcode)
            effects = None if variant == "plain" else self._effects()
            self._codes[variant] = _Code(library=library, instructions=copy, effects=effects)
        return self._codes[variant]

    def _effects(self) -> Any:
        bound, lines = self._binding.instructions, self._binding.lines
        found = [effects_of(one, line, self.target) for one, line in zip(bound, lines, strict=True)]
        return (native.Effects * len(found))(*found)

    def _entry_index(self) -> int:
        address = _PRELOAD_ENTRY if self.descriptor.preload[0] else 0
        for index, line in enumerate(self._binding.lines):
            if line.address == address:
                return index
        raise DecodeError(f"no instruction at the kernel's entry, byte {address}")

    def _kernarg(self, arguments: Sequence[int | float]) -> bytes:
        known = [p for p in self.parameters if p.kind in {"by_value", "global_buffer"}]
        if len(known) != len(self.parameters):
            kinds = sorted({p.kind for p in self.parameters if p not in known})
            raise UnsupportedError(f"hidden kernel arguments are not supported: {', '.join(kinds)}")
        missing = len(known) - len(arguments)
        if missing not in {0, 2} or any(p.kind != "global_buffer" for p in known[len(arguments) :]):
            raise ExecutionError(
                f"{self.listing.kernel} takes {len(known)} arguments, the last two being Triton's own, not {len(arguments)}"
            )
        values = [*arguments, *[0] * missing]
        packed = [(p.offset, p.size, _pack(v, p)) for p, v in zip(known, values, strict=True)]
        return kernarg_segment(packed, self.descriptor.kernarg_bytes)

    def _plan(
        self, grid: tuple[int, int, int], kernarg: Any, shared: _Shared, lds_bytes: int, limit: int
    ) -> native.Launch:
        descriptor, target = self.descriptor, self.target
        total_lds = descriptor.lds_bytes + lds_bytes
        if total_lds > target.lds_bytes:
            raise ExecutionError(f"{total_lds} bytes of LDS are more than {target.arch} has")
        user = descriptor.user_sgprs(kernarg.ctypes.data, kernarg.tobytes() + bytes(64))
        ids = descriptor.workgroup_ids
        return native.Launch(
            length=len(self._binding.lines),
            entry=self._entry,
            waves=-(-self.threads // target.lanes),
            lds_bytes=total_lds,
            scratch_bytes=descriptor.scratch_bytes,
            vgprs=max(*self.registers, 3),
            grid=grid,
            user_sgprs=len(user),
            user=(ctypes.c_uint32 * 32)(*user),
            ids_in_ttmp=target.ids_in_ttmp,
            item_ids=1 if target.packed_ids else descriptor.work_item_ids,
            id_x=ids[0],
            id_y=ids[1],
            id_z=ids[2],
            wave_offset=descriptor.scratch_enabled and target.scratch_offset,
            limit=limit,
            code_base=1 << 44,
            scratch_base=SCRATCH_TAG,
            ranges=shared.ranges,
            range_count=len(shared.ranges),
            next=ctypes.pointer(shared.next),
            stop=ctypes.pointer(shared.stop),
        )

    def _callback(self, trace: Trace | None) -> Any:
        if trace is None:
            return None
        kind = native.WAVES[self.target.lanes]

        def call(address: int, index: int) -> None:
            trace(Step(wave=kind.from_address(address), line=self._binding.lines[index]))

        return native.TRACE(call)

    def _raise(
        self, results: list[int], workers: list[_Worker], memory: Memory, source: SourceMap | None
    ) -> None:
        if -1 in results:
            raise ExecutionError("not enough memory for the waves of a workgroup")
        failed = [worker.launch.fault for worker, result in zip(workers, results, strict=True) if result]
        if failed:
            fault = failed[0]
            raise explain(fault, self._binding.lines, self.listing.kernel, memory, source)


def _execute(code: _Code, workers: Sequence[_Worker]) -> list[int]:
    """What `run` returned for each worker. A single one runs in the caller's thread: a debugger's prompt belongs there."""

    def run(worker: _Worker) -> int:
        return int(code.library.run(ctypes.byref(worker.launch)))

    if len(workers) == 1:
        return [run(workers[0])]
    with ThreadPoolExecutor(len(workers)) as pool:
        return list(pool.map(run, workers))


@dataclass(kw_only=True)
class _Shared:
    """What all threads of a launch share."""

    ranges: Any
    unset: dict[int, npt.NDArray[np.uint8]]
    next: ctypes.c_uint64 = field(default_factory=ctypes.c_uint64)
    stop: ctypes.c_uint32 = field(default_factory=ctypes.c_uint32)


class _Worker:
    """One thread's copy of a launch, with counters of its own."""

    def __init__(self, plan: native.Launch, length: int) -> None:
        self.launch = native.Launch.from_buffer_copy(plan)
        self.plan = plan  # keeps what the pointers lead to
        self.counts = np.zeros(length, dtype=np.uint64)
        self.launch.counts = self.counts.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64))


def _ranges(memory: Memory, kernarg: Any) -> Any:
    spans = [(low, high, int(writable)) for _, low, high, writable in memory.spans()]
    spans.append((kernarg.ctypes.data, kernarg.ctypes.data + kernarg.nbytes, 0))
    return (native.Range * len(spans))(
        *[native.Range(low, high, writable, 0) for low, high, writable in spans]
    )


def _unset(memory: Memory, checks: Checks | None) -> dict[int, npt.NDArray[np.uint8]]:
    """By the place of a range: that nobody has stored its bytes (state.h, GARBAGE). Raises ExecutionError for an unknown buffer."""
    wanted = checks.unwritten if checks and checks.uninitialised else frozenset()
    spans = memory.spans()
    if unknown := sorted(wanted - {name for name, *_ in spans}):
        raise ExecutionError(f"there is no buffer {unknown[0]} in the launch's memory")
    return {
        place: np.full(high - low, 2, dtype=np.uint8)
        for place, (name, low, high, _) in enumerate(spans)
        if name in wanted
    }


def _register_counts(descriptor: Descriptor, target: EmulatedTarget) -> tuple[int, int]:
    """VGPRs and AGPRs per lane that the kernel may name."""
    total = ((descriptor.rsrc1 & 63) + 1) * target.vgpr_unit
    if target.accumulators == "split":
        return min(total, 256), min(total, 256)
    if target.accumulators == "unified":
        first = ((descriptor.rsrc3 & 63) + 1) * 4
        return min(first, 256), max(0, min(total - first, 256))
    return min(total, 256), 0


def _pack(value: int | float, parameter: KernelParameter) -> bytes:
    """A number in a parameter's bytes. Raises ExecutionError when it does not fit."""
    try:
        if isinstance(value, float):
            if parameter.kind == "global_buffer":
                raise ExecutionError("a pointer argument cannot be a float")
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[parameter.size], value)
        return int(value).to_bytes(parameter.size, "little", signed=value < 0)
    except (OverflowError, KeyError) as error:
        raise ExecutionError(f"the argument {value} does not fit in {parameter.size} bytes") from error
