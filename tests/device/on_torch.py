"""Functions of the operator library on PyTorch's tensors and stream, also of more than 2^31 elements."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_double, c_void_p
from typing import Any

import torch

from tests.support.operator_library import CUDA, ROCM, CTensor, OperatorLibrary, integers

_CODES = {torch.float16: (2, 16), torch.bfloat16: (4, 16), torch.float32: (2, 32), torch.int8: (0, 8)}


def c_tensor(tensor: torch.Tensor) -> CTensor:
    """The C structure of a PyTorch tensor."""
    code, bits = _CODES[tensor.dtype]
    return CTensor(
        data=tensor.data_ptr(),
        device_type=ROCM if torch.version.hip else CUDA,
        device_id=tensor.device.index or 0,
        ndim=tensor.dim(),
        code=code,
        bits=bits,
        lanes=1,
        shape=integers(tensor.shape),
        strides=integers(tensor.stride()),
    )


def caller(library: OperatorLibrary, name: str, *arguments: Any) -> Callable[[], int]:
    """A call on PyTorch's stream, as short as Python makes one."""
    kept = [c_tensor(one) if isinstance(one, torch.Tensor) else one for one in arguments]
    given = [byref(one) if isinstance(one, CTensor) else one for one in kept]
    given.append(c_void_p(torch.cuda.current_stream().cuda_stream))
    function = getattr(library.library, f"aotforge_{name}")
    return lambda kept=kept: function(*given)  # type: ignore[misc]


def adder(
    library: OperatorLibrary, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor
) -> Callable[[], int]:
    """A call of aotforge_add."""
    return caller(library, "add", left, right, c_double(1.0), out)


def large(library: OperatorLibrary) -> int:
    """Number of wrong ones among calls of more than 2^31 elements: contiguous, of rows, transposed."""
    wrong = 0
    n = 2**31 + 8195
    x = torch.randint(-100, 100, (n,), device="cuda", dtype=torch.int8)
    y = torch.randint(-100, 100, (n,), device="cuda", dtype=torch.int8)
    out = torch.empty_like(x)
    tensors = [(x, y, out)]
    rows, columns = 2**19 + 1, 4096
    part = rows * columns  # just above 2^31
    tensors.append((x[:part].view(rows, columns), y[:columns], out[:part].view(rows, columns)))
    side = 46341  # its square is just above 2^31
    square, other, result = (tensor[: side * side].view(side, side) for tensor in (x, y, out))
    tensors.append((square.t(), other, result))
    for left, right, result in tensors:
        out.zero_()
        code = adder(library, left, right, result)()
        torch.cuda.synchronize()
        wrong += bool(code) or not torch.equal(result, torch.add(left, right))
    return wrong
