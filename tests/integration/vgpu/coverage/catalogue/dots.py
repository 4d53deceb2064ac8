"""Matrix products of every type, shape and option."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.feature import Feature, Tensor, generator, given, out
from tests.integration.vgpu.coverage.formats import FP8, Array, decode

_GROUP = "matrix products"


def _operand(name: str, kind: str, size: int) -> Tensor:
    """Small integers and halves: products and sums are exact in every type."""
    numbers = generator(name).integers(-3, 4, size)
    if kind in {"fp16", "bf16", "fp32", "fp64"}:
        return given(kind, numbers + generator(name + " more").integers(0, 2, size) / 2)
    return given(kind, numbers)


def dot(
    name: str,
    a: str,
    b: str,
    result: str,
    *,
    shape: tuple[int, int, int] = (32, 32, 32),
    call: str = "tl.dot(a, b)",
    **options: Any,
) -> Feature:
    """o = a b for M x K by K x N; sides differ where they may, so that a transposition shows."""
    m, n, k = shape
    body = f"""
m = tl.arange(0, {m})
n = tl.arange(0, {n})
k = tl.arange(0, {k})
a = tl.load(x + m[:, None] * {k} + k[None, :])
b = tl.load(y + k[:, None] * {n} + n[None, :])
tl.store(o + m[:, None] * {n} + n[None, :], {call})
"""
    tensors = {
        "x": _operand(name + " a", a, m * k),
        "y": _operand(name + " b", b, k * n),
        "o": out(result, m * n),
    }
    return Feature(
        name=name,
        group=_GROUP,
        body=body,
        tensors=tensors,
        reference=lambda x, y: x.astype(np.float64).reshape(m, k) @ y.astype(np.float64).reshape(k, n),
        options=options,
    )


def _batched(kind: str) -> Feature:
    body = """
p = tl.arange(0, 4)[:, None, None] * 1024
r = tl.arange(0, 32)
i = p + r[None, :, None] * 32 + r[None, None, :]
tl.store(o + i, tl.dot(tl.load(x + i), tl.load(y + i)))
"""
    tensors = {
        "x": _operand("batch a", kind, 4096),
        "y": _operand("batch b", kind, 4096),
        "o": out("fp32", 4096),
    }
    return Feature(name=f"3D {kind}", group=_GROUP, body=body, tensors=tensors,
                   reference=lambda x, y: x.reshape(4, 32, 32) @ y.reshape(4, 32, 32))  # fmt: skip


def _accumulated(kind: str, options: dict[str, Any], name: str) -> Feature:
    """A loop over k, accumulating: software pipelining applies."""
    body = """
m = tl.arange(0, 64)
n = tl.arange(0, 64)
k = tl.arange(0, 32)
c = tl.zeros((64, 64), tl.float32)
for at in range(0, size, 32):
    a = tl.load(x + m[:, None] * size + (at + k)[None, :])
    b = tl.load(y + (at + k)[:, None] * 64 + n[None, :])
    c = tl.dot(a, b, c)
tl.store(o + m[:, None] * 64 + n[None, :], c)
"""
    tensors = {
        "x": _operand("loop a", kind, 64 * 128),
        "y": _operand("loop b", kind, 128 * 64),
        "o": out("fp32", 4096),
    }
    return Feature(name=f"loop {kind}, {name}", group=_GROUP, body=body, tensors=tensors,
        values={"size": ("i32", 128)},
                   reference=lambda x, y: x.reshape(64, 128) @ y.reshape(128, 64),
                       options=options)  # fmt: skip


def _chained(kind: str) -> Feature:
    """The first product's layout becomes an operand's, as in attention."""
    body = f"""
