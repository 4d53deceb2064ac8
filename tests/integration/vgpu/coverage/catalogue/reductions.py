"""Reductions, scans, sorting, histograms and gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.feature import Feature, generator, given, normal, out
from tests.integration.vgpu.coverage.formats import EPSILON, Array

_GROUP = "reductions, scans, sorts"
_LOAD = "r = tl.arange(0, 16)\nc = tl.arange(0, 64)\nt = tl.load(x + r[:, None] * 64 + c[None, :])\n"
_NUMBERS = ("i8", "i16", "i32", "i64", "u32", "fp16", "bf16", "fp32", "fp64")


def _numbers(name: str, kind: str) -> Array:
    return normal(name, 1024) if kind.startswith(("fp", "bf")) else generator(name).integers(0, 50, 1024)


def _reduce(
    text: str, kind: str, result: str, function: Callable[[Array], Any], tolerance: float = 0.0
) -> Feature:
    """`text` has {t}: a tensor of 16 x 64; the result has 16 elements."""
    name = f"{text.format(t='t')} {kind}"
    tensors = {"x": given(kind, _numbers(name, kind)), "o": out(result, 16)}
    return Feature(
        name=name,
        group=_GROUP,
        body=f"{_LOAD}tl.store(o + r, {text.format(t='t')})",
        tensors=tensors,
        reference=lambda x: function(x.reshape(16, 64)),
        tolerance=tolerance,
    )


def _along(
    text: str, kind: str, function: Callable[[Array], Any], tolerance: float = 0.0, helpers: str = ""
) -> Feature:
    """The result has the shape of the tensor."""
    name = f"{text} {kind}"
    tensors = {"x": given(kind, _numbers(name, kind)), "o": out(kind, 1024)}
    return Feature(
        name=name,
        group=_GROUP,
        body=f"{_LOAD}tl.store(o + r[:, None] * 64 + c[None, :], {text})",
        tensors=tensors,
        reference=lambda x: function(x.reshape(16, 64)),
        tolerance=tolerance,
        helpers=helpers,
    )


def _sum_tolerance(kind: str) -> float:
    """Terms cancel: their sizes add up to some 100."""
    return 64 * EPSILON[kind] if kind in EPSILON else 0.0


_HELPERS = """
@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def pairs(a, ia, b, ib):
    first = (a > b) | ((a == b) & (ia < ib))
    return tl.where(first, a, b), tl.where(first, ia, ib)


@triton.jit
def linear(a, b, c, d):
    return a * c, b * c + d
