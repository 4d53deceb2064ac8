"""PyTorch's criterion: the error of a result in terms of the error that PyTorch's math back end makes in the
same precision.

    python -m tests.integration.pytorch.compare DEVICE LEVEL=CALLS ... (libraries of tests/fixtures/pytorch)

reads cases as JSON from standard input and writes results to standard output.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from .device import LibraryError, load_libraries
from .functions import (
    Dropout,
    Level,
    dropout_mask,
    efficient_attention,
    flash_attention,
    packed_attention,
)
from .grids import Case, case_of, minor_of

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
_LEAST = 1e-5
_Tensors = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A result's largest error, the largest of the same computation by PyTorch in the same precision, and the
    most that is allowed."""

    name: str
    error: float
    reference_error: float
    limit: float


def results(case: Case, level: Level) -> list[Measured]:
    """Every result of a case. Raises LibraryError."""
    torch.manual_seed(0)
    if case.test == "used keys":
        return list(_used_keys(case, level))
    if case.test in ("packed", "nested"):
        return list(_packed(case, level))
    return list(_dense(case, level))


def _dense(case: Case, level: Level) -> Iterator[Measured]:
    dtype = _DTYPES[case.dtype]
    scale = 1 / case.head_dim if case.scale == "l1" else None
    shape = (case.batch, case.heads, case.seqlen_q, case.head_dim)
    shape_k = (case.batch, case.heads_k, case.seqlen_k, case.head_dim)
    trained = case.test != "inference"
    ours = [torch.rand(s, dtype=dtype, requires_grad=trained) for s in (shape, shape_k, shape_k)]
    if case.test == "mask":
        ours.append(torch.rand(case.seqlen_q, case.seqlen_k, dtype=dtype, requires_grad=True))
    low = _clones(ours, dtype)
    higher = torch.float64 if case.dtype == "fp32" or case.test == "efficient" else torch.float32
    golden = _clones(ours, higher)
    dropout = Dropout(p=case.dropout_p)
    if case.test == "flash":
        out, kept = flash_attention(level, *ours, causal=case.causal, scale=scale, dropout=dropout)
    else:
        out = efficient_attention(level, *ours, causal=case.causal, scale=scale, dropout=dropout)
        kept = dropout_mask(level, (*shape[:3], case.seqlen_k), dropout) if case.dropout_p else None
    options = {
        "dropout_p": case.dropout_p, "is_causal": case.causal, "scale": scale,
            "enable_gqa": case.heads != case.heads_k,
        "dropout_mask": kept if case.dropout_p else None,
    }  # fmt: skip
    if case.test == "inference":
        with torch.no_grad():
            exact, rough = ((by_math(inputs, options),) for inputs in (golden, low))
        yield from _compared(case.allowed(), exact, rough, (out,))
        return
    grad = torch.rand_like(out)
    found = (out, *torch.autograd.grad(out, ours, grad))
    references = [(by_math(inputs, options), inputs) for inputs in (golden, low)]
    exact, rough = [(o, *torch.autograd.grad(o, inputs, grad.to(o.dtype))) for o, inputs in references]
    yield from _compared(case.allowed(), exact, rough, found)


def by_math(inputs: _Tensors | list[Any], options: Mapping[str, Any]) -> Any:
    """PyTorch's math back end, under a given dropout mask."""
    return torch.ops.aten._scaled_dot_product_attention_math(*inputs, **options)[0]


def _clones(tensors: list[Any], dtype: Any) -> list[Any]:
    return [x.detach().clone().to(dtype).requires_grad_() for x in tensors]


def _compared(
    allowed: Mapping[str, float], golden: _Tensors, low: _Tensors, found: _Tensors, *, more: bool = False
) -> Iterator[Measured]:
    """`more`: instead of the absolute limit the rounding of a sum, as test_varlen_attention.py has it."""
    for (name, factor), exact, rough, one in zip(allowed.items(), golden, low, found, strict=True):
        if more:
            least = 2 * float((exact + 0.3 - 0.3 - exact).abs().max())
            error, of_reference = (float((x - exact.to(x.dtype)).abs().max()) for x in (one, rough))
            limit = factor * of_reference + least
        else:
            error, of_reference = (float((exact - x.to(exact.dtype)).abs().max()) for x in (one, rough))
            limit = max(_LEAST, factor * of_reference)
        yield Measured(name=name, error=error, reference_error=of_reference, limit=limit)


class _Block(torch.nn.Module):  # type: ignore[misc]
    """Attention between projections, as test_varlen_attention.py has it: they are what errs in half
    precision."""

    def __init__(self, case: Case, dtype: Any) -> None:
        super().__init__()
        width, self._case = case.heads * case.head_dim, case
        self.q_proj = torch.nn.Linear(width, width, bias=False, dtype=dtype)
        self.kv_proj = torch.nn.Linear(width, 2 * case.heads_k * case.head_dim, bias=False, dtype=dtype)
        self.out_proj = torch.nn.Linear(width, width, bias=False, dtype=dtype)

    def forward(self, x: Any, attention: Callable[..., Any]) -> Any:
        """x is (tokens, width)."""
        case = self._case
        q = self.q_proj(x).view(-1, case.heads, case.head_dim)
        k, v = self.kv_proj(x).view(-1, 2, case.heads_k, case.head_dim).unbind(1)
        return self.out_proj(attention(q, k, v).flatten(1))


