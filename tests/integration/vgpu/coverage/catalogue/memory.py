"""Loads, stores and pointers of every type, with their modifiers; tensor descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.feature import (
    Feature,
    N,
    Tensor,
    bits,
    generator,
    given,
    integers,
    normal,
    out,
)
from tests.integration.vgpu.coverage.formats import FLOATS, FP8, INTEGERS, Array, storage

_GROUP = "memory"


def memory(
    name: str, body: str, tensors: dict[str, Tensor], reference: Callable[..., Any], **more: Any
) -> Feature:
    """A feature of this group."""
    return Feature(name=name, group=_GROUP, body=body, tensors=tensors, reference=reference, **more)


def _copy(kind: str) -> Feature:
    """Masked off elements keep what they were, and other programs have the rest."""
    largest = 2 if kind == "i1" else 64
    pattern = generator(f"copy {kind}").integers(0, largest, 300 * storage(kind).itemsize, dtype=np.uint8)
    before = given(kind, [1] * 300, written=True)
    body = """
i = tl.program_id(0) * 128 + tl.arange(0, 128)
keep = (i < n) & (i % 3 != 1)
v = tl.load(x + i, mask=i < n)
tl.store(o + i, v, mask=keep)
"""

    def reference(x: Array, o: Array) -> Array:
        return np.where(np.arange(300) % 3 != 1, x, o)

    tensors = {"x": bits(kind, pattern), "o": before}
    return memory(f"masked copy {kind}", body, tensors, reference, values={"n": ("i32", 300)}, grid=(3, 1, 1))


def _other(kind: str) -> Feature:
    body = """
i = tl.arange(0, 256)
tl.store(o + i, tl.load(x + i, mask=i < n, other=3))
"""
    tensors = {"x": given(kind, [2] * 200), "o": out(kind)}
    return memory(
        f"load with other {kind}",
        body,
        tensors,
        lambda x: np.concatenate([x, np.full(56, 3)]),
        values={"n": ("i32", 200)},
    )


def _modified(load: str, store: str) -> Feature:
    body = f"i = tl.arange(0, 256)\ntl.store(o + i, tl.load(x + i{load}) + 1{store})"
    name = " ".join(side + text.replace('"', "") for side, text in (("load", load), ("store", store)) if text)
    return memory(
        name,
        body,
        {"x": given("fp32", normal(name)), "o": out("fp32")},
        lambda x: x.astype(np.float32) + np.float32(1),
    )


def _trans(kind: str) -> Feature:
    body = """
r = tl.arange(0, 32)
t = tl.load(x + r[:, None] * 32 + r[None, :])
tl.store(o + r[:, None] * 32 + r[None, :], tl.trans(t))
"""
    pattern = generator(f"transpose {kind}").integers(0, 64, 1024 * storage(kind).itemsize, dtype=np.uint8)
    return memory(
        f"transpose {kind}",
        body,
        {"x": bits(kind, pattern), "o": out(kind, 1024)},
        lambda x: x.reshape(32, 32).T,
    )


_DESCRIPTOR = """
a = tl.make_tensor_descriptor(x, shape=[rows, columns], strides=[columns, 1], block_shape=[16, 32])
b = tl.make_tensor_descriptor(o, shape=[rows, columns], strides=[columns, 1], block_shape=[16, 32])
at = tl.program_id(0) * 16
for k in range(0, columns, 32):
    b.store([at, k], a.load([at, k]) * 2)
"""
_SHAPE = {"rows": ("i32", 40), "columns": ("i32", 72)}


def _table(kind: str) -> dict[str, Tensor]:
    return {"x": given(kind, integers("table", 0, 50, 40 * 72)), "o": out(kind, 40 * 72)}


FEATURES = (
    *(_copy(kind) for kind in ("i1", *INTEGERS, *FLOATS, *FP8)),
    *(_other(kind) for kind in ("i8", "i16", "i32", "i64", "fp16", "bf16", "fp32", "fp64")),
    *(_trans(kind) for kind in ("i8", "i16", "i32", "i64", "fp16", "bf16", "fp32", "fp64", "fp8e5")),
    *(_modified(f', cache_modifier="{one}"', "") for one in (".ca", ".cg", ".cv")),
    *(_modified("", f', cache_modifier="{one}"') for one in (".wb", ".cg", ".cs", ".wt")),
    *(_modified(f', eviction_policy="{one}"', f', eviction_policy="{one}"') for one in ("evict_first",
        "evict_last")),
    _modified(", volatile=True", ""),
    *(memory(f"tensor descriptor {kind}", _DESCRIPTOR, _table(kind), lambda x: x * 2, values=_SHAPE,
        grid=(3, 1, 1))
      for kind in ("fp16", "fp32", "i8")),
    memory("tensor descriptor added to", """
