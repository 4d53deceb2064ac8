"""Complete small kernels of the kinds that are written most: softmax, products, normalisation, dropout,
attention, quantisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.catalogue.random_numbers import philox, uniform
from tests.integration.vgpu.coverage.feature import (
    Feature,
    Tensor,
    generator,
    given,
    integers,
    normal,
    out,
)
from tests.integration.vgpu.coverage.formats import EPSILON, Array

_GROUP = "complete kernels"


def _program(
    name: str, body: str, tensors: dict[str, Tensor], reference: Callable[..., Any], **more: Any
) -> Feature:
    return Feature(name=name, group=_GROUP, body=body, tensors=tensors, reference=reference, **more)


def _softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


_ADD = """
at = tl.program_id(0) * 128 + tl.arange(0, 128)
tl.store(o + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
"""
_ROWS = """
c = tl.arange(0, 128)
for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
    v = tl.load(x + row * columns + c, mask=c < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * columns + c, e / tl.sum(e, 0), mask=c < columns)
"""
_PRODUCT = """
p = tl.program_id(0)
across = tl.cdiv(n, 32)
down = tl.cdiv(m, 32)
group = p // (2 * across)
height = min(down - group * 2, 2)
pm = group * 2 + p % (2 * across) % height
pn = p % (2 * across) // height
rm = pm * 32 + tl.arange(0, 32)
rn = pn * 32 + tl.arange(0, 32)
rk = tl.arange(0, 32)
c = tl.zeros((32, 32), tl.float32)
for at in range(0, k, 32):
    at_k = at + rk
    a = tl.load(x + rm[:, None] * k + at_k[None, :], mask=(rm[:, None] < m) & (at_k[None, :] < k), other=0.0)
    b = tl.load(y + at_k[:, None] * n + rn[None, :], mask=(at_k[:, None] < k) & (rn[None, :] < n), other=0.0)
    c += tl.dot(a, b)
c = tl.where(c > 0, c, c * 0.01)
tl.store(o + rm[:, None] * n + rn[None, :], c, mask=(rm[:, None] < m) & (rn[None, :] < n))
"""
_DESCRIBED = """
da = tl.make_tensor_descriptor(x, shape=[m, k], strides=[k, 1], block_shape=[32, 32])
db = tl.make_tensor_descriptor(y, shape=[k, n], strides=[n, 1], block_shape=[32, 32])
dc = tl.make_tensor_descriptor(o, shape=[m, n], strides=[n, 1], block_shape=[32, 32])
across = tl.cdiv(n, 32)
for tile in range(tl.program_id(0), tl.cdiv(m, 32) * across, tl.num_programs(0)):
    pm = tile // across * 32
    pn = tile % across * 32
    c = tl.zeros((32, 32), tl.float32)
    for at in range(0, k, 32):
        c = tl.dot(da.load([pm, at]), db.load([at, pn]), c)
    dc.store([pm, pn], c)
"""
_SPLIT = """
r = tl.arange(0, 32)
rk = tl.program_id(0) * 32 + r
a = tl.load(x + r[:, None] * 128 + rk[None, :])
b = tl.load(y + rk[:, None] * 32 + r[None, :])
tl.atomic_add(o + r[:, None] * 32 + r[None, :], tl.dot(a, b))
"""
_GROUPED = """
for g in range(tl.program_id(0), 3, tl.num_programs(0)):
    size = tl.load(sizes + g)
    r = tl.arange(0, 32)
    k = tl.arange(0, 16)
    c = tl.zeros((32, 32), tl.float32)
    for at in range(0, size, 16):
        t = tl.load(x + g * 2048 + r[:, None] * 64 + (at + k)[None, :])
        c += tl.dot(t, tl.trans(t))
    tl.store(o + g * 1024 + r[:, None] * 32 + r[None, :], c)
"""
_NORM = """
row = tl.program_id(0)
c = tl.arange(0, 128)
v = tl.load(x + row * n + c, mask=c < n, other=0.0).to(tl.float32)
mean = tl.sum(v, 0) / n
d = tl.where(c < n, v - mean, 0.0)
scale = tl.rsqrt(tl.sum(d * d, 0) / n + 1e-5)
tl.store(means + row, mean)
tl.store(scales + row, scale)
y = d * scale * tl.load(w + c, mask=c < n) + tl.load(b + c, mask=c < n)
tl.store(o + row * n + c, y.to(o.dtype.element_ty), mask=c < n)
"""
_NORM_GRADIENT = """
row = tl.program_id(0)
c = tl.arange(0, 64)
v = tl.load(x + row * 64 + c)
g = tl.load(dy + row * 64 + c)
while tl.atomic_cas(locks + row % 2, 0, 1) == 1:
    pass
first = tl.atomic_xchg(locks + 2 + row % 2, 1) == 0
sum_ = g * v
if not first:
    sum_ += tl.load(o + row % 2 * 64 + c)
tl.store(o + row % 2 * 64 + c, sum_)
tl.debug_barrier()
tl.atomic_xchg(locks + row % 2, 0)
"""
_DROPOUT = """
i = tl.program_id(0) * 128 + tl.arange(0, 128)
v = tl.load(x + i)
tl.store(o + i, tl.where(tl.rand(seed, i) > p, v / (1 - p), 0.0))
"""
_ATTENTION = """
start = tl.program_id(0) * 32
d = tl.arange(0, 32)
rm = start + tl.arange(0, 32)
query = tl.load(q + rm[:, None] * 32 + d[None, :])
top = tl.full((32,), -float("inf"), tl.float32)
total = tl.zeros((32,), tl.float32)
acc = tl.zeros((32, 32), tl.float32)
for at in range(0, start + 32 if CAUSAL else 96, 32):
    rn = at + tl.arange(0, 32)
    key = tl.load(k + rn[None, :] * 32 + d[:, None])
    s = tl.dot(query, key) * 0.25
    if CAUSAL:
        s = tl.where(rm[:, None] >= rn[None, :], s, -float("inf"))
    new = tl.maximum(top, tl.max(s, 1))
    e = tl.math.exp2(s - new[:, None])
    keep = tl.math.exp2(top - new)
    total = total * keep + tl.sum(e, 1)
    value = tl.load(v + rn[:, None] * 32 + d[None, :])
    acc = tl.dot(e.to(value.dtype), value, acc * keep[:, None])
    top = new
tl.store(o + rm[:, None] * 32 + d[None, :], (acc / total[:, None]).to(o.dtype.element_ty))
"""
_QUANTISED = """
r = tl.arange(0, 32)
i = r[:, None] * 32 + r[None, :]
w = tl.load(y + i)
scale = tl.load(s + r)
tl.store(o + i, tl.dot(tl.load(x + i), w.to(tl.float16) * scale[None, :]))
"""
_NIBBLES = """
r = tl.arange(0, 32)
h = tl.arange(0, 16)
packed = tl.load(y + h[:, None] * 32 + r[None, :])
w = tl.join(packed & 15, packed >> 4).permute(0, 2, 1).reshape(32, 32)
a = tl.load(x + r[:, None] * 32 + r[None, :])
tl.store(o + r[:, None] * 32 + r[None, :], tl.dot(a, (w.to(tl.int8) - 8).to(tl.float16)))
"""
_QUANTISE = """
row = tl.program_id(0)
c = tl.arange(0, 64)
v = tl.load(x + row * 64 + c)
scale = tl.max(tl.abs(v), 0) / 127.0
tl.store(scales + row, scale)
tl.store(o + row * 64 + c, libdevice.rint(v / scale).to(tl.int8))
"""
_ENTROPY = """
row = tl.program_id(0)
c = tl.arange(0, 64)
v = tl.load(x + row * 64 + c).to(tl.float32)
label = tl.load(labels + row)
top = tl.max(v, 0)
tl.store(o + row, tl.log(tl.sum(tl.exp(v - top), 0)) + top - tl.load(x + row * 64 + label).to(tl.float32))
"""
_ROTARY = """
row = tl.program_id(0)
h = tl.arange(0, 16)
a = tl.load(x + row * 32 + h)
b = tl.load(x + row * 32 + 16 + h)
angle = row * tl.exp(-h.to(tl.float32) * 0.5)
tl.store(o + row * 32 + h, a * tl.cos(angle) - b * tl.sin(angle))
tl.store(o + row * 32 + 16 + h, b * tl.cos(angle) + a * tl.sin(angle))
"""
_EMBEDDING = """
row = tl.program_id(0)
c = tl.arange(0, 32)
at = tl.load(index + row)
tl.store(o + row * 32 + c, tl.load(x + at * 32 + c))
tl.atomic_add(count + at * 32 + c, 1.0)
"""


def _leaky(x: Array) -> Array:
    return np.where(x > 0, x, x * 0.01)


def _layer_norm(x: Array, w: Array, b: Array, columns: int) -> tuple[Array, ...]:
    t = x.reshape(-1, columns)
    mean = t.mean(1)
    scale = 1 / np.sqrt(t.var(1) + 1e-5)
    return (t - mean[:, None]) * scale[:, None] * w + b, mean, scale


_XF32 = 1e-3
"""gfx942's float32 products have 10 bits of mantissa by default."""


def _attention(kind: str, causal: bool) -> Feature:
    tensors = {name: given(kind, normal(f"attention {name}", 96 * 32, 1.0)) for name in "qkv"}

    def reference(q: Array, k: Array, v: Array) -> Array:
        q, k, v = (t.reshape(96, 32) for t in (q, k, v))
        s = q @ k.T * 0.25 * np.log(2)
        return _softmax(np.where(np.tril(np.ones((96, 96))) > 0, s, -np.inf) if causal else s) @ v

    return _program(f"attention {kind}{', causal' if causal else ''}", _ATTENTION,
        {**tensors, "o": out(kind, 96 * 32)}, reference,
                    constants={"CAUSAL": causal}, grid=(3, 1, 1),
                        tolerance=max(6 * EPSILON[kind], _XF32))  # fmt: skip


def _matmul(
    kind: str,
    body: str,
    name: str,
    shape: tuple[int, int, int],
    programs: int,
    reference: Callable[[Array], Array],
) -> Feature:
    m, n, k = shape
    rng = generator(name)
    tensors = {
        "x": given(kind, rng.integers(-4, 5, m * k)),
        "y": given(kind, rng.integers(-4, 5, k * n)),
        "o": out("fp32", m * n),
    }
    return _program(f"{name} {kind}", body, tensors, lambda x,
        y: reference(x.reshape(m, k) @ y.reshape(k, n)), grid=(programs, 1, 1),
                    values={"m": ("i32", m), "n": ("i32", n), "k": ("i32", k)}, tolerance=1e-6)  # fmt: skip


_SEED, _P = 1234, 0.4
FEATURES = (
    *(_program(f"vector add {kind}", _ADD, {"x": given(kind, integers("add x", 0, 50, 300)), "y": given(kind,
        integers("add y", 0, 50, 300)),
               "o": out(kind, 300)}, lambda x, y: x + y, values={"n": ("i32", 300)},
                   grid=(3, 1, 1)) for kind in ("fp32", "fp16", "i64")),
    *(_program(f"softmax of rows, persistent {kind}", _ROWS,
        {"x": given(kind, normal("rows", 700)), "o": out("fp32", 700)},
               lambda x: _softmax(x.reshape(7, 100)), values={"rows": ("i32", 7), "columns": ("i32", 100)},
                   grid=(3, 1, 1), tolerance=1e-6)
      for kind in ("fp32", "bf16")),
    *(_matmul(kind, _PRODUCT, "matmul in groups with leaky relu", (50, 70, 40), 6,
        _leaky) for kind in ("fp16", "bf16", "fp32")),
    *(_matmul(kind, _DESCRIBED, "matmul by descriptors, persistent", (48, 64, 64), 2,
        lambda c: c) for kind in ("fp16", "fp32", "fp8e5")),
    _program("matmul, k split by atomics", _SPLIT, {"x": given("fp16", integers("split x", -4, 5, 32 * 128)),
             "y": given("fp16", integers("split y", -4, 5, 128 * 32)),
                 "o": given("fp32", [0] * 1024, written=True)},
             lambda x, y, o: x.reshape(32, 128) @ y.reshape(128, 32), grid=(4, 1, 1)),
    _program("products of several sizes", _GROUPED,
             {"x": given("fp16", integers("grouped", -3, 4, 3 * 2048)), "sizes": given("i32", [16, 64, 32]),
                 "o": out("fp32", 3072)},
             lambda x, sizes: np.stack([t[:, :s] @ t[:, :s].T for t,
                 s in zip(x.reshape(3, 32, 64), sizes, strict=True)]), grid=(2, 1, 1)),
    *(_program(f"layer norm {kind}", _NORM, {"x": given(kind, normal("norm x", 500)), "w": given("fp32",
        normal("norm w", 100)),
               "b": given("fp32", normal("norm b", 100)), "o": out(kind, 500), "means": out("fp32", 5),
                   "scales": out("fp32", 5)},
               lambda x, w, b: _layer_norm(x, w, b, 100), values={"n": ("i32", 100)}, grid=(5, 1, 1),
                   tolerance=2 * EPSILON[kind] + 1e-6)
      for kind in ("fp32", "fp16")),
    _program("gradients under locks", _NORM_GRADIENT,
        {"x": given("fp32", normal("lock x", 384)), "dy": given("fp32", normal("lock dy", 384)),
             "locks": given("i32", [0] * 4, written=True), "o": given("fp32", [0] * 128, written=True)},
             lambda x, dy, locks, o: (np.array([0, 0, 1, 1]), (x * dy).reshape(3, 2, 64).sum(0)),
                 grid=(6, 1, 1), tolerance=1e-5),
    _program("dropout by a seed", _DROPOUT, {"x": given("fp32", normal("dropout")), "o": out("fp32")},
             lambda x: np.where(uniform(philox(_SEED, 256)[0]) > np.float32(_P), x / (1 - _P), 0),
                 values={"seed": ("i32", _SEED), "p": ("fp32", _P)},
             grid=(2, 1, 1), tolerance=1e-6),
    *(_attention(kind, causal) for kind in ("fp16", "bf16", "fp32") for causal in (False, True)),
    _program("product with i8 weights", _QUANTISED,
             {"x": given("fp16", integers("w8 x", -4, 5, 1024)),
                 "y": given("i8", integers("w8 y", -20, 20, 1024)),
             "s": given("fp16", [0.25] * 32), "o": out("fp32", 1024)}, lambda x, y,
                 s: x.reshape(32, 32) @ (y * 0.25).reshape(32, 32)),
    _program("product with 4-bit weights", _NIBBLES,
             {"x": given("fp16", integers("w4 x", -4, 5, 1024)),
                 "y": given("u8", integers("w4 y", 0, 256, 512)),
             "o": out("fp32", 1024)}, lambda x, y: x.reshape(32, 32) @ _nibbles(y)),
    _program("quantisation to i8", _QUANTISE, {"x": given("fp32", normal("quantise", 256)), "o": out("i8"),
        "scales": out("fp32", 4)},
             lambda x: (np.rint(x.reshape(4, 64) / (np.abs(x.reshape(4, 64)).max(1, keepdims=True) / 127)),
                 np.abs(x.reshape(4, 64)).max(1) / 127),
             grid=(4, 1, 1), tolerance=1e-6),
    *(_program(f"cross entropy {kind}", _ENTROPY,
               {"x": given(kind, normal("entropy", 256)), "labels": given("i64", [3, 60, 0, 17]),
                   "o": out("fp32", 4)},
               lambda x, labels: -np.log(_softmax(x.reshape(4, 64))[np.arange(4), labels]), grid=(4, 1, 1),
                   tolerance=2e-6)
      for kind in ("fp32", "bf16", "fp16")),
    _program("rotary embedding", _ROTARY, {"x": given("fp32", normal("rotary", 160)), "o": out("fp32", 160)},
        lambda x: _rotated(x.reshape(5, 2, 16)),
             grid=(5, 1, 1), tolerance=2e-6),
    _program("embedding and its gradient", _EMBEDDING, {"x": given("fp16", range(320)), "index": given("i64",
        [3, 9, 3, 0]), "o": out("fp16", 128),
             "count": given("fp32", [0] * 320, written=True)},
             lambda x, index, count: (x.reshape(10, 32)[index],
                 np.repeat(np.bincount(index, minlength=10), 32)), grid=(4, 1, 1)),
)  # fmt: skip


def _nibbles(y: Array) -> Array:
    """Two rows of each row of bytes, the low halves first, from -8 to 7."""
    return (
        np.stack([(y & 15).reshape(16, 32), (y >> 4).reshape(16, 32)], 1).reshape(32, 32).astype(np.int64) - 8
    )


def _rotated(x: Array) -> Array:
    angle = np.arange(5)[:, None] * np.exp(-np.arange(16) * 0.5)
    a, b = x[:, 0], x[:, 1]
    return np.stack([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], 1)
