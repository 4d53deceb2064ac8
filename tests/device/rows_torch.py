"""`aotforge_rms_norm` and `aotforge_softmax` beside PyTorch on a GPU, eager and compiled: times of one width
after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref, c_double, c_int64, c_void_p
from typing import Any

import torch

from tests.device.add_torch import c_tensor, milliseconds
from tests.support.operator_library import OperatorLibrary

_ELEMENTS = 2**27
_EPS = 1e-6
_WIDTHS = (64, 128, 512, 1024, 2048, 4096, 5120, 8192, 12288, 16384, 65536, 262144)


def _caller(library: OperatorLibrary, name: str, *arguments: Any) -> Callable[[], int]:
    """A call on PyTorch's stream, as short as Python makes one."""
    kept = [c_tensor(one) if isinstance(one, torch.Tensor) else one for one in arguments]
    given: list[Any] = [one if isinstance(one, (c_double, c_int64)) else byref(one) for one in kept]
    given.append(c_void_p(torch.cuda.current_stream().cuda_stream))
    function = getattr(library.library, f"aotforge_{name}")
    return lambda kept=kept: function(*given)  # type: ignore[misc]


def _calls(
    library: OperatorLibrary, x: torch.Tensor, dim: int
) -> Iterator[
    tuple[str, Callable[[], int], Callable[[], torch.Tensor], Callable[[], torch.Tensor], torch.Tensor]
]:
    """Name, our call, PyTorch's eager and compiled one, and our output."""
    out = torch.empty_like(x)
    compiled = torch.compile(torch.softmax, dynamic=False)
    ours = _caller(library, "softmax", x, c_int64(dim), out)
    yield "softmax", ours, lambda: torch.softmax(x, dim), lambda: compiled(x, dim), out
    if dim != -1:
        return
    weight = torch.randn(x.shape[-1], device="cuda", dtype=torch.float32).to(x.dtype)
    norm = torch.nn.functional.rms_norm
    compiled_norm = torch.compile(norm, dynamic=False)
    shape = (x.shape[-1],)
    ours = _caller(library, "rms_norm", x, weight, c_double(_EPS), out)
    yield (
        "rms_norm",
        ours,
        lambda: norm(x, shape, weight, _EPS),
        lambda: compiled_norm(x, shape, weight, _EPS),
        out,
    )


def speed(library: OperatorLibrary) -> Iterator[str]:
    """A line per function and width: bytes per second, and the ratios to PyTorch."""
    torch._dynamo.config.recompile_limit = 100
    yield f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
    shapes = [((_ELEMENTS // width, width), -1) for width in _WIDTHS] + [
        ((8192, 16384), 0),
        ((64, 1000, 2048), 1),
    ]
    for shape, dim in shapes:
        for dtype in (torch.bfloat16, torch.float32) if shape[-1] == 4096 else (torch.bfloat16,):
            x = torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)
            for name, ours, eager, compiled, out in _calls(library, x, dim):
                if code := ours():
                    yield f"speed {name} {shape}: {code}: {library.library.aotforge_ops_error().decode()}"
                    continue
                close = torch.allclose(
                    out.float(), eager().float(), rtol=2e-2, atol=1e-6 if name == "softmax" else 1e-3
                )
                mine, theirs, best = milliseconds(ours, eager, compiled)
                moved = 2 * x.numel() * x.element_size() / 1e6
                line = f"speed {name} {dtype} {shape} dim {dim}: {moved / mine:.0f} GB/s"
                line += f", {theirs / mine:.2f} x eager, {best / mine:.2f} x compiled"
                yield line + ("" if close else " WRONG")
