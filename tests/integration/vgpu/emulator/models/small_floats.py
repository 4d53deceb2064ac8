"""Models of conversions of 8-bit floats: OCP's formats, as gfx1201 has them, from the tables of their
numbers."""

from __future__ import annotations

import numpy as np

from tests.integration.vgpu.coverage.formats import decode, encode
from tests.integration.vgpu.emulator.models.floats import Model, bf16
from tests.integration.vgpu.emulator.models.numbers import Array

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

    def narrowed(x: Array) -> Array:
        infinite = np.abs(x) >= LARGEST[kind]
        stored = encode(np.where(infinite, np.copysign(np.inf, x), x.astype(F64)), kind)
        nan = np.isnan(x) | ((np.abs(x) > LARGEST[kind]) & (kind == "fp8e4nv"))
        return np.where(nan, np.where(np.signbit(x), 255, 127), stored).astype(np.uint16)

    return lambda a, b, *_: narrowed(a) | narrowed(b) << np.uint16(8)


def _scale(x: Array) -> Array:
    """The power of two in a float's exponent, of which 255 is NaN (E8M0)."""
    e = (x.view(U32) >> U32(23) & U32(255)).astype(np.int64)
    return np.where(e == 255, np.nan, np.ldexp(1.0, e - 127))


def _halves(x: Array, kind: str) -> tuple[Array, Array]:
    low, high = (x >> U32(n) & U32(0xFFFF) for n in (0, 16))
    if kind == "bf16":
        return (low << U32(16)).view(F32), (high << U32(16)).view(F32)
    halves = (half.astype(np.uint16).view(np.float16).astype(F32) for half in (low, high))
    return tuple(halves)  # type: ignore[return-value]


FP4 = np.array([sign * size for sign in (1, -1) for size in (0.0, 0.5, 1, 1.5, 2, 3, 4, 6)])
"""E2M1's numbers by their bits."""


def _numbers(x: Array, kind: str) -> tuple[Array, Array]:
    """The two numbers in a register: of 8 bits each, or of 4."""
    if kind == "fp4":
        return FP4[x & U32(15)], FP4[x >> U32(4) & U32(15)]
    low, high = (decode((x >> np.uint16(n) & np.uint16(255)).astype(np.uint8), kind) for n in (0, 8))
    return low, high


def _scaled_pair(kind: str, to: str) -> Model:
    """In float32 first, as hardware's wider formats are."""

    def model(x: Array, s: Array) -> Array:
        with np.errstate(all="ignore"):
            low, high = ((number * _scale(s)).astype(F32) for number in _numbers(x, kind))
            if to == "f32":
                return low.view(U32).astype(np.uint64) | high.view(U32).astype(np.uint64) << np.uint64(32)
            if to == "bf16":
                words = [bf16(one).astype(U32) for one in (low, high)]
            else:
                words = [one.astype(np.float16).view(np.uint16).astype(U32) for one in (low, high)]
        return np.asarray(words[0] | words[1] << U32(16))

    return model


def _divided(x: Array, s: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(x.astype(F64) / _scale(s)).astype(F32)


MODELS: dict[str, Model] = {
    **{f"v_cvt_f32_{name}": _wide(kind) for name, kind in KINDS.items()},
    **{f"v_cvt_pk_f32_{name}": _pair(kind) for name, kind in KINDS.items()},
    **{f"v_cvt_pk_{name}_f32": narrow(kind) for name, kind in KINDS.items()},
    **{
        f"v_cvt_scalef32_pk_{to}_{name}": _scaled_pair(kind, to)
        for name, kind in {**KINDS, "fp4": "fp4"}.items()
        for to in ("f32", "f16", "bf16")
    },
    **{
        f"v_cvt_scalef32_pk_{name}_f32": lambda a, b, s, *_, kind=kind: narrow(kind)(
            _divided(a, s), _divided(b, s)
        )
        for name, kind in KINDS.items()
    },
    **{
        f"v_cvt_scalef32_pk_{name}_{half}": lambda x, s, *_, kind=kind, half=half: narrow(kind)(
            *(_divided(one, s) for one in _halves(x, half))
        )
        for name, kind in KINDS.items()
        for half in ("f16", "bf16")
    },
}
