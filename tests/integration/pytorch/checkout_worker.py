"""A process in which PyTorch's own attention functions of a checkout run on a virtual GPU: a JSON line per
call.

python tests/integration/pytorch/checkout_worker.py DEVICE PYTORCH MINOR

The share is an error's part of the bound: six times that of math in the tensors' precision, four roundings,
or 1e-5.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# in front of PyTorch, which looks for an accelerator once
for library in sys.argv[1:3]:
    ctypes.CDLL(library)
import torch  # noqa: E402
from torch.nested._internal import sdpa as nested_attention  # noqa: E402

MINOR = int(sys.argv[3])
_DEVICE, _RUNTIME, _ATEN = torch.ops.aotforge_device, torch.ops.aotforge_runtime, torch.ops.aten
_FLASH, _EFFICIENT = (
    torch.nn.attention.SDPBackend.FLASH_ATTENTION,
    torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION,
)
_HALF, _BFLOAT, _FLOAT = torch.float16, torch.bfloat16, torch.float32
_EPSILON = {_HALF: 2.0**-10, _BFLOAT: 2.0**-7, _FLOAT: 2.0**-19}
_SEED, _OFFSET = 1234, 40
Check = Callable[[], float]
Named = tuple[str, str, Check]


def there(x: Any) -> Any:
    """The tensor on the device."""
    return _DEVICE.upload(x.detach())


def drawn(seed: int, shape: Sequence[int], dtype: Any) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def math_back_end(
    q: Any, k: Any, v: Any, hidden: Any = None, bias: Any = None, keep: Any = None, p: float = 0.0
) -> Any:
    """(batch, heads, rows, head_dim) in the tensors' own precision; rows that see no key are zero."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return (weights if keep is None else weights * keep / (1 - p)) @ v


def causal(rows: int, columns: int, bottom_right: bool = False) -> Any:
    return ~torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows if bottom_right else 0)


def windowed(rows: int, columns: int, left: int, right: int) -> Any:
    distance = torch.arange(columns)[None] - torch.arange(rows)[:, None]
    return (distance < -left) | (distance > right)


def share(found: Sequence[Any], compute: Callable[[Any], Sequence[Any]], dtype: Any) -> float:
    """The largest part of the bound that an error takes; infinite where a result is not finite or HIP has an
    error."""
    worst = 0.0
    for one, exact, rough in zip(found, compute(torch.float64), compute(dtype), strict=True):
        got = (_DEVICE.download(one) if one.is_cuda else one).double()
        if not got.isfinite().all():
            return math.inf
        if got.numel():
            floor = 4 * _EPSILON[dtype] * float(exact.abs().max())
            bound = max(6 * float((rough.double() - exact).abs().max()), floor, 1e-5)
            worst = max(worst, float((got - exact).abs().max()) / bound)
    _DEVICE.wait()
    return math.inf if _DEVICE.last_error() else worst


def with_gradients(
    forward: Callable[..., Any], grad: Any, tensors: Sequence[Any]
) -> Callable[[Any], Sequence[Any]]:
    """Of the reference: output and gradients in a precision."""

    def compute(dtype: Any) -> Sequence[Any]:
        leaves = [x.to(dtype).requires_grad_() for x in tensors]
        out = forward(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(dtype))]

    return compute


