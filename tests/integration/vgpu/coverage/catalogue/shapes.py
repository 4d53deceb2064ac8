"""Changes of shape, and tensors made without loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.feature import Feature, given, out
from tests.integration.vgpu.coverage.formats import Array

_GROUP = "shapes"
_LOAD = """
r = tl.arange(0, 16)
c = tl.arange(0, 32)
i = r[:, None] * 32 + c[None, :]
x = tl.load(x_ + i)
y = tl.load(y_ + i)
"""

_LARGER = """
@triton.jit
def larger(a, b):
    return a if a > b else b
"""


def _shape(
    name: str,
    expression: str,
    shape: tuple[int, ...],
    reference: Callable[[Array, Array], Any],
    kind: str = "fp32",
) -> Feature:
    """Stores a tensor of `shape` made of x and y, both 16 x 32."""
    offsets, stride = [], 1
    for axis in range(len(shape) - 1, -1, -1):
        where = ", ".join(":" if a == axis else "None" for a in range(len(shape)))
        offsets.append(f"tl.arange(0, {shape[axis]})[{where}] * {stride}")
        stride *= shape[axis]
    body = f"{_LOAD}tl.store(o + {' + '.join(offsets)}, {expression})"
    tensors = {"x_": given(kind, range(512)), "y_": given(kind, range(1000, 1512)), "o": out(kind, stride)}
    return Feature(
        name=name,
        group=_GROUP,
        body=body,
        helpers=_LARGER if "larger" in expression else "",
        tensors=tensors,
        reference=lambda x, y: reference(x.reshape(16, 32), y.reshape(16, 32)),
    )


def _same(
    expression: str, shape: tuple[int, ...], reference: Callable[[Array, Array], Any], kind: str = "fp32"
) -> Feature:
    return _shape(f"{expression} {kind}", expression, shape, reference, kind)


FEATURES = (
    *(_same("tl.trans(x)", (32, 16), lambda x, y: x.T, kind) for kind in ("i32", "fp16")),
    _same("tl.permute(x.reshape(4, 4, 32), (2, 0, 1))", (32, 4, 4), lambda x,
        y: x.reshape(4, 4, 32).transpose(2, 0, 1)),
    _same("tl.reshape(x, (64, 8))", (64, 8), lambda x, y: x.reshape(64, 8)),
    _same("tl.reshape(x, (2, 8, 4, 8))", (2, 8, 4, 8), lambda x, y: x),
    _same("tl.ravel(x)", (512,), lambda x, y: x),
    _same("tl.sort(tl.view(x, (512,)))", (512,), lambda x, y: x),
    *(_same("tl.flip(x, 1)", (16, 32), lambda x, y: x[:, ::-1], kind) for kind in ("fp32", "i8")),
    _same("tl.flip(x, 0)", (16, 32), lambda x, y: x[::-1]),
    *(_same("tl.join(x, y)", (16, 32, 2), lambda x, y: np.stack([x, y], 2), kind) for kind in ("fp32", "fp16",
        "i32")),
    _same("tl.interleave(x, y)", (16, 64), lambda x, y: np.stack([x, y], 2)),
    _same("tl.split(tl.join(x, y))[1]", (16, 32), lambda x, y: y),
    _same("tl.split(x.reshape(16, 16, 2))[0]", (16, 16), lambda x, y: x[:, ::2]),
    _same("tl.sort(tl.cat(tl.ravel(x), tl.ravel(y), can_reorder=True))", (1024,), lambda x,
        y: np.concatenate([x, y], None)),
    _same("tl.cat(tl.ravel(x), tl.ravel(y), dim=0)", (1024,), lambda x, y: np.concatenate([x, y], None)),
    _same("tl.expand_dims(x, 1).reshape(16, 32)", (16, 32), lambda x, y: x),
    _same("tl.broadcast_to(tl.sum(x, 1)[:, None], (16, 32))", (16, 32), lambda x, y: np.repeat(x.sum(1), 32)),
    _same("tl.broadcast(x, tl.max(y, 0)[None, :])[0] + tl.max(y, 0)[None, :]", (16, 32), lambda x,
        y: x + y.max(0)),
    _same("tl.zeros((16, 32), tl.float32)", (16, 32), lambda x, y: 0 * x),
    _same("tl.zeros_like(x) + tl.full((16, 32), 7, tl.float32)", (16, 32), lambda x, y: 0 * x + 7),
    _same("tl.arange(0, 512).to(tl.float32)", (512,), lambda x, y: x),
    _same("tl.gather(x, (c[None, :] * 5 + r[:, None]) % 32, 1)", (16, 32),
          lambda x, y: np.take_along_axis(x, (np.arange(32) * 5 + np.arange(16)[:, None]) % 32, 1)),
    _same("tl.map_elementwise(larger, x, 1500 - y)", (16, 32), lambda x, y: np.maximum(x, 1500 - y)),
    Feature(name="swizzle2d", group=_GROUP, body="""
i = tl.arange(0, 8)[:, None]
j = tl.arange(0, 4)[None, :]
a, b = tl.swizzle2d(i, j, 8, 4, 2)
tl.store(o + i * 4 + j, a * 4 + b)
""", tensors={"o": out("i32", 32)}, reference=lambda: _swizzled(8, 4, 2)),
)  # fmt: skip


def _swizzled(rows: int, columns: int, group: int) -> Array:
    """The n-th place by rows is the n-th place of groups of rows, by columns in each."""
    order = [(r + first, c) for first in range(0, rows, group) for c in range(columns) for r in range(group)]
    return np.array([r * columns + c for r, c in order])
