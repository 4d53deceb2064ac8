"""Calls of reshape_and_cache: tokens of several pages in any order, some left out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from aotforge.verify.compare import Bounded, Exact, Expected
from aotforge.verify.interpreter.number_formats import (
    EPSILON,
    SMALLEST,
    Array,
    DType,
    decode,
    encode,
    is_exact,
)
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.tensors import Float, Guarded, Layout, dtype_of

from .problems import DENSE

_PAGES = 4
_SCALES = {"K": 0.0625, "V": 0.03125}
"""Of the first head, others have more: powers of two, so that quotients are exact, and ties occur."""
_LIMITS: Mapping[DType, tuple[float, float]] = {
    "i8": (-128.0, 127.0),
    "fp8e4nv": (-448.0, 448.0),
    "fp8e5": (-57344.0, 57344.0),
}


def write_cases(keys: Mapping[str, int]) -> list[Case]:
    """Few and many tokens, pages of two sizes, rows apart, and values beyond what 8 bits have."""
    return [
        Case(
            name=f"{tokens} tokens, {heads} heads, pages of {size}",
            make=partial(_invocation, keys, tokens, heads, size, padding),
        )
        for tokens, heads, size, padding in ((9, 2, 16, 0), (5, 3, 48, 16), (1, 1, 32, 0))
    ]


def _invocation(keys: Mapping[str, int], tokens: int, heads: int, page_size: int, padding: int) -> Invocation:
    rng = np.random.default_rng(tokens)
    width, dtype, kind = keys["head_dim"], dtype_of(keys["dtype"]), dtype_of(keys["cache"])
    order = rng.permutation(_PAGES * page_size)
    last = order == page_size - 1  # of the first page: the first token has it
    slots = np.concatenate([order[last], order[~last]])[:tokens].astype(np.int64)
    slots[1::4] = -1
    written = slots[slots >= 0]
    within = np.zeros((_PAGES, page_size, 1, 1), dtype=np.bool_)
    within[written // page_size, written % page_size] = True
    new = {name: _drawn(rng, (tokens, heads, width)) for name in "KV"}
    new = {name: np.asarray(decode(encode(x, dtype), dtype)) for name, x in new.items()}
    inputs = {
        f"{name}_new": Guarded(x.shape, dtype, Layout(row_padding=padding), x) for name, x in new.items()
    }
    inputs["slots"] = Guarded((tokens,), "i64", DENSE, slots)
    scaled = kind != dtype
    scales = {name: scale * 2.0 ** np.arange(heads) for name, scale in _SCALES.items()}
    if scaled:
        inputs |= {f"{n.lower()}_scale": Guarded((heads,), "fp32", DENSE, scales[n]) for n in "KV"}
    shape = (_PAGES, page_size, heads, width)
    layouts = {"K": Layout(row_padding=padding), "V": Layout(order=(0, 2, 1), row_padding=padding)}
    outputs = {name: Guarded(shape, kind, layouts[name], within=within) for name in "KV"}
    values: dict[str, int | float] = {"k_scale": 0, "v_scale": 0, "tokens": tokens, "num_head_k": heads}
    values |= {"page_size": page_size, "stride_scale": 1, **keys}
    for name, axes in {"K_new": "nm nh", "V_new": "wm wh", "K": "kp kn kh", "V": "vp vn vh"}.items():
        strides = {**inputs, **outputs}[name].strides
        values |= {f"stride_{axis}": stride for axis, stride in zip(axes.split(), strides, strict=False)}
    values |= {name: tensor.address for name, tensor in {**inputs, **outputs}.items()}

    def expected() -> dict[str, Expected | Exact]:
        return {
            name: _expected(x / (scales[name][:, None] if scaled else 1.0), slots, kind, shape)
            for name, x in new.items()
        }

    return Invocation(values=values, inputs=inputs, outputs=outputs, expected=expected)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> Float:
    """Normal numbers, every eighth one so large that 8 bits may not have it."""
    drawn = rng.standard_normal(shape)
    drawn[..., ::8] *= 64
    return drawn


def _expected(x: Float, slots: Array, kind: DType, shape: tuple[int, ...]) -> Expected | Exact:
    low, high = _LIMITS.get(kind, (-np.inf, np.inf))
    value = np.zeros(shape)
    kept = slots >= 0
    value[slots[kept] // shape[1], slots[kept] % shape[1]] = np.clip(x[kept], low, high)
    if is_exact(kind):
        return Exact(value=np.rint(value).astype(np.int8))
    stored = np.asarray(decode(encode(value, kind), kind), dtype=np.float64)
    error = EPSILON[kind] * np.abs(value) + SMALLEST[kind]
    return Expected(bounded=Bounded(value=value, error=error), same_precision=[stored], dtype=kind)
