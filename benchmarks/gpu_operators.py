"""Functions of the operator library beside PyTorch on a GPU: times, and the overhead of a call.

    python -m benchmarks.gpu_operators PREFIX add|rows|gemm

PREFIX has lib/libaotforge_ops.so and lib/aotriton.images.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from ctypes import c_double, c_int, c_int64
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu_times import milliseconds, milliseconds_each, sets_of
from tests.device.on_torch import adder, caller
from tests.support.operator_library import OperatorLibrary

_ELEMENTS = 2**27
_EPS = 1e-6
_WIDTHS = (64, 128, 512, 1024, 2048, 4096, 5120, 8192, 12288, 16384, 65536, 262144)
_GELU = 2
_SQUARES = (512, 1024, 2048, 4096, 8192)
_SHAPES = (
    *((rows, 4096, 4096) for rows in (1, 16, 32, 64, 128, 256, 512)),
    *((16, 14336, 4096), (16, 4096, 14336), (128, 14336, 4096), (8192, 128, 8192), (65536, 256, 256)),
    *((128, 128, 65536), (1000, 1000, 1000), (4095, 4095, 4096)),
)
"""Rows, columns, inner."""
_Theirs = Callable[[], torch.Tensor]


def _random(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def layouts() -> Iterator[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Names and tensors of the timed calls: at most 2^28 elements."""
    for dtype in (torch.float16, torch.float32):
        n = 2**28
        yield f"contiguous {dtype}", _random(n, dtype=dtype), _random(n, dtype=dtype), _random(n, dtype=dtype)
    yield "contiguous, offset 1", _random(2**26 + 1)[1:], _random(2**26 + 1)[1:], _random(2**26 + 1)[1:]
    rows = (4096, 8192)
    wide = [_random(rows[0], 2 * rows[1])[:, : rows[1]] for _ in range(3)]
    yield "rows of a wider tensor", wide[0], wide[1], wide[2]
    yield "one row broadcast", _random(*rows), _random(rows[1]), _random(*rows)
    yield "one column broadcast", _random(*rows), _random(rows[0], 1), _random(*rows)
    yield "other transposed", _random(*rows), _random(rows[1], rows[0]).t(), _random(*rows)
    yield (
        "all transposed",
        _random(rows[1], rows[0]).t(),
        _random(rows[1], rows[0]).t(),
        _random(rows[1], rows[0]).t(),
    )
    yield "every second element", _random(rows[0], 2 * rows[1])[:, ::2], _random(*rows), _random(*rows)
    four = [_random(64, 128, 16, 256).permute(*order) for order in ((0, 2, 1, 3), (0, 2, 1, 3))]
    yield "heads and positions exchanged", four[0], _random(64, 16, 128, 256), _random(64, 16, 128, 256)
    yield (
        "4 axes in three orders",
        _random(32, 64, 64, 128).permute(3, 1, 0, 2),
        _random(64, 128, 32, 64).permute(1, 0, 2, 3),
        _random(128, 64, 32, 64),
    )
    yield "rows of 32", _random(2**19, 64)[:, :32], _random(2**19, 64)[:, 32:], _random(2**19, 32)


def add(library: OperatorLibrary) -> Iterator[str]:
    """A line per layout: bytes per second of both, and of a copy; then the time of a call on the host."""
    for name, left, right, out in layouts():
        ours = adder(library, left, right, out)
        if code := ours():
            yield f"speed {name}: {code}: {library.library.aotforge_ops_error().decode()}"
            continue
        wrong = not torch.equal(out, torch.add(left, right))
        moved = sum(
            x.untyped_storage().nbytes() if x.numel() < out.numel() else x.numel() * x.element_size()
            for x in (left, right, out)
        )
        mine, theirs, copy = milliseconds(
            {
                "ours": ours,
                "eager": partial(torch.add, left, right, out=out),
                "copy": partial(out.copy_, left),
            },
            cold=False,
        ).values()
        line = f"speed {name}: {moved / mine / 1e6:.0f} GB/s, torch {moved / theirs / 1e6:.0f} GB/s"
        line += f", {theirs / mine:.3f} x torch"
        if name.startswith("contiguous t"):
            copied = 2 * out.numel() * out.element_size() / copy / 1e6
            line += f", copy {copied:.0f} GB/s, {moved / mine / 1e6 / copied:.3f} x copy"
        yield line + (" WRONG" if wrong else "")
    yield overhead(library)