def dense(
    backend: Any, dtype: Any, shape: tuple[int, int, int, int, int, int], *, is_causal: bool = False,
        p: float = 0.0,
    bias: str = "", layout: str = "bshd", own_stream: bool = False,
) -> Check:  # fmt: skip
    """`F.scaled_dot_product_attention` and autograd; the shape is batch, heads, heads of K, queries, keys,
    head_dim."""

    def run() -> float:
        batch, heads, heads_k, rows, columns, width = shape
        sizes = ((batch, heads, rows, width), *[(batch, heads_k, columns, width)] * 2)
        tensors = [_laid_out(drawn(n, size, dtype), layout) for n, size in enumerate(sizes)]
        mask: Any = None
        if bias == "bool":
            mask = drawn(9, (batch, heads, rows, columns), dtype) > -1
        elif bias:
            wide = {"full": (batch, heads, rows, columns), "row": (1, 1, 1, columns), "2d": (rows, columns)}[
                bias
            ]
            mask = drawn(9, wide, dtype)
            tensors.append(mask)
        placed = [there(x).requires_grad_() for x in tensors]
        _RUNTIME.seed(_SEED, _OFFSET)
        _RUNTIME.stream(own_stream)
        with torch.nn.attention.sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(
                *placed[:3], there(mask) if bias == "bool" else placed[3] if bias else None, p, is_causal,
                enable_gqa=heads != heads_k,
            )  # fmt: skip
        grad = drawn(5, out.shape, dtype)
        gradients = torch.autograd.grad(out, placed, there(grad))
        _RUNTIME.stream(False)
        keep = None
        if p:
            pattern = there(torch.zeros(batch, heads, rows, columns))
            _ATEN._fill_mem_eff_dropout_mask_(pattern, p, _SEED, _OFFSET)
            keep = _DEVICE.download(pattern) > 0
        hidden = ~mask if bias == "bool" else causal(rows, columns) if is_causal else None

        def reference(q: Any, k: Any, v: Any, *more: Any) -> Any:
            return math_back_end(q, k, v, hidden, more[0] if more else None, keep, p)

        return share([out.detach(), *gradients], with_gradients(reference, grad, tensors), dtype)

    return run


def _laid_out(x: Any, layout: str) -> Any:
    """The same values with another order in memory."""
    if layout == "bhsd":
        return x
    if layout == "odd":
        wide = torch.zeros(*x.shape[:-1], x.shape[-1] + 8, dtype=x.dtype)
        wide[..., 8:] = x
        return wide[..., 8:]
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def packed(
    op: str, dtype: Any, queries: Sequence[int], keys: Sequence[int], heads: tuple[int, int], width: int, *,
    is_causal: bool = False, window: tuple[int, int] | None = None, used: Sequence[int] | None = None,
) -> Check:  # fmt: skip
    """Operators of packed sequences. `used`: the keys of a cache that are used, forward alone."""

    def run() -> float:
        sizes = (sum(queries), heads[0]), (sum(keys), heads[1]), (sum(keys), heads[1])
        tensors = [drawn(n, (*size, width), dtype) for n, size in enumerate(sizes)]
        ends = [
            torch.tensor([0, *torch.tensor(list(n)).cumsum(0)], dtype=torch.int32) for n in (queries, keys)
        ]
        arguments = (there(ends[0]), there(ends[1]), max(queries), max(keys))
        placed, grad = [there(x) for x in tensors], drawn(5, (*sizes[0], width), dtype)
        sides = {} if window is None else {"window_size_left": window[0], "window_size_right": window[1]}
        if used is not None:
            more = {"seqused_k": there(torch.tensor(list(used), dtype=torch.int32))}
            out, *_ = _ATEN._flash_attention_forward(
                *placed, *arguments, 0.0, is_causal, False, **sides, **more
            )
            found = [out]
        elif op == "flash":
            out, rows, *seeds, _ = _ATEN._flash_attention_forward(
                *placed, *arguments, 0.0, is_causal, False, **sides
            )
            backward = _ATEN._flash_attention_backward
            found = [
                out, *backward(there(grad), *placed, out, rows, *arguments, 0.0, is_causal, *seeds, **sides)
            ]  # fmt: skip
        else:
            one = [x.unsqueeze(0) for x in placed]
            out, rows, seed, offset, *_ = _ATEN._efficient_attention_forward(
                *one, None, *arguments, 0.0, int(is_causal), True
            )
            gradients = _ATEN._efficient_attention_backward(
                there(grad).unsqueeze(0),
                *one,
                None,
                out,
                *arguments,
                rows,
                0.0,
                seed,
                offset,
                int(is_causal),
                False,
            )
            found = [x[0] for x in (out, *gradients[:3])]

        def reference(q: Any, k: Any, v: Any) -> Any:
            parts = []
            for z, n in enumerate(queries):
                first, count = int(ends[1][z]), keys[z] if used is None else used[z]
                rows_q = q[ends[0][z] : ends[0][z] + n].transpose(0, 1)[None]
                rows_k, rows_v = (x[first : first + count].transpose(0, 1)[None] for x in (k, v))
                hidden = windowed(n, count, *window) if window else None
                if is_causal:
                    hidden = causal(n, count, op == "flash" and MINOR >= 12)
                parts.append(math_back_end(rows_q, rows_k, rows_v, hidden)[0].transpose(0, 1))
            return torch.cat(parts)

        compute = with_gradients(reference, grad, tensors)
        return share(found, compute if used is None else lambda precision: compute(precision)[:1], dtype)

    return run


