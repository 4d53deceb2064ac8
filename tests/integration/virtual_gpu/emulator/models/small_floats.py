"""Models of conversions of 8-bit floats: OCP's formats, as gfx1201 has them, from the tables of their numbers."""

from __future__ import annotations

import numpy as np

from tests.integration.virtual_gpu.coverage.formats import decode, encode
from tests.integration.virtual_gpu.emulator.models.floats import Model
from tests.integration.virtual_gpu.emulator.models.numbers import Array

U32, F32, F64 = np.uint32, np.float32, np.float64
KINDS = {"fp8": "fp8e4nv", "bf8": "fp8e5"}
LARGEST = {"fp8e4nv": 464.0, "fp8e5": 61440.0}
"""Half a unit beyond the largest number: from here on, and at a tie, the result is not finite."""


def _wide(kind: str) -> Model:
    return lambda x: decode((x & x.dtype.type(255)).astype(np.uint8), kind).astype(F32)


def _pair(kind: str) -> Model:
    def model(x: Array) -> Array:
        low, high = (
            decode((x >> np.uint16(n) & np.uint16(255)).astype(np.uint8), kind).astype(F32) for n in (0, 8)
        )
        return low.view(U32).astype(np.uint64) | high.view(U32).astype(np.uint64) << np.uint64(32)

    return model


def narrow(kind: str) -> Model:
    """Without saturation: E4M3 has no infinity, so what is beyond its largest number becomes NaN."""

    def one(x: Array) -> Array:
        stored = encode(x.astype(F64), kind)
        nan = np.isnan(x) | ((np.abs(x) > LARGEST[kind]) & (kind == "fp8e4nv"))
        return np.where(nan, np.where(np.signbit(x), 255, 127), stored).astype(np.uint16)

    return lambda a, b, *_: one(a) | one(b) << np.uint16(8)


MODELS: dict[str, Model] = {
    **{f"v_cvt_f32_{name}": _wide(kind) for name, kind in KINDS.items()},
    **{f"v_cvt_pk_f32_{name}": _pair(kind) for name, kind in KINDS.items()},
    **{f"v_cvt_pk_{name}_f32": narrow(kind) for name, kind in KINDS.items()},
}