r = tl.arange(0, 32)
i = r[:, None] * 32 + r[None, :]
s = tl.dot(tl.load(x + i), tl.trans(tl.load(y + i)))
tl.store(o + i, tl.dot((s * 0.125).to(tl.{kind}), tl.load(x + i)))
"""
    short = {"float16": "fp16", "bfloat16": "bf16"}[kind]
    numbers = generator("chain").integers(-1, 2, (2, 1024)) * 2

    def reference(x: Array, y: Array) -> Array:
        a, b = x.reshape(32, 32), y.reshape(32, 32)
        return np.asarray((a @ b.T * 0.125) @ a)

    tensors = {"x": given(short, numbers[0]), "y": given(short, numbers[1]), "o": out("fp32", 1024)}
    return Feature(
        name=f"chain of two {short}", group=_GROUP, body=body, tensors=tensors, reference=reference
    )


def _scaled(a: str, b: str) -> Feature:
    """Blocks of 32 elements along k have a power of two each (OCP's microscaling formats); e2m1 has two
    elements in a byte."""
    pack = {"e2m1": 2}
    factors = [scale if kind in {"e4m3", "e5m2", "e2m1"} else "None" for kind, scale in ((a, "p"), (b, "q"))]
    body = f"""
r = tl.arange(0, 32)
ka = tl.arange(0, {128 // pack.get(a, 1)})
kb = tl.arange(0, {128 // pack.get(b, 1)})
s = tl.arange(0, 4)
left = tl.load(x + r[:, None] * {128 // pack.get(a, 1)} + ka[None, :])
right = tl.load(y + kb[:, None] * 32 + r[None, :])
p = tl.load(xs + r[:, None] * 4 + s[None, :])
q = tl.load(ys + r[:, None] * 4 + s[None, :])
d = tl.dot_scaled(left, {factors[0]}, "{a}", right, {factors[1]}, "{b}")
tl.store(o + r[:, None] * 32 + r[None, :], d)
"""
    rng = generator(f"scaled {a} {b}")

    def stored(kind: str, along: int) -> tuple[Tensor, Array]:
        """The bytes, and the 32 x 128 or 128 x 32 numbers."""
        shape = (32, 128) if along else (128, 32)
        if kind == "e2m1":
            codes = rng.integers(0, 16, shape)
            table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
            numbers = np.where(codes & 8, -1, 1) * table[codes & 7]
            low, high = (codes[:, ::2], codes[:, 1::2]) if along else (codes[::2], codes[1::2])
            return given("u8", low | high << 4), numbers
        kind_ = {"e4m3": "fp8e4nv", "e5m2": "fp8e5", "fp16": "fp16", "bf16": "bf16"}[kind]
        tensor = given(kind_, rng.integers(-4, 5, shape))
        assert tensor.stored is not None
        return tensor, decode(tensor.stored, kind_).reshape(shape)

    (x, left), (y, right) = stored(a, 1), stored(b, 0)
    scales = rng.integers(125, 130, (2, 32, 4))

    def reference(*_: Array) -> Array:
        powers = np.ldexp(1.0, scales - 127)
        powers[[name == "None" for name in factors]] = 1
        return np.asarray((left * np.repeat(powers[0], 32, 1)) @ (right * np.repeat(powers[1], 32, 1).T))

    tensors = {
        "x": x,
        "y": y,
        "xs": given("u8", scales[0]),
        "ys": given("u8", scales[1]),
        "o": out("fp32", 1024),
    }
    return Feature(name=f"dot_scaled {a} {b}", group=_GROUP, body=body, tensors=tensors, reference=reference)


def _kinds() -> tuple[tuple[str, str], ...]:
    floats = (("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp32"), ("fp64", "fp64"), ("i8", "i32"))
    return (*floats, *((kind, "fp32") for kind in FP8))


FEATURES = (
    *(dot(f"dot {kind}, 32x32x32", kind, kind, result) for kind, result in _kinds()),
    *(dot(f"dot {kind}, 16x64x32", kind, kind, result, shape=(16, 64, 32), num_warps=1) for kind,
        result in _kinds()),
    *(dot(f"dot {kind}, 64x128x64, 8 warps", kind, kind, result, shape=(64, 128, 64), num_warps=8) for kind,
        result in _kinds()),
    *(dot(f"dot {kind}, instructions of 16 rows", kind, kind, result, shape=(64, 32, 64),
        matrix_instr_nonkdim=16) for kind, result in _kinds()),
    *(dot(f"dot {a} by {b}", a, b, "fp32", shape=(32, 64, 64)) for a,
        b in (("fp8e5", "fp8e4nv"), ("fp8e4nv", "fp8e5"), ("fp8e4b8", "fp8e5b16"))),
    *(dot(f"dot {kind}, kpack 2", kind, kind, result, shape=(32, 32, 64), kpack=2) for kind,
        result in (("fp16", "fp32"), ("i8", "i32"))),
    *(dot(f"dot {kind}, {m}x{n}x{k}", kind, kind, "fp32", shape=(m, n, k), num_warps=1)
      for kind in ("fp16", "bf16", "fp32") for m, n, k in ((4, 64, 64), (64, 4, 64), (8, 8, 16), (16, 16, 16),
          (1, 32, 32))),
    *(dot(f"dot {kind}, input_precision={precision}", kind, kind, "fp32",
        call=f'tl.dot(a, b, input_precision="{precision}")')
      for kind in ("fp32",) for precision in ("ieee", "tf32", "bf16x3", "bf16x6")),
    dot("dot fp16, fp16 result", "fp16", "fp16", "fp16", call="tl.dot(a, b, out_dtype=tl.float16)"),
    dot("dot fp16, with an accumulator", "fp16", "fp16", "fp32",
        call="tl.dot(a, b, tl.full((32, 32), 1.0, tl.float32)) - 1"),
    dot("dot i8, with an accumulator", "i8", "i8", "i32",
        call="tl.dot(a, b, tl.full((32, 32), 9, tl.int32)) - 9"),
    dot("dot of a transposed operand fp16", "fp16", "fp16", "fp32",
        call="tl.trans(tl.dot(tl.trans(b), tl.trans(a)))"),
    dot("dot of a transposed operand i8", "i8", "i8", "i32",
        call="tl.trans(tl.dot(tl.trans(b), tl.trans(a)))"),
    dot("dot of i8 converted to fp16", "i8", "fp16", "fp32", call="tl.dot(a.to(tl.float16), b)"),
    *(_batched(kind) for kind in ("fp16", "fp32")),
    *(_accumulated("fp16", {"num_stages": stages, "num_warps": warps}, f"{stages} stages, {warps} warps")
      for stages, warps in ((1, 4), (2, 4), (3, 4), (4, 8), (2, 1))),
    *(_accumulated(kind, {"num_stages": 2}, "2 stages") for kind in ("bf16", "fp32", "fp8e5")),
    _accumulated("fp16", {"num_stages": 2, "schedule_hint": "attention"}, "attention's schedule"),
    *(_chained(kind) for kind in ("float16", "bfloat16")),
    *(_scaled(a, b) for a, b in (("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e2m1", "e2m1"), ("e4m3", "e2m1"),
        ("bf16", "e4m3"), ("fp16", "e2m1"))),
)  # fmt: skip
