"""Calls of the fused backward pass, each kernel alone: what kernels before it store comes from float64.

Bounds are a first-order rounding analysis as in `flash`; the same-precision results round where the kernels
do, and add in several orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod

import numpy as np

from aotforge.verify.compare import Bounded, Exact, Expected
from aotforge.verify.interpreter.number_formats import EPSILON, SMALLEST, DType, decode, encode
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.specials import special_rows
from aotforge.verify.tensors import Float, Guarded, Layout, dtype_of

_E = EPSILON["fp32"]
_ROWS = 64
_ADDED_KEYS = 64
"""Keys whose products are added to DQ_ACC at once."""
_NORMAL = float(np.finfo(np.float32).smallest_normal)
"""Atomic additions to global memory take smaller numbers as zero, and make zero of smaller sums."""
_ORDERS = (1, 4, 16, 64, None)
"""Products that are added at a time; None: all."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A call. Key j serves query i when i - left <= j <= i + right, with `window` None all do. `far`: scores
    near -120. `small`: rows of zeros and of subnormal numbers."""

    dtype: DType
    width: int
    batch: int = 1
    heads: int = 2
    group: int = 1
    n_q: int = 128
    n_k: int = 128
    window: tuple[int, int] | None = None
    sm_scale: float = 0.25
    padding: int = 0
    far: bool = False
    small: bool = False

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor by its operator value's name."""
        if name in {"L", "D"}:
            return (self.batch, self.heads, self.n_q)
        keys = name in {"K", "V", "DK", "DV"}
        heads, rows = (self.heads // self.group, self.n_k) if keys else (self.heads, self.n_q)
        return (self.batch, heads, rows, self.width)

    def tensor(self, name: str, values: Float | None = None) -> Guarded:
        """Rows of some problems are padded, so that strides differ."""
        dtype: DType = "fp32" if name in {"L", "D", "DQ_ACC"} else self.dtype
        padding = 0 if name in {"L", "D", "DQ_ACC"} else self.padding
        return Guarded(self.shape(name), dtype, Layout(row_padding=padding), values)


_KINDS = {
    "one block": {},
    "heads": {"batch": 2, "heads": 4, "group": 2, "n_q": 192, "n_k": 256, "padding": 8},
    "negative scale": {"n_q": 64, "sm_scale": -0.25},
    "far": {"far": True},
    "no queries": {"n_q": 0},
}
_WINDOWS = {
    "causal": (256, 0),
    "bottom-right": (256, 64),
    "left": (40, 256),
    "band": (70, 30),
    "before": (256, -100),
    "nothing": (10, -20),
}


def _problems(keys: Mapping[str, int]) -> list[tuple[str, Problem]]:
    base = Problem(dtype=dtype_of(keys["dtype"]), width=keys["head_dim"])
    found = [(name, replace(base, **changes)) for name, changes in _KINDS.items()]  # type: ignore[arg-type]
    if not keys.get("mask"):
        return found
    found = [(name, replace(one, window=(one.n_q, 0))) for name, one in found]
    heads = replace(base, heads=4, group=2, n_q=256, n_k=256)
    return found + [(name, replace(heads, window=window)) for name, window in _WINDOWS.items()]


def cases(kernel: str, keys: Mapping[str, int]) -> list[Case]:
    """Every problem for every kernel."""
    return [
        Case(
            name=name,
            make=partial(_invocation, kernel, problem),
            special=None if problem.far else partial(_invocation, kernel, replace(problem, small=True)),
            elements=prod(problem.shape("Q")),
        )
        for name, problem in _problems(keys)
    ]


_INPUTS = {"bwd_start": "Out DO", "bwd_sums": "Q K V DO L D", "bwd_end": "DQ_ACC"}
_OUTPUTS = {"bwd_start": "D", "bwd_sums": "DK DV DQ_ACC", "bwd_end": "DQ"}
_STRIDES = {
    "Q": "qz qh qm", "K": "kz kh kn", "V": "vz vh vn", "Out": "oz oh om", "DO": "doz doh dom", "DQ": "dqz dqh dqm",
    "DK": "dkz dkh dkn", "DV": "dvz dvh dvn", "DQ_ACC": "dqaz dqah dqam", "L": "lz lh lm", "D": "dz dh dm",
}  # fmt: skip


def _invocation(kernel: str, problem: Problem) -> Invocation:
    known = _known(problem)
    inputs = {name: problem.tensor(name, known[name]) for name in _INPUTS[kernel].split()}
    outputs = {name: problem.tensor(name) for name in _OUTPUTS[kernel].split()}
    if "DQ_ACC" in outputs:
        # it is added to
        outputs["DQ_ACC"] = problem.tensor("DQ_ACC", np.zeros(problem.shape("DQ_ACC")))
    left, right = problem.window or (0, 0)
    values: dict[str, int | float] = {
        **dict.fromkeys((f"stride_{axis}" for axes in _STRIDES.values() for axis in axes.split()), 0),
        "batch": problem.batch,
        "num_head_q": problem.heads,
        "num_head_k": problem.heads // problem.group,
        "group": problem.group,
        "seqlen_q": problem.n_q,
        "seqlen_k": problem.n_k,
        "head_dim": problem.width,
        "sm_scale": problem.sm_scale,
        "dtype": {"fp16": 2, "bf16": 3}[problem.dtype],
        "mask": int(problem.window is not None),
        "window_left": left,
        "window_right": right,
        # of tensors that the kernel does not have: the conditions are those of the call
        "stride_lm": 1,
        "stride_dm": 1,
        "stride_dqam": problem.width,
    }
    for name, tensor in {**inputs, **outputs}.items():
        values[name] = tensor.address
        values |= {
            f"stride_{axis}": stride
            for axis, stride in zip(_STRIDES[name].split(), tensor.strides, strict=False)
        }
    return Invocation(
        values=values, inputs=inputs, outputs=outputs, expected=partial(_EXPECTED[kernel], problem)
    )


def _rounded(values: Float, dtype: DType) -> Float:
    return decode(encode(values, dtype), dtype)


@cache
def _known(problem: Problem) -> Mapping[str, Float]:
    """Inputs, and what the forward pass and the kernels before store."""
    rng = np.random.default_rng(0)
    names = ("Q", "K", "V", "DO")
    found = {name: rng.standard_normal(problem.shape(name)) for name in names}
    if problem.far:
        for name, sign in (("Q", 1), ("K", -1)):
            found[name][..., 0] = sign * (120 / abs(problem.sm_scale)) ** 0.5
    if problem.small:
        found = {name: special_rows(values, problem.dtype) for name, values in found.items()}
    found = {name: _rounded(values, problem.dtype) for name, values in found.items()}
    scores, seen = _scores(problem, found)
    top = np.where(seen, scores, -np.inf).max(axis=-1, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    total = np.where(seen, np.exp(scores - top[..., None]), 0.0).sum(axis=-1)
    lse = np.where(total > 0, top + np.log(np.where(total > 0, total, 1.0)), np.inf)
    out = _probabilities(scores, seen, lse) @ _heads(problem, found["V"])
    found["L"] = _rounded(lse, "fp32")
    found["Out"] = _rounded(out, problem.dtype)
    found["D"] = _rounded((out * found["DO"]).sum(axis=-1), "fp32")
    found["DQ_ACC"] = _rounded(rng.standard_normal(problem.shape("DQ_ACC")), "fp32")
    return found


def _heads(problem: Problem, x: Float) -> Float:
    return np.repeat(x, problem.group, axis=1)


def _t(x: Float) -> Float:
    return np.swapaxes(x, -1, -2)


def _scores(problem: Problem, known: Mapping[str, Float]) -> tuple[Float, Float]:
    scores = known["Q"] @ _t(_heads(problem, known["K"])) * problem.sm_scale
    distance = np.arange(problem.n_k)[None, :] - np.arange(problem.n_q)[:, None]
    left, right = problem.window or (problem.n_q, problem.n_k)
    return scores, np.broadcast_to((distance >= -left) & (distance <= right), scores.shape)


def _probabilities(scores: Float, seen: Float, lse: Float) -> Float:
    some = np.isfinite(lse)[..., None] & seen
    return np.where(
        some, np.exp(np.where(some, scores - np.where(np.isinf(lse), 0.0, lse)[..., None], 0.0)), 0.0
    )


def _of_keys(problem: Problem, x: Float) -> Float:
    """Sums over the query heads of each key head."""
    return np.asarray(x.reshape(x.shape[0], -1, problem.group, *x.shape[2:]).sum(axis=2), dtype=np.float64)


def _added(problem: Problem, x: Float) -> Float:
    """Rows and columns of dQ in the order in which DQ_ACC has them."""
    half = problem.width // 2
    row, column = np.arange(_ROWS)[:, None], np.arange(problem.width)[None, :]
    thread = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
    place = column % half // 8 * 512 + thread * 4 + row % 16 // 8 * 2 + column % 2
    places = (column // half * (_ROWS * half) + place).ravel()
    blocks = x.reshape(-1, _ROWS * problem.width)
    found = np.empty_like(blocks)
    found[:, places] = blocks
    return found.reshape(x.shape)


def _product(a: Float, b: Float, products: int | None) -> Float:
    """a @ b, rounded to float32 after every `products` products."""
    step = products or max(a.shape[-1], 1)
    total = np.zeros((*a.shape[:-1], b.shape[-1]), dtype=np.float32)
    for start in range(0, a.shape[-1], step):
        total = np.float32(total + a[..., start : start + step] @ b[..., start : start + step, :])
    return total.astype(np.float64)


def _starts(problem: Problem) -> Mapping[str, Expected | Exact]:
    known = _known(problem)
    products = known["Out"] * known["DO"]
    ones = np.ones((problem.width, 1))
    # products of small numbers are subnormal: an absolute error each
    error = problem.width * (_E * np.abs(products).sum(axis=-1) + SMALLEST["fp32"])
    bounded = Bounded(value=products.sum(axis=-1), error=error)
    same = [_product(products[..., order], ones, 1)[..., 0] for order in _permutations(problem.width)]
    return {"D": Expected(bounded=bounded, same_precision=same, dtype="fp32")}


def _permutations(width: int) -> list[Float]:
    """Orders of addition: one sum per row has few to err in."""
    return [np.arange(width) * stride % width for stride in (1, 3, 5, 7, 9, 11, 13)]


def _ends(problem: Problem) -> Mapping[str, Expected | Exact]:
    places = _added(problem, np.arange(float(np.prod(problem.shape("DQ")))).reshape(problem.shape("DQ")))
    value = np.zeros(problem.shape("DQ")).ravel()
    value[places.ravel().astype(int)] = _known(problem)["DQ_ACC"].ravel()
    scale = float(np.float32(problem.sm_scale))
    value = value.reshape(problem.shape("DQ")) * scale
    u, tiny = EPSILON[problem.dtype], SMALLEST[problem.dtype]
    bounded = Bounded(value=value, error=(u + 2 * _E) * np.abs(value) + tiny)
    same = [_rounded(_rounded(value, "fp32"), problem.dtype)]
    return {"DQ": Expected(bounded=bounded, same_precision=same, dtype=problem.dtype)}


def _sums(problem: Problem) -> Mapping[str, Expected | Exact]:
    values, errors = _bounds(problem)
    same = [_same_precision(problem, products) for products in _ORDERS]
    return {
        name: Expected(
            bounded=Bounded(value=values[name], error=errors[name]),
            same_precision=[one[name] for one in same],
            dtype="fp32" if name == "DQ_ACC" else problem.dtype,
        )
        for name in ("DK", "DV", "DQ_ACC")
    }


def _lost(problem: Problem) -> float:
    """At most this much of an element of DQ_ACC."""
    return 2 * _NORMAL * (-(-problem.n_k // _ADDED_KEYS))


def _bounds(problem: Problem) -> tuple[dict[str, Float], dict[str, Float]]:
    """Values and errors by element: kernels get exact L and D, rounded to float32."""
    known = _known(problem)
    q, do = known["Q"], known["DO"]
    k, v = (_heads(problem, known[name]) for name in ("K", "V"))
    u, tiny = EPSILON[problem.dtype], SMALLEST[problem.dtype]
    scale, n_q, n_k = problem.sm_scale, problem.n_q, problem.n_k
    scores, seen = _scores(problem, known)
    p = _probabilities(scores, seen, known["L"])
    slope = do @ _t(v) - known["D"][..., None]
    size = (np.abs(q) @ _t(np.abs(k)) * abs(scale)).max(axis=-1, initial=0.0)
    finite = np.where(np.isinf(known["L"]), 0.0, known["L"])
    p_error = ((problem.width + 8) * _E * size + 4 * _E * (1 + np.abs(finite)) + 2 * _E)[..., None]
    dp_error = (problem.width + 2) * _E * (np.abs(do) @ _t(np.abs(v)))
    delta_error = _E * np.abs(known["D"])[..., None]
    ds_error = p * ((p_error + u) * np.abs(slope) + dp_error + delta_error) + tiny * seen
    ds, ds_size = p * slope, p * np.abs(slope)
    dk, dv = _of_keys(problem, _t(ds) @ q * scale), _of_keys(problem, _t(p) @ do)
    dk_error = abs(scale) * _of_keys(problem, _t(ds_error + n_q * _E * ds_size) @ np.abs(q))
    dv_error = _of_keys(problem, _t(p * (u + p_error + (n_q + 2) * _E) + tiny * seen) @ np.abs(do))
    dq_error = (ds_error + n_k * _E * ds_size) @ np.abs(k) + tiny
    values = {"DK": dk, "DV": dv, "DQ_ACC": _added(problem, ds @ k)}
    errors = {
        "DK": dk_error + u * np.abs(dk) + tiny,
        "DV": dv_error + u * np.abs(dv) + tiny,
        "DQ_ACC": _added(problem, dq_error + _lost(problem)),
    }
    return values, errors


def _same_precision(problem: Problem, products: int | None) -> dict[str, Float]:
    known = _known(problem)
    k, v = (_heads(problem, known[name]) for name in ("K", "V"))
    _, seen = _scores(problem, known)
    unit = np.float32(problem.sm_scale * np.log2(np.e))
    scores = _rounded(_product(known["Q"], _t(k), products) * unit, "fp32")
    lse = np.where(np.isinf(known["L"]), 0.0, _rounded(known["L"] * np.float32(np.log2(np.e)), "fp32"))
    some = seen & np.isfinite(known["L"])[..., None]
    p = _rounded(np.where(some, np.exp2(np.where(some, scores - lse[..., None], 0.0)), 0.0), "fp32")
    slope = _rounded(_product(known["DO"], _t(v), products) - known["D"][..., None], "fp32")
    ds = _rounded(p * slope, problem.dtype)
    dk = _of_keys(problem, _product(_t(ds), known["Q"], products)) * problem.sm_scale
    dv = _of_keys(problem, _product(_t(_rounded(p, problem.dtype)), known["DO"], products))
    dq = _added(problem, _product(ds, k, products))
    return {
        "DK": _rounded(dk, problem.dtype),
        "DV": _rounded(dv, problem.dtype),
        "DQ_ACC": np.where(np.abs(dq) <= _lost(problem), 0.0, dq),
    }


_EXPECTED = {"bwd_start": _starts, "bwd_sums": _sums, "bwd_end": _ends}