def nested(dtype: Any, backend: Any) -> Check:
    """Python's nested tensors, as a transformer trains on them."""

    def run() -> float:
        tensors = [drawn(n, (39, 2, 64), dtype) for n in range(3)]
        offsets = torch.tensor([0, 5, 38, 39])
        placed = [there(x).requires_grad_() for x in tensors]
        views = [
            torch.nested.nested_tensor_from_jagged(x, there(offsets), min_seqlen=1, max_seqlen=33)
            for x in placed
        ]
        with torch.nn.attention.sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in views))
        out = out.transpose(1, 2).values()
        grad = drawn(5, (39, 2, 64), dtype)
        gradients = torch.autograd.grad(out, placed, there(grad))

        def reference(*all_of: Any) -> Any:
            parts = zip(*(x.split((5, 33, 1)) for x in all_of), strict=True)
            return torch.cat(
                [math_back_end(*(x.transpose(0, 1)[None] for x in part))[0].transpose(0, 1) for part in parts]
            )

        return share([out.detach(), *gradients], with_gradients(reference, grad, tensors), dtype)

    return run


def calls() -> Iterator[Named]:
    """Group, name and check."""
    for dtype in (_HALF, _BFLOAT):
        for make in (_shapes, _options, _packed):
            for group, name, check in make(dtype):
                yield group, f"{str(dtype)[6:]} {name}", check
    for rows, columns in ((1, 1), (33, 77)):
        yield "fp32", f"{rows}x{columns}", dense(_EFFICIENT, _FLOAT, (1, 2, 2, rows, columns, 64))
    yield "fp32", "causal", dense(_EFFICIENT, _FLOAT, (1, 2, 2, 33, 33, 40), is_causal=True)
    yield "fp32", "bias", dense(_EFFICIENT, _FLOAT, (1, 2, 2, 33, 40, 64), bias="full")
    yield "fp32", "dropout", dense(_EFFICIENT, _FLOAT, (1, 2, 2, 33, 40, 64), p=0.3)


def _shapes(dtype: Any) -> Iterator[Named]:
    for width in (40, 64, 80, 96, 128):
        yield "flash", f"{width} causal", dense(_FLASH, dtype, (1, 2, 2, 65, 65, width), is_causal=True)
        yield "flash", f"{width}", dense(_FLASH, dtype, (2, 2, 2, 33, 77, width))
    for rows, columns in ((1, 1), (1, 77), (17, 129), (128, 128), (200, 64)):
        for backend, group in ((_FLASH, "flash"), (_EFFICIENT, "efficient")):
            yield group, f"{rows}x{columns}", dense(backend, dtype, (1, 2, 2, rows, columns, 64))
    for rows, columns in ((5, 9), (9, 5), (70, 70)):
        shape = (1, 2, 2, rows, columns, 64)
        yield "efficient", f"{rows}x{columns} causal", dense(_EFFICIENT, dtype, shape, is_causal=True)
    for heads in ((4, 1), (6, 2)):
        yield "gqa", f"{heads}", dense(_FLASH, dtype, (2, *heads, 33, 50, 64))
    for width in (8, 13, 256, *((512,) if MINOR >= 12 else ())):
        for backend in (_FLASH, _EFFICIENT) if width != 13 else (_FLASH,):
            yield "head_dim", f"{width} {backend}", dense(backend, dtype, (1, 1, 1, 20, 30, width))