def overhead(library: OperatorLibrary) -> str:
    """Host time of a repeated call of 256 elements, beside torch.add and a call of Python's ctypes that does
    nothing."""
    x = torch.ones(256, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)
    error = library.library.aotforge_ops_error
    calls: dict[str, Callable[[], object]] = {
        "aotforge_add": adder(library, x, x, out),
        "torch.add": lambda: torch.add(x, x, out=out),
        "ctypes alone": error,
    }
    microseconds = {}
    for name, call in calls.items():
        times = []
        for _ in range(20):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(200):
                call()
            times.append((time.perf_counter() - begin) / 200)
        microseconds[name] = sorted(times)[10] * 1e6
    return "host time of a call: " + ", ".join(
        f"{name} {value:.2f} us" for name, value in microseconds.items()
    )


def _of_rows(
    library: OperatorLibrary, x: torch.Tensor, dim: int
) -> Iterator[tuple[str, Callable[[], int], _Theirs, _Theirs, torch.Tensor]]:
    """Name, our call, PyTorch's eager and compiled one, and our output."""
    out = torch.empty_like(x)
    compiled = torch.compile(torch.softmax, dynamic=False)
    ours = caller(library, "softmax", x, c_int64(dim), out)
    yield "softmax", ours, lambda: torch.softmax(x, dim), lambda: compiled(x, dim), out
    if dim != -1:
        return
    weight = _random(x.shape[-1], dtype=x.dtype)
    norm = torch.nn.functional.rms_norm
    compiled_norm = torch.compile(norm, dynamic=False)
    shape = (x.shape[-1],)
    ours = caller(library, "rms_norm", x, weight, c_double(_EPS), out)
    theirs = (partial(function, x, shape, weight, _EPS) for function in (norm, compiled_norm))
    yield "rms_norm", ours, *theirs, out