"""


def _recurrence(x: Array) -> Array:
    """h = 0.5 h + x along rows."""
    rows, h = [], np.zeros(16)
    for column in x.T:
        h = 0.5 * h + column
        rows.append(h)
    return np.array(rows).T


FEATURES = (
    *(_reduce("tl.sum({t}, 1).to(o.dtype.element_ty)", kind, kind, lambda x: x.sum(1).astype(x.dtype),
        _sum_tolerance(kind)) for kind in _NUMBERS),
    *(_reduce("tl.max({t}, 1)", kind, kind, lambda x: x.max(1)) for kind in _NUMBERS),
    *(_reduce("tl.min({t}, 1)", kind, kind, lambda x: x.min(1)) for kind in _NUMBERS),
    *(_reduce("tl.argmax({t}, 1)", kind, "i32", lambda x: x.argmax(1)) for kind in ("i32", "i64", "fp16",
        "fp32", "fp64")),
    *(_reduce("tl.argmin({t}, 1)", kind, "i32", lambda x: x.argmin(1)) for kind in ("i32", "fp32")),
    _reduce("tl.argmax({t}, 1, tie_break_left=False) * 0", "fp32", "i32", lambda x: np.zeros(16)),
    _reduce("tl.max({t}, 1, return_indices=True)[1]", "fp32", "i32", lambda x: x.argmax(1)),
    _reduce("tl.xor_sum({t}, 1)", "i32", "i32", lambda x: np.bitwise_xor.reduce(x, 1)),
    _reduce("tl.reduce_or({t}, 1)", "i32", "i32", lambda x: np.bitwise_or.reduce(x, 1)),
    _reduce("tl.sum({t}, 1, keep_dims=True).reshape(16)", "fp32", "fp32", lambda x: x.sum(1), 2e-6),
    _reduce("tl.sum(tl.max({t}.reshape(16, 8, 8), 2), 1)", "fp32", "fp32",
        lambda x: x.reshape(16, 8, 8).max(2).sum(1), 2e-6),
    *(Feature(name=f"sum of all {kind}", group=_GROUP,
        body=f"{_LOAD}tl.store(o, tl.sum(t).to(o.dtype.element_ty))",
              tensors={"x": given(kind, _numbers("all", kind)), "o": out(kind, 1)},
              reference=lambda x: x.sum(), tolerance=2 * _sum_tolerance(kind)) for kind in ("i32", "i64",
                  "fp32", "fp64", "fp16")),
    Feature(name="sum of columns fp32", group=_GROUP, body=f"{_LOAD}tl.store(o + c, tl.sum(t, 0))",
            tensors={"x": given("fp32", _numbers("columns", "fp32")), "o": out("fp32", 64)},
            reference=lambda x: x.reshape(16, 64).sum(0), tolerance=1e-6),
    Feature(name="reduce with a function", group=_GROUP,
        body=f"{_LOAD}tl.store(o + r, tl.reduce(t, 1, larger))", helpers=_HELPERS,
            tensors={"x": given("fp32", _numbers("larger", "fp32")), "o": out("fp32", 16)},
                reference=lambda x: x.reshape(16, 64).max(1)),
    Feature(name="reduce of pairs", group=_GROUP, helpers=_HELPERS,
            body=f"{_LOAD}v, at = tl.reduce((t, tl.broadcast_to(c[None, :], (16, 64))), 1, pairs)\n"
                 f"tl.store(o + r, v)\ntl.store(p + r, at)",
            tensors={"x": given("fp32", _numbers("pairs", "fp32")), "o": out("fp32", 16),
                "p": out("i32", 16)},
            reference=lambda x: (x.reshape(16, 64).max(1), x.reshape(16, 64).argmax(1))),
    *(_along("tl.cumsum(t, 1).to(o.dtype.element_ty)", kind, lambda x: x.cumsum(1), _sum_tolerance(kind))
      for kind in ("i32", "i64", "fp32", "fp64")),
    _along("tl.cumsum(t, 0)", "fp32", lambda x: x.cumsum(0), 2e-6),
    _along("tl.cumsum(t, 1, reverse=True)", "fp32", lambda x: x[:, ::-1].cumsum(1)[:, ::-1], 4e-6),
    _along("tl.cumprod(1 + t * 0.01, 1)", "fp32", lambda x: (1 + x * 0.01).cumprod(1), 2e-5),
    _along("tl.associative_scan(t, 1, larger)", "fp32", lambda x: np.maximum.accumulate(x, 1),
        helpers=_HELPERS),
    _along("tl.associative_scan(t, 0, larger, reverse=True)", "i32",
        lambda x: np.maximum.accumulate(x[::-1], 0)[::-1], helpers=_HELPERS),
    _along("tl.associative_scan((t * 0 + 0.5, t), 1, linear)[1]", "fp32", _recurrence, 4e-6,
        helpers=_HELPERS),
    *(_along("tl.sort(t)", kind, lambda x: np.sort(x, 1)) for kind in ("i8", "i32", "i64", "fp16", "fp32")),
    _along("tl.sort(t, descending=True)", "fp32", lambda x: -np.sort(-x, 1)),
    *(Feature(name=f"topk {kind}", group=_GROUP,
        body=f"{_LOAD}k = tl.arange(0, 8)\ntl.store(o + r[:, None] * 8 + k[None, :], tl.topk(t, 8))",
              tensors={"x": given(kind, _numbers("topk", kind)), "o": out(kind, 128)},
              reference=lambda x: -np.sort(-x.reshape(16, 64), 1)[:, :8]) for kind in ("i32", "fp32")),
    Feature(name="bitonic_merge", group=_GROUP,
        body="c = tl.arange(0, 64)\ntl.store(o + c, tl.bitonic_merge(tl.load(x + c)))",
            tensors={"x": given("i32", [*range(32), *range(31, -1, -1)]), "o": out("i32", 64)},
                reference=np.sort),
    *(Feature(name=f"histogram of {kind}, {bins} bins", group=_GROUP,
              body=f"i = tl.arange(0, 1024)\n"
                   f"tl.store(o + tl.arange(0, {bins}), tl.histogram(tl.load(x + i), {bins}{more}))",
              tensors={"x": given(kind, generator("histogram").integers(0, bins, 1024)),
                  "o": out("i32", bins)},
              reference=lambda x, bins=bins, more=more: np.bincount(x[: 500 if more else 1024],
                  minlength=bins))
      for kind, bins, more in (("i32", 64, ""), ("i32", 128, ""), ("i32", 32, ", mask=i < 500"))),
    *(Feature(name=f"gather along {axis}", group=_GROUP,
              body=f"{_LOAD}n = tl.load(p + r[:, None] * 64 + c[None, :])\n"
                   f"tl.store(o + r[:, None] * 64 + c[None, :], tl.gather(t, n, {axis}))",
              tensors={"x": given("fp32", range(1024)),
                       "p": given("i32", generator("gather").integers(0, (16, 64)[axis], 1024)),
                           "o": out("fp32", 1024)},
              reference=lambda x, p, axis=axis: np.take_along_axis(x.reshape(16, 64), p.reshape(16, 64),
                  axis)) for axis in (0, 1)),
    *(Feature(name=f"sum with {warps} warps", group=_GROUP, options={"num_warps": warps},
              body="i = tl.arange(0, 1024)\ntl.store(o, tl.sum(tl.load(x + i)))",
              tensors={"x": given("fp32", normal("warps", 1024)), "o": out("fp32", 1)},
                  reference=lambda x: x.sum(), tolerance=1e-5)
      for warps in (1, 2, 8, 16)),
)  # fmt: skip
