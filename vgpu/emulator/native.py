"""The interpreter's structures for ctypes.

Their sizes are compared with the compiled library's when it is loaded.
"""

import ctypes
from ctypes import POINTER, c_int8, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

SCALARS, VECTORS, AGPR0, SPARE0 = 128, 514, 256, 512
SPACES = {"none": 0, "scalar": 1, "vector": 2, "constant": 3, "status": 4, "label": 0}
EXEC_LO, VCC_LO = 126, 106


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Operand(ctypes.Structure):
    """An operand of machine.h."""

    _fields_ = [
        *_fields(c_uint8, "space words neg abs sext sel half plain"),
        ("index", c_uint32),
        ("value", c_uint64),
        ("row", c_void_p),
    ]


class Instruction(ctypes.Structure):
    """An instruction of machine.h."""

    _fields_ = [
        ("handler", c_void_p),
        *_fields(Operand, "d sd"),
        ("s", Operand * 5),
        *_fields(c_uint32, "opcode target"),
        ("offset", c_int64),
        *_fields(c_int32, "offset0 offset1"),
        ("address", c_uint64),
        *_fields(c_uint8, "clamp op_sel op_sel_hi neg_lo neg_hi write plain_write"),
        *_fields(c_uint8, "dpp bound_ctrl fetch_inactive row_mask bank_mask dst_sel dst_unused addressing"),
        *_fields(c_uint32, "immediate flags"),
        ("dpp_lane", c_int8 * 64),
    ]


class Range(ctypes.Structure):
    """A span of memory that a kernel may touch. `to_host` makes its addresses the host's (modulo 2**64)."""

    _fields_ = [
        *_fields(c_uint64, "low high to_host"),
        *_fields(c_uint32, "writable pad"),
        ("unset", c_void_p),
    ]


class Span(ctypes.Structure):
    """Neighbouring registers in effects.py's numbering; `halves` that are meant: 1 low, 2 high, 3 both."""

    _fields_ = [("first", c_uint16), *_fields(c_uint8, "count halves")]


class Effects(ctypes.Structure):
    """Effects of an instruction besides its result: see machine.h."""

    _fields_ = [
        ("spans", Span * 10),
        *_fields(c_uint8, "reads writes kind in_order waits scalar"),
        *_fields(c_uint8, "partial memory atomic high role data_words"),
        ("data", c_uint16),
        ("wait", c_uint8 * 6),
        ("coherence", c_uint8),
    ]


class FaultReport(ctypes.Structure):
    """Why a wave stopped."""

    _fields_ = [
        *_fields(c_uint32, "code lane wave"),
        ("group", c_uint32 * 3),
        *_fields(c_uint64, "instruction address bytes other"),
        *_fields(c_uint32, "other_wave detail"),
    ]


class Printed(ctypes.Structure):
    """What a lane has printed."""

    _fields_ = [
        ("user", c_void_p),
        ("group", c_uint32 * 3),
        *_fields(c_uint32, "wave lane error"),
        ("text", c_void_p),
        ("bytes", c_uint64),
    ]


class Launch(ctypes.Structure):
    """A launch of run.h."""

    _fields_ = [
        ("program", POINTER(Instruction)),
        ("counts", POINTER(c_uint64)),
        *_fields(c_uint32, "length entry waves lds_bytes scratch_bytes vgprs"),
        ("grid", c_uint32 * 3),
        *_fields(c_uint32, "user_sgprs user_values"),
        ("user", c_uint32 * 32),
        *_fields(c_uint32, "ids_in_ttmp id_x id_y id_z wave_offset range_count item_ids"),
        *_fields(c_uint64, "seed schedule limit code_base scratch_base"),
        ("ranges", POINTER(Range)),
        ("next", POINTER(c_uint64)),
        ("stop", POINTER(c_uint32)),
        ("executed", c_uint64),
        ("fault", FaultReport),
        *_fields(c_void_p, "trace observer"),
        ("effects", POINTER(Effects)),
        ("checks", c_uint64),
        ("first_address", c_int64),
        *_fields(c_void_p, "host_buffer print print_user host"),
    ]


def _wave(lanes: int) -> type[ctypes.Structure]:
    class Wave(ctypes.Structure):
        """A wave of machine.h; `v` is aligned to 64 bytes there: 512 bytes of `s` come before it."""

        _fields_ = [
            ("s", c_uint32 * SCALARS),
            ("v", (c_uint32 * lanes) * VECTORS),
            *_fields(c_uint32, "scc state number pc"),
            ("executed", c_uint64),
            *_fields(c_void_p, "lds scratch"),
            *_fields(c_uint32, "lds_bytes scratch_bytes"),
            ("ranges", POINTER(Range)),
            *_fields(c_uint32, "range_count hint"),
            *_fields(c_uint64, "code_base scratch_base"),
            ("fault", POINTER(FaultReport)),
            *_fields(c_void_p, "observer job"),
            ("mode", c_uint32),
            ("group", c_uint32 * 3),
            ("_tail", c_uint8 * 0),
        ]

    return Wave


WAVES: dict[int, Any] = {lanes: _wave(lanes) for lanes in (32, 64)}
PRINT = ctypes.CFUNCTYPE(None, POINTER(Printed))
TRACE = ctypes.CFUNCTYPE(None, c_void_p, c_uint32)


def sizes(lanes: int) -> tuple[int, int, int, int]:
    """What an interpreter must agree on: sizes of its structures, and its lanes."""
    return ctypes.sizeof(Instruction), wave_bytes(lanes), ctypes.sizeof(Launch), lanes


def wave_bytes(lanes: int) -> int:
    """The size of a wave in C: a multiple of its alignment."""
    return (ctypes.sizeof(WAVES[lanes]) + 63) // 64 * 64
