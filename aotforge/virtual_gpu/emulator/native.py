"""The interpreter's structures as ctypes sees them. Sizes are compared with the compiled library's when it is loaded."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int8, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

SCALARS, VECTORS, AGPR0, SPARE0 = 128, 514, 256, 512
SPACES = {"none": 0, "scalar": 1, "vector": 2, "constant": 3, "status": 4, "label": 0}
EXEC_LO, VCC_LO = 126, 106


class Operand(ctypes.Structure):
    """An operand of machine.h."""

    _fields_ = [
        *((name, c_uint8) for name in ("space", "words", "neg", "abs", "sext", "sel", "half", "plain")),
        ("index", c_uint32),
        ("value", c_uint64),
        ("row", c_void_p),
    ]


class Instruction(ctypes.Structure):
    """An instruction of machine.h."""

    _fields_ = [
        ("handler", c_void_p),
        ("d", Operand),
        ("sd", Operand),
        ("s", Operand * 4),
        ("opcode", c_uint32),
        ("target", c_uint32),
        ("offset", c_int64),
        ("offset0", c_int32),
        ("offset1", c_int32),
        ("address", c_uint64),
        *(
            (name, c_uint8)
            for name in (
                "clamp", "omod", "op_sel", "op_sel_hi", "neg_lo", "neg_hi", "write", "plain_write",
                "dpp", "bound_ctrl", "fetch_inactive", "row_mask", "bank_mask", "dst_sel", "dst_unused", "addressing",
            )
        ),
        ("immediate", c_uint32),
        ("flags", c_uint32),
        ("dpp_lane", c_int8 * 64),
    ]  # fmt: skip


class Range(ctypes.Structure):
    """A span of memory that a kernel may touch."""

    _fields_ = [
        ("low", c_uint64),
        ("high", c_uint64),
        ("writable", c_uint32),
        ("pad", c_uint32),
        ("unset", c_void_p),
    ]


class Span(ctypes.Structure):
    """Neighbouring registers in the numbering of effects.py; `halves` that are meant: 1 low, 2 high, 3 both."""

    _fields_ = [("first", c_uint16), ("count", c_uint8), ("halves", c_uint8)]


class Effects(ctypes.Structure):
    """What an instruction does beside its result: see machine.h."""

    _fields_ = [
        ("spans", Span * 10),
        *(
            (name, c_uint8)
            for name in (
                "reads", "writes", "kind", "in_order", "waits", "scalar", "partial", "memory", "atomic", "high", "role",
                "data_words",
            )
        ),
        ("data", c_uint16),
        ("wait", c_uint8 * 6),
    ]  # fmt: skip


class FaultReport(ctypes.Structure):
    """Why a wave stopped."""

    _fields_ = [
        ("code", c_uint32),
        ("lane", c_uint32),
        ("wave", c_uint32),
        ("group", c_uint32 * 3),
        ("instruction", c_uint64),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("other", c_uint64),
        ("other_wave", c_uint32),
        ("detail", c_uint32),
    ]


class Launch(ctypes.Structure):
    """A launch of run.h."""

    _fields_ = [
        ("program", POINTER(Instruction)),
        ("counts", POINTER(c_uint64)),
        *((name, c_uint32) for name in ("length", "entry", "waves", "lds_bytes", "scratch_bytes", "vgprs")),
        ("grid", c_uint32 * 3),
        ("user_sgprs", c_uint32),
        ("user", c_uint32 * 32),
        *(
            (name, c_uint32)
            for name in (
                "ids_in_ttmp",
                "id_x",
                "id_y",
                "id_z",
                "wave_offset",
                "range_count",
                "item_ids",
            )
        ),
        *((name, c_uint64) for name in ("seed", "schedule", "limit", "code_base", "scratch_base")),
        ("ranges", POINTER(Range)),
        ("next", POINTER(c_uint64)),
        ("stop", POINTER(c_uint32)),
        ("executed", c_uint64),
        ("fault", FaultReport),
        ("trace", c_void_p),
        ("observer", c_void_p),
        ("effects", POINTER(Effects)),
        ("checks", c_uint64),
    ]


def _wave(lanes: int) -> type[ctypes.Structure]:
    class Wave(ctypes.Structure):
        """A wave of machine.h for one wavefront width. `v` is aligned to 64 bytes there: 512 bytes of `s` come before it."""

        _fields_ = [
            ("s", c_uint32 * SCALARS),
            ("v", (c_uint32 * lanes) * VECTORS),
            *((name, c_uint32) for name in ("scc", "state", "number", "pc")),
            ("executed", c_uint64),
            ("lds", c_void_p),
            ("scratch", c_void_p),
            ("lds_bytes", c_uint32),
            ("scratch_bytes", c_uint32),
            ("ranges", POINTER(Range)),
            ("range_count", c_uint32),
            ("hint", c_uint32),
            ("code_base", c_uint64),
            ("scratch_base", c_uint64),
            ("fault", POINTER(FaultReport)),
            ("observer", c_void_p),
            ("_tail", c_uint8 * 0),
        ]

    return Wave


WAVES: dict[int, Any] = {lanes: _wave(lanes) for lanes in (32, 64)}
TRACE = ctypes.CFUNCTYPE(None, c_void_p, c_uint32)


def wave_bytes(lanes: int) -> int:
    """The size of a wave in C: a multiple of its alignment."""
    return (ctypes.sizeof(WAVES[lanes]) + 63) // 64 * 64
