"""`aotforge_gemm` beside PyTorch, which calls cuBLAS, on a GPU: times of square and of few rows, both orders
of the weight, a linear layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_void_p

import torch

from tests.device.add_torch import c_tensor, milliseconds
from tests.support.operator_library import OperatorLibrary

_GELU = 2
_SQUARES = (512, 1024, 2048, 4096, 8192)
_FEW = ((1, 4096, 4096), (16, 4096, 4096), (16, 14336, 4096), (128, 4096, 4096))


def _caller(
    library: OperatorLibrary,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    activation: int,
) -> Callable[[], int]:
    """A call on PyTorch's stream, as short as Python makes one."""
    kept = [one if one is None else c_tensor(one) for one in (x, weight, bias, out)]
    given = [one if one is None else byref(one) for one in kept]
    stream = c_void_p(torch.cuda.current_stream().cuda_stream)
    function = library.library.aotforge_gemm
    return lambda kept=kept: function(*given[:3], c_int(activation), given[3], stream)  # type: ignore[misc]


def _random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def _compared(
    title: str, flops: float, ours: Callable[[], int], theirs: Callable[[], torch.Tensor], out: torch.Tensor
) -> str:
    if code := ours():
        return f"speed {title}: error {code}"
    wanted = theirs().float()
    difference = float((out.float() - wanted).norm() / wanted.norm())
    mine, other = milliseconds(ours, theirs)
    line = (
        f"speed {title}: {flops / mine / 1e9:.1f} TFLOP/s, {other / mine:.3f} x torch, {mine * 1000:.1f} us"
    )
    return line + ("" if difference < 1e-2 else f" WRONG {difference:.3g}")


def speed(library: OperatorLibrary) -> Iterator[str]:
    """A line per problem: TFLOP/s and the ratio to PyTorch."""
    torch.backends.cuda.matmul.allow_tf32 = False
    yield f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    problems = [(torch.float16, size, size, size) for size in _SQUARES]
    problems += [(torch.float16, *one) for one in _FEW]
    problems += [(torch.bfloat16, 4096, 4096, 4096), (torch.float32, 2048, 2048, 2048)]
    for dtype, rows, columns, inner in problems:
        x, stored = _random(rows, inner, dtype=dtype), _random(inner, columns, dtype=dtype)
        out, flops = torch.empty(rows, columns, device="cuda", dtype=dtype), 2.0 * rows * columns * inner
        for order, weight in (("nn", stored), ("nt", stored.t().contiguous().t())):
            title = f"{order} {dtype} {rows} x {columns} x {inner}"
            ours = _caller(library, x, weight, None, out, 0)
            yield _compared(title, flops, ours, lambda x=x, weight=weight, out=out: torch.mm(x, weight), out)  # type: ignore[misc]
    yield from _linear(library)


def _linear(library: OperatorLibrary) -> Iterator[str]:
    """A layer with bias and gelu, beside PyTorch's calls and their compilation."""
    x, weight = _random(4096, 4096, dtype=torch.float16), _random(4096, 4096, dtype=torch.float16) / 64
    bias, out = (
        _random(4096, dtype=torch.float16),
        torch.empty(4096, 4096, device="cuda", dtype=torch.float16),
    )

    def layer() -> torch.Tensor:
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))

    ours = _caller(library, x, weight.t(), bias, out, _GELU)
    yield _compared("linear + bias + gelu, 4096 cubed", 2.0 * 4096**3, ours, layer, out)
    compiled: Callable[[], torch.Tensor] = torch.compile(layer, dynamic=False)
    yield _compared("the same beside torch.compile", 2.0 * 4096**3, ours, compiled, out)