b = tl.make_tensor_descriptor(o, shape=[16, 32], strides=[32, 1], block_shape=[16, 32])
b.atomic_add([0, 0], tl.full((16, 32), 2, tl.int32))
""", {"o": given("i32", range(512), written=True)}, lambda o: o + 2),
    memory("tensor descriptor gather", """
d = tl.make_tensor_descriptor(x, shape=[64, 32], strides=[32, 1], block_shape=[1, 32])
r = tl.arange(0, 16)
t = d.gather(r * 3 % 64, 0)
tl.store(o + r[:, None] * 32 + tl.arange(0, 32)[None, :], t)
""", {"x": given("fp16", range(2048)), "o": out("fp16", 512)},
    lambda x: x.reshape(64, 32)[np.arange(16) * 3 % 64]),
    memory("scalar load and store", "tl.store(o, tl.load(x) + tl.load(x + 3))",
        {"x": given("fp32", [1, 2, 3, 4]), "o": out("fp32", 1)},
           lambda x: x[:1] + x[3:4]),
    *(memory(f"scalar load {kind}",
        f"i = tl.arange(0, {N})\ntl.store(o + i, tl.load(x + n).to(tl.int32) + i)",
             {"x": given(kind, range(100)), "o": out("i32")}, lambda x: np.arange(N) + 41,
                 values={"n": ("i32", 41)})
      for kind in ("i8", "u8", "i16", "u16", "i32", "i64", "fp16", "bf16", "fp32", "fp64")),
    memory("indirect load", f"i = tl.arange(0, {N})\ntl.store(o + i, tl.load(x + tl.load(p + i)))",
           {"x": given("fp32", range(1000)), "p": given("i64", integers("indirect", 0, 1000)),
               "o": out("fp32")}, lambda x, p: x[p]),
    memory("strided 3D with i64 strides", """
a = tl.arange(0, 4)[:, None, None] * sa
b = tl.arange(0, 8)[None, :, None] * sb
c = tl.arange(0, 16)[None, None, :]
t = tl.load(x + a + b + c)
tl.store(o + tl.arange(0, 4)[:, None, None] * 128 + tl.arange(0, 8)[None, :, None] * 16 + c, t)
""", {"x": given("fp16", np.arange(4 * 300) % 2000), "o": out("fp16", 512)},
           lambda x: x.reshape(4, 300)[:, : 8 * 30].reshape(4, 8, 30)[:, :, :16],
           values={"sa": ("i64", 300), "sb": ("i64", 30)}),
    memory("pointer as integer", f"""
i = tl.arange(0, {N})
p = (x.to(tl.int64) + 4 * i.to(tl.int64)).to(tl.pointer_type(tl.float32))
tl.store(o + i, tl.load(p))
""", {"x": given("fp32", range(N)), "o": out("fp32")}, lambda x: x),
    memory("pointer of another type",
        f"i = tl.arange(0, {N})\ntl.store(o + i, tl.load(x.to(tl.pointer_type(tl.uint8), bitcast=True) + i))",
           {"x": given("fp32", range(64)), "o": out("u8")}, lambda x: x.astype(np.float32).view(np.uint8)),
    memory("multiple_of, max_contiguous, assume", f"""
tl.assume(n > 0)
s = tl.multiple_of(n, 16)
i = tl.max_contiguous(tl.multiple_of(tl.arange(0, {N}), {N}), {N})
tl.store(o + i, tl.load(x + i, mask=i < s, other=0.0))
""", {"x": given("fp16", range(N)), "o": out("fp16")}, lambda x: np.where(np.arange(N) < 192, x, 0),
    values={"n": ("i32", 192)}),
)  # fmt: skip