def _packed(case: Case, level: Level) -> Iterator[Measured]:
    """The worst sequence of each result."""
    dtype, width = _DTYPES[case.dtype], case.heads * case.head_dim
    golden_block, block = _Block(case, torch.float32), _Block(case, dtype)
    block.load_state_dict(golden_block.state_dict())
    x = torch.randn(sum(case.lengths), width, dtype=dtype, requires_grad=True)
    exact_x, rough_x = _clones([x], torch.float32)[0], _clones([x], dtype)[0]
    lengths = torch.tensor([0, *torch.tensor(case.lengths).cumsum(0)], dtype=torch.int32)
    longest, scale = max(case.lengths), case.scale if isinstance(case.scale, float) else None

    def ours(q: Any, k: Any, v: Any) -> Any:
        both = (lengths, lengths), (longest, longest)
        nested = case.test == "nested"
        return packed_attention(level, q, k, v, *both, window=case.window, scale=scale, nested=nested)

    def by_sequence(q: Any, k: Any, v: Any) -> Any:
        parts = (x.split(case.lengths) for x in (q, k, v))
        return torch.cat([_masked(case, scale, *part) for part in zip(*parts, strict=True)])

    grad = torch.randn_like(x)
    found, exact, rough = (
        (out, *torch.autograd.grad(out, inputs, grad.to(out.dtype)))
        for out, inputs in (
            (block(x, ours), x),
            (golden_block(exact_x, by_sequence), exact_x),
            (block(rough_x, by_sequence), rough_x),
        )
    )
    worst: dict[str, Measured] = {}
    for start, end in itertools.pairwise(lengths.tolist()):
        golden, low, one = (tuple(y[start:end] for y in side) for side in (exact, rough, found))
        for measured in _compared(case.allowed(), golden, low, one, more=True):
            known = worst.get(measured.name)
            if known is None or _excess(measured) > _excess(known):
                worst[measured.name] = measured
    yield from worst.values()


def _excess(one: Measured) -> float:
    return math.inf if math.isnan(one.error) else one.error - one.limit


def _masked(case: Case, scale: float | None, *tensors: Any) -> Any:
    """One sequence by the math back end, with the window as a mask."""
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in tensors)
    length = q.shape[2]
    distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    left, right = (length if side < 0 else side for side in case.window)
    hidden = torch.zeros(length, length, dtype=q.dtype)
    hidden.masked_fill_((distance < -left) | (distance > right), -math.inf)
    options = {"attn_mask": hidden, "scale": scale, "enable_gqa": case.heads != case.heads_k}
    return by_math([q, k, v], options)[0].transpose(0, 1)


def _used_keys(case: Case, level: Level) -> Iterator[Measured]:
    """A cache that ends in NaN against the same keys packed: equal, as PyTorch's assertEqual has it."""
    cache, count, dtype = 128, len(case.lengths), _DTYPES[case.dtype]
    q = torch.randn(count, case.heads, case.head_dim, dtype=dtype)
    k, v = (torch.full((count * cache, case.heads, case.head_dim), math.nan, dtype=dtype) for _ in "kv")
    within = torch.cat([torch.arange(z * cache, z * cache + n) for z, n in enumerate(case.lengths)])
    for x in (k, v):
        x[within] = torch.randn(len(within), case.heads, case.head_dim, dtype=dtype)
    ends = torch.arange(count + 1, dtype=torch.int32)
    lengths = torch.tensor([0, *torch.tensor(case.lengths).cumsum(0)], dtype=torch.int32)
    with torch.no_grad():
        used = torch.tensor(case.lengths, dtype=torch.int32)
        found = packed_attention(level, q, k, v, (ends, ends * cache), (1, cache), used_keys=used)
        alone = packed_attention(level, q, k[within], v[within], (ends, lengths), (1, max(case.lengths)))
    yield Measured(name="out", error=float((found - alone).abs().max()), reference_error=0.0, limit=0.0)


def main() -> None:
    libraries = load_libraries(ctypes.CDLL("libamdhip64.so.7"), sys.argv[1], sys.argv[2:])
    levels = {name: Level(minor=minor_of(name), library=library) for name, library in libraries.items()}
    for line in sys.stdin:
        case = case_of(json.loads(line))
        try:
            measured = results(case, levels[case.level])
        except LibraryError as error:  # a case that fails, among others
            sys.stderr.write(f"{case.name()}: {error}\n")
            measured = [Measured(name="call", error=math.nan, reference_error=0.0, limit=0.0)]
        found = {"case": asdict(case), "results": [asdict(one) for one in measured]}
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