def _options(dtype: Any) -> Iterator[Named]:
    for backend in (_FLASH, _EFFICIENT):
        for layout in ("bhsd", "odd"):
            yield "layout", f"{layout} {backend}", dense(backend, dtype, (2, 2, 2, 40, 50, 64), layout=layout)
        for p in (0.1, 0.5):
            yield "dropout", f"{p} {backend}", dense(backend, dtype, (2, 2, 2, 40, 50, 64), p=p)
    for bias in ("full", "row", "2d", "bool"):
        yield "bias", bias, dense(_EFFICIENT, dtype, (2, 2, 2, 40, 50, 64), bias=bias)
    yield "bias", "full, dropout", dense(_EFFICIENT, dtype, (2, 2, 2, 40, 50, 64), bias="full", p=0.3)
    yield "stream", "of its own", dense(_FLASH, dtype, (1, 2, 2, 40, 40, 64), own_stream=True)


def _packed(dtype: Any) -> Iterator[Named]:
    three = [5, 33, 1]
    for is_causal in (False, True):
        name = " causal" if is_causal else ""
        yield "packed", f"flash{name}", packed("flash", dtype, three, three, (2, 2), 64, is_causal=is_causal)
        if MINOR >= 12:  # L of PyTorch up to 2.12 holds one sequence: pytorch/pytorch#168788
            check = packed("efficient", dtype, three, three, (2, 2), 64, is_causal=is_causal)
            yield "packed", f"efficient{name}", check
    yield "packed", "GQA", packed("flash", dtype, [17, 40], [30, 64], (4, 2), 64)
    yield "packed", "an empty sequence", packed("flash", dtype, [3, 0, 20], [7, 5, 20], (2, 2), 64)
    yield "nested", "flash", nested(dtype, _FLASH)
    if MINOR >= 12:  # before, a window without is_causal has no mask in the backward pass of PyTorch
        yield "packed", "window", packed("flash", dtype, [17, 40], [17, 40], (2, 2), 64, window=(8, 4))
        yield "used keys", "", packed("flash", dtype, [1, 1, 1], [32] * 3, (2, 2), 64, used=[5, 32, 17])
        yield "nested", "efficient", nested(dtype, _EFFICIENT)


def gates() -> dict[str, Any]:
    """What PyTorch's own gates answer, by dtype and head_dim: flash, memory-efficient, and the number of the
    back end chosen."""
    found: dict[str, Any] = {"check_gpu": _RUNTIME.check_gpu()}
    for dtype in (_HALF, _BFLOAT, _FLOAT):
        for width in (13, 40, 64, 256, 512):
            q = there(drawn(1, (1, 2, 16, width), dtype))
            can = [_RUNTIME.can_use(flash, q, q, q, None, 0.0, False, False) for flash in (True, False)]
            found[f"{str(dtype)[6:]} {width}"] = [*can, _ATEN._fused_sdp_choice(q, q, q)]
    return found


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    # nested tensors choose in Python, where a CPU build answers that there is no GPU, and convert to a device
    # by name
    torch.cuda._lazy_init = lambda: None
    chosen = torch.backends.cuda
    served = _RUNTIME.check_gpu() == 0
    nested_attention.can_use_flash_attention = lambda *_, **__: served and chosen.flash_sdp_enabled()
    nested_attention.can_use_efficient_attention = lambda *_, **__: (
        served and chosen.mem_efficient_sdp_enabled()
    )
    _write({"group": "gates", "answers": gates()})
    for group, name, check in calls():
        line: dict[str, Any] = {"group": group, "name": name}
        try:
            line["share"] = check()
        except RuntimeError as error:  # a call that fails, among others
            line |= {"share": math.inf, "error": str(error).split("\n")[0]}
            _DEVICE.last_error()
        _write(line)


if __name__ == "__main__":
    main()
