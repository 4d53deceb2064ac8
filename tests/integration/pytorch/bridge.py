"""Structures of the bridge (tests/fixtures/pytorch_bridge.cpp) for ctypes."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32, c_uint64, c_void_p


class BridgeTensor(ctypes.Structure):
    """`Tensor` of the bridge."""

    _fields_ = [
        ("base", c_uint64), ("sizes", c_uint64 * 4), ("strides", c_uint64 * 4), ("dtype", c_int32), ("given", c_int32),
    ]  # fmt: skip


_TENSORS = (
    *("Q", "K", "V", "B", "Out", "DO", "DQ", "DK", "DV", "DB", "L", "D", "encoded_softmax"),
    *("lengths_q", "lengths_k", "positions_q", "positions_k"),
    *("seed", "offset1", "seed_output", "offset_output", "counter"),
)
_NUMBERS = (
    *("masked", "window_left", "window_right"),
    *("longest_q", "longest_k", "word", "deterministic", "acquired"),
)


class BridgeCall(ctypes.Structure):
    """`Call` of the bridge."""

    _fields_ = [
        *((name, BridgeTensor) for name in _TENSORS),
        ("offset2", c_uint64), ("sm_scale", c_float), ("dropout_p", c_float),
        *((name, c_int32) for name in _NUMBERS),
        ("stream", c_void_p),
    ]  # fmt: skip
