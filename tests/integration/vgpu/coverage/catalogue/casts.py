"""Casts between all pairs of types, 8-bit floats among them, and bit casts."""

from __future__ import annotations

import numpy as np

from tests.integration.vgpu.coverage.feature import (
    Feature,
    Tensor,
    bits,
    elementwise,
    generator,
    given,
    out,
)
from tests.integration.vgpu.coverage.formats import (
    FLOATS,
    FP8,
    INTEGERS,
    LANGUAGE,
    Array,
    decode,
    rounded,
    storage,
)


def _source(name: str, kind: str, to: str) -> Tensor:
    """Numbers that the cast has a defined result for: any integers, floats within the range of an integer
    type."""
    rng = generator(name)
    if kind == "i1":
        return given(kind, rng.integers(0, 2, 256))
    if kind in INTEGERS:
        limits = np.iinfo(storage(kind))
        low, high = int(limits.min), int(limits.max)
        if to in FLOATS:  # exact in float32, which the compiler may go through
            low, high = max(low, -60000), min(high, 60000)
        return given(kind, rng.integers(low, high, 256, endpoint=True, dtype=storage(kind)))
    numbers = rng.standard_normal(256) * 40
    numbers[:4] = 0.0, -0.5, 0.25, 1.0
    if to in INTEGERS:
        numbers = np.clip(np.abs(numbers) if to.startswith("u") else numbers, -127, 127)
    return given(kind, numbers)


def _result(x: Array, kind: str, to: str) -> Array:
    if to == "i1":
        return np.asarray((x != 0).astype(np.uint8))
    if to in INTEGERS:
        return np.asarray(np.trunc(x).astype(np.int64) if kind in FLOATS else x).astype(storage(to))
    return rounded(x, to)


def _casts(kind: str, name: str, types: tuple[str, ...]) -> Feature:
    """From one type to several, an input and an output each."""
    to = [one for one in types if one != kind]
    tensors = {f"x{k}": _source(f"{kind} to {one}", kind, one) for k, one in enumerate(to)}
    lines = [f"tl.store(o{k} + i, tl.load(x{k} + i).to(tl.{LANGUAGE[one]}))" for k, one in enumerate(to)]
    return Feature(
        name=f"{kind} to {name}",
        group="casts",
        body="\n".join(["i = tl.arange(0, 256)", *lines]),
        tensors=tensors | {f"o{k}": out(one) for k, one in enumerate(to)},
        reference=lambda *x: tuple(_result(numbers, kind, one) for numbers, one in zip(x, to, strict=True)),
    )


def _finite(kind: str) -> Array:
    patterns = np.arange(256, dtype=np.uint8)
    return np.where(np.isfinite(decode(patterns, kind)), patterns, 0).astype(np.uint8)


def _small(kind: str, other: str) -> tuple[Feature, Feature]:
    """From an 8-bit float, every finite number, and to it, among its numbers and between them."""
    name = f"{other} to {kind}"
    rng = generator(name)
    near = rng.standard_normal(256) * 2.0 ** rng.integers(-10, 5, 256)
    return (
        elementwise(
            f"{kind} to {other}",
            "casts of 8-bit floats",
            f"x.to(tl.{LANGUAGE[other]})",
            other,
            {"x": bits(kind, _finite(kind))},
            lambda x: rounded(x, other),
        ),
        elementwise(
            name,
            "casts of 8-bit floats",
            f"x.to(tl.{LANGUAGE[kind]})",
            kind,
            {"x": given(other, near)},
            lambda x: rounded(x, kind),
        ),
    )


def _bit_cast(kind: str, to: str) -> Feature:
    name = f"{kind} to {to} by bits"
    source = generator(name).integers(0, 255, 256 * storage(kind).itemsize, dtype=np.uint8)
    if kind in FLOATS:
        source &= 0x3F  # no NaN
    tensor = bits(kind, source)
    assert tensor.stored is not None
    patterns = tensor.stored.view(storage(to))
    return elementwise(
        name, "casts", f"x.to(tl.{LANGUAGE[to]}, bitcast=True)", to, {"x": tensor}, lambda x: patterns
    )


def _toward_zero(x: Array) -> Array:
    near = x.astype(np.float16)
    past = np.abs(near.astype(np.float64)) > np.abs(x)
    return np.where(past, np.nextafter(near, np.float16(0)), near).astype(np.float64)


FEATURES = (
    *(_casts(kind, "integers", ("i1", *INTEGERS)) for kind in (*INTEGERS, *FLOATS)),
    *(_casts(kind, "floats", FLOATS) for kind in ("i1", *INTEGERS, *FLOATS)),
    _casts("i1", "integers", INTEGERS),
    *(feature for kind in FP8 for other in ("fp16", "bf16", "fp32") for feature in _small(kind, other)),
    *(_bit_cast(kind, to) for kind, to in (("fp32", "i32"), ("i64", "fp64"), ("fp16", "i16"), ("i8", "u8"))),
    elementwise(
        "fp32 to fp16 toward zero",
        "casts",
        'x.to(tl.float16, fp_downcast_rounding="rtz")',
        "fp16",
        {"x": given("fp32", generator("rtz").standard_normal(256))},
        _toward_zero,
    ),
)
