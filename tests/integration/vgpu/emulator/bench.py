"""A bench for single instructions: registers to fill and read, one instruction executed on them."""

from __future__ import annotations

import ctypes
import fcntl
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from vgpu.cache import default_cache
from vgpu.emulator import native
from vgpu.emulator.binding import Binder
from vgpu.emulator.generate import touches_memory
from vgpu.emulator.interpreter_library import load_library
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.listing import parse_line
from vgpu.emulator.targets import emulated_target

Words = npt.NDArray[np.uint32]
RUNNING, AT_BARRIER, ENDED, FAULT = range(4)


@cache
def _interpreter(lanes: int, name: str) -> ctypes.CDLL:
    """An interpreter that has this instruction: with 64 lanes the one of all, with 32 that of all which do
    not touch memory. Compiling one takes 20 s, so that of two test processes the second waits for the first;
    and nothing is compiled while tests are collected.
    """
    few = {n for n in INSTRUCTIONS if not touches_memory(n) or n.startswith(name[:6])}
    folder = default_cache()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".test-interpreter.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return load_library(lanes, folder, names=None if lanes == 64 else few)


class Bench:
    """One wave of an arch. `s` are scalar registers, `v` vector registers by lane (AGPRs from 256)."""

    def __init__(self, arch: str, *, lds: int = 4096, scratch: int = 256) -> None:
        self.target = emulated_target(arch)
        self.lanes = self.target.lanes
        raw = np.zeros(native.wave_bytes(self.lanes) + 64, dtype=np.uint8)
        start = -raw.ctypes.data % 64
        self._raw = raw[start : start + native.wave_bytes(self.lanes)]
        self.wave: Any = native.WAVES[self.lanes].from_address(self._raw.ctypes.data)
        self.s: Words = self._raw[: 4 * native.SCALARS].view(np.uint32)
        rows = 4 * native.SCALARS + 4 * self.lanes * native.VECTORS
        self.v: Words = (
            self._raw[4 * native.SCALARS : rows].view(np.uint32).reshape(native.VECTORS, self.lanes)
        )
        self.lds = np.zeros(lds, dtype=np.uint8)
        self.scratch = np.zeros((self.lanes, scratch), dtype=np.uint8)
        self.fault = native.FaultReport()
        self.wave.lds, self.wave.lds_bytes = self.lds.ctypes.data, lds
        self.wave.scratch, self.wave.scratch_bytes = self.scratch.ctypes.data, scratch
        self.wave.fault = ctypes.pointer(self.fault)
        self.give()
        self.exec = self.full

    @property
    def full(self) -> int:
        return (1 << self.lanes) - 1

    def give(self, *buffers: npt.NDArray[Any]) -> None:
        """Let the wave touch these buffers and no others."""
        spans = [(b.ctypes.data, b.ctypes.data + b.nbytes, 0, int(b.flags.writeable)) for b in buffers] or [
            (0, 0, 0, 0)
        ]
        self._ranges = (native.Range * len(spans))(*[native.Range(*span) for span in spans])
        self.wave.ranges, self.wave.range_count, self.wave.hint = self._ranges, len(spans), 0

    @property
    def exec(self) -> int:
        return self.pair(native.EXEC_LO)

    @exec.setter
    def exec(self, mask: int) -> None:
        self.set_pair(native.EXEC_LO, mask)

    def pair(self, index: int) -> int:
        return int(self.s[index]) | int(self.s[index + 1]) << 32

    def set_pair(self, index: int, value: int) -> None:
        self.s[index], self.s[index + 1] = value & 0xFFFFFFFF, value >> 32

    def run(self, text: str) -> None:
        """Execute one instruction. Raises DecodeError."""
        line = parse_line(text)
        binder = Binder(self.target, (256, 256))
        bound = binder.bind(line, {".target": 7})
        library = _interpreter(self.lanes, line.name)
        bound.handler = library.handler(bound.opcode)
        self.wave.state = RUNNING
        library.step(self._raw.ctypes.data, ctypes.byref(bound))

    def randomise(self, rng: np.random.Generator) -> None:
        """Every register random."""
        self.s[: native.EXEC_LO] = rng.integers(0, 2**32, native.EXEC_LO, dtype=np.uint32)
        self.v[:512] = rng.integers(0, 2**32, (512, self.lanes), dtype=np.uint32)
        self.wave.scc = int(rng.integers(0, 2))
