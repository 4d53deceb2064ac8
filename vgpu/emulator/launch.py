"""Launches of a loaded kernel: the request, the interpreter's threads, faults, and the report."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vgpu.emulator import native
from vgpu.emulator.address_space import (
    CODE_BASE,
    HOST_CALLS_BASE,
    KERNARG_BASE,
    AddressSpace,
    Region,
)
from vgpu.emulator.arguments import HOST_BUFFER, KernelParameter, absent_arguments
from vgpu.emulator.decoded import Checks, Line, Listing, SourceMap
from vgpu.emulator.faults import KernelNames, explain
from vgpu.emulator.generate import Variant
from vgpu.emulator.hooks import InstructionHooks
from vgpu.emulator.host_calls import HostCalls, OnPrint, PrintedText
from vgpu.emulator.measure import Meter
from vgpu.emulator.targets import EmulatedTarget
from vgpu.errors import ExecutionError, UnsupportedError
from vgpu.memory import Memory

DEFAULT_LIMIT = 200_000_000
"""Wave-instructions that a workgroup may execute."""
_UNSET = 2  # GARBAGE of state.h: a byte that no instruction has stored


@dataclass(frozen=True, kw_only=True)
class Code:
    """Instructions with a variant's handlers, and their effects unless it is the plain one."""

    library: ctypes.CDLL
    instructions: Any
    effects: Any = None


class LoadedProgram(Protocol):
    """What a launch uses of a `Program`."""

    target: EmulatedTarget
    listing: Listing
    lines: tuple[Line, ...]
    parameters: tuple[KernelParameter, ...]
    image: npt.NDArray[np.uint8]

    def kernarg(self, request: LaunchRequest, space: AddressSpace) -> bytes:
        """The argument segment."""
        ...

    def code(self, variant: Variant) -> Code:
        """Handlers of a variant."""
        ...

    def template(self, grid: tuple[int, int, int], kernarg: Any, lds_bytes: int) -> native.Launch:
        """The interpreter's launch structure."""
        ...


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
    `checks` besides bounds (True: all); `source` for reports; `meter`: without `checks`."""

    grid: tuple[int, int, int]
    arguments: Sequence[int | float]
    memory: Memory
    lds_bytes: int = 0
    schedule: int | None = None
    seed: int = 1
    limit: int = DEFAULT_LIMIT
    jobs: int | None = None
    checks: bool | Checks = False
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
        return "checks" if self.checks else "measure" if self.meter else "plain"

    @property
    def workgroups(self) -> int:
        """How many workgroups the grid has."""
        return math.prod(self.grid)

    @property
    def workers(self) -> int:
        """How many threads execute it."""
        if self.trace or self.hooks:
            return 1
        return min(self.jobs or len(os.sched_getaffinity(0)), self.workgroups)


class _Worker:
    """One thread's copy of a launch, with counters of its own."""

    def __init__(self, launch: native.Launch, length: int) -> None:
        self.launch = native.Launch.from_buffer_copy(launch)
        self.shared = launch  # keeps the arrays that its pointers refer to
        self.counts = np.zeros(length, dtype=np.uint64)
        self.launch.counts = self.counts.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64))


def execute(program: LoadedProgram, request: LaunchRequest) -> LaunchReport:
    """Execute a launch; see `Program.launch`."""
    if min(request.grid) < 1 or max(request.grid) > 0xFFFFFFFF:
        raise ExecutionError(f"a grid of {request.grid} has no workgroups")
    if request.checks and request.meter:
        raise UnsupportedError("a launch cannot be checked and measured at once", hint="launch it twice")
    code = program.code(request.variant)
    began = time.perf_counter()  # compiling the interpreter is no part of the launch
    # all of these must outlive the launch: its structures have pointers to them
    calls = any(p.kind == HOST_BUFFER for p in program.parameters)
    host = HostCalls(code.library, request.on_print) if calls else None
    space = AddressSpace(request.memory)
    kernarg = np.frombuffer(bytearray(program.kernarg(request, space)), dtype=np.uint8)
    unset = _unset(request)
    system = [Region.of(kernarg, KERNARG_BASE), Region.of(program.image, CODE_BASE)]
    if host:
        system.append(Region.of(host.memory, HOST_CALLS_BASE, writable=True))
    ranges = _ranges(space, system, unset)
    callback = _callback(program, request.trace)
    launch = _launch(program, request, kernarg, code)
    launch.ranges, launch.range_count = ranges, len(ranges)
    launch.trace = ctypes.cast(callback, ctypes.c_void_p).value if callback else None
    if host:
        host.attach(launch)
    workers = [_Worker(launch, len(program.lines)) for _ in range(1 if host else request.workers)]
    if request.meter:
        request.meter.prepare(ranges)
        for worker in workers:
            worker.launch.observer = request.meter.observer(len(program.lines))
    results = _run(code.library, workers)
    if request.hooks and request.hooks.error:
        raise request.hooks.error
    if -1 in results:
        raise ExecutionError("not enough memory for the waves of a workgroup")
    if stopped := [worker.launch.fault for worker, result in zip(workers, results, strict=True) if result]:
        names = KernelNames(
            kernel=program.listing.kernel,
            absent=absent_arguments(program.parameters),
            message=host.texts[-1].text if host and host.texts else "",
        )
        raise explain(stopped[0], program.lines, names, space.spans(), request.source)
    totals = np.stack([worker.counts for worker in workers]).sum(axis=0, dtype=np.uint64)
    if request.meter:
        request.meter.finish(program.lines, totals)
    counts: Counter[str] = Counter()
    for line, total in zip(program.lines, totals.tolist(), strict=True):
        counts[line.name] += total
    seconds, groups = time.perf_counter() - began, request.workgroups
    total = int(totals.sum())
    return LaunchReport(
        instructions=total,
        counts=+counts,
        workgroups=groups,
        seconds=seconds,
        threads=len(workers),
        printed=tuple(host.texts) if host else (),
    )


def _launch(program: LoadedProgram, request: LaunchRequest, kernarg: Any, code: Code) -> native.Launch:
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


def _callback(program: LoadedProgram, trace: Trace | None) -> Any:
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