def rows(library: OperatorLibrary) -> Iterator[str]:
    """A line per function and width: bytes per second, and the ratios to PyTorch."""
    torch._dynamo.config.recompile_limit = 100
    shapes: list[tuple[tuple[int, ...], int]] = [((_ELEMENTS // width, width), -1) for width in _WIDTHS]
    shapes += [((8192, 16384), 0), ((64, 1000, 2048), 1)]
    for shape, dim in shapes:
        for dtype in (torch.bfloat16, torch.float32) if shape[-1] == 4096 else (torch.bfloat16,):
            x = _random(*shape, dtype=dtype)
            for name, ours, eager, compiled, out in _of_rows(library, x, dim):
                if code := ours():
                    yield f"speed {name} {shape}: {code}: {library.library.aotforge_ops_error().decode()}"
                    continue
                close = torch.allclose(
                    out.float(), eager().float(), rtol=2e-2, atol=1e-6 if name == "softmax" else 1e-3
                )
                calls = {"ours": ours, "eager": eager, "compiled": compiled}
                mine, theirs, best = milliseconds(calls, cold=False).values()
                moved = 2 * x.numel() * x.element_size() / 1e6
                line = f"speed {name} {dtype} {shape} dim {dim}: {moved / mine:.0f} GB/s"
                line += f", {theirs / mine:.2f} x eager, {best / mine:.2f} x compiled"
                yield line + ("" if close else " WRONG")


def _compared(
    title: str, flops: float, ours: Callable[[], int], theirs: Callable[[], torch.Tensor], out: torch.Tensor
) -> str:
    if code := ours():
        return f"speed {title}: error {code}"
    wanted = theirs().float()
    difference = float((out.float() - wanted).norm() / wanted.norm())
    mine, other = milliseconds({"ours": ours, "theirs": theirs}).values()
    line = f"speed {title}: {flops / mine / 1e9:.1f} TFLOP/s, {other / mine:.3f} x torch"
    return f"{line}, {mine * 1000:.1f} us" + ("" if difference < 1e-2 else f" WRONG {difference:.3g}")


def _product(
    library: OperatorLibrary, dtype: torch.dtype, shape: tuple[int, int, int], order: str
) -> Iterator[str]:
    """Matrices that are read in turn, so that none is in the cache."""
    rows, columns, inner = shape
    count = sets_of((rows * inner + inner * columns) * dtype.itemsize)
    inputs = [_random(rows, inner, dtype=dtype) for _ in range(count)]
    weights = [_random(inner, columns, dtype=dtype) for _ in range(count)]
    if order == "nt":
        weights = [weight.t().contiguous().t() for weight in weights]
    outs = [torch.empty(rows, columns, device="cuda", dtype=dtype) for _ in range(2 * count)]

    def make() -> dict[str, list[Callable[[], object]]]:
        tensors = list(zip(inputs, weights, outs[:count], outs[count:], strict=True))
        return {
            "ours": [
                caller(library, "gemm", x, weight, None, c_int(0), out) for x, weight, out, _ in tensors
            ],
            "theirs": [partial(torch.mm, x, weight, out=out) for x, weight, _, out in tensors],
        }

    title = f"speed {order} {dtype} {rows} x {columns} x {inner}"
    if code := caller(library, "gemm", inputs[0], weights[0], None, c_int(0), outs[0])():
        yield f"{title}: {code}: {library.library.aotforge_ops_error().decode()}"
        return
    mine, other = milliseconds_each(make).values()
    difference = float((outs[0].float() - outs[count].float()).norm() / outs[count].float().norm())
    rate = 2 * rows * columns * inner / mine / 1e9
    line = (
        f"speed {order} {dtype} {rows} x {columns} x {inner}: {rate:.1f} TFLOP/s, {other / mine:.3f} x torch"
    )
    yield f"{line}, {mine * 1000:.1f} us" + ("" if difference < 1e-2 else f" WRONG {difference:.3g}")


def gemm(library: OperatorLibrary) -> Iterator[str]:
    """A line per problem: TFLOP/s and the ratio to PyTorch."""
    torch.backends.cuda.matmul.allow_tf32 = False
    problems = [(torch.bfloat16, shape) for shape in ((*((size,) * 3 for size in _SQUARES), *_SHAPES))]
    problems += [(torch.float16, (4096, 4096, 4096)), (torch.float32, (2048, 2048, 2048))]
    for dtype, shape in problems:
        for order in ("nn", "nt"):
            yield from _product(library, dtype, shape, order)
    yield from _linear(library)


def _linear(library: OperatorLibrary) -> Iterator[str]:
    """A layer with bias and gelu, beside PyTorch's calls and their compilation."""
    for rows in (128, 4096):
        x, weight = _random(rows, 4096), _random(4096, 4096) / 64
        bias, out = _random(4096), torch.empty(rows, 4096, device="cuda", dtype=torch.float16)

        def layer(
            x: torch.Tensor = x, weight: torch.Tensor = weight, bias: torch.Tensor = bias
        ) -> torch.Tensor:
            return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))

        ours = caller(library, "gemm", x, weight.t(), bias, c_int(_GELU), out)
        title, flops = f"linear + bias + gelu, {rows} x 4096 x 4096", 2.0 * rows * 4096**2
        yield _compared(title, flops, ours, layer, out)
        compiled: Callable[[], torch.Tensor] = torch.compile(layer, dynamic=False)
        yield _compared(f"{title}, torch.compile", flops, ours, compiled, out)


def main(prefix: Path, name: str) -> None:
    library = OperatorLibrary(prefix / "lib" / "libaotforge_ops.so")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for line in {"add": add, "rows": rows, "gemm": gemm}[name](library):
        print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
