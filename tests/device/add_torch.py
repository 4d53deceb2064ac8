"""`aotforge_add` beside PyTorch on a GPU: large tensors, times of the cases that the operators' issue names,
overhead of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from ctypes import byref, c_void_p
from functools import partial

import torch

from tests.support.operator_library import CUDA, ROCM, CTensor, OperatorLibrary, integers

_CODES = {torch.float16: (2, 16), torch.bfloat16: (4, 16), torch.float32: (2, 32), torch.int8: (0, 8)}
_REPEAT = 50


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


def adder(
    library: OperatorLibrary, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor
) -> Callable[[], int]:
    """A call of aotforge_add on PyTorch's stream, as short as Python makes one."""
    tensors = [c_tensor(tensor) for tensor in (left, right, out)]
    pointers = [byref(tensor) for tensor in tensors]
    stream = c_void_p(torch.cuda.current_stream().cuda_stream)
    function = library.library.aotforge_add
    return lambda kept=tensors: function(pointers[0], pointers[1], 1.0, pointers[2], stream)  # type: ignore[misc]


def milliseconds(*works: Callable[[], object]) -> list[float]:
    """Median times on the device of executions in turn, so that the clock's changes concern all of them."""
    for work in works:
        for _ in range(5):
            work()
    rounds = [
        [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in works] for _ in range(_REPEAT)
    ]
    for events in rounds:
        for (begin, end), work in zip(events, works, strict=True):
            begin.record()
            work()
            end.record()
    torch.cuda.synchronize()
    times = zip(*([begin.elapsed_time(end) for begin, end in events] for events in rounds), strict=True)
    return [float(sorted(found)[_REPEAT // 2]) for found in times]


def layouts() -> Iterator[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Names and tensors of the timed calls: at most 2^28 elements."""

    def made(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    for dtype in (torch.float16, torch.float32):
        n = 2**28
        yield f"contiguous {dtype}", made(n, dtype=dtype), made(n, dtype=dtype), made(n, dtype=dtype)
    yield "contiguous, offset 1", made(2**26 + 1)[1:], made(2**26 + 1)[1:], made(2**26 + 1)[1:]
    rows = (4096, 8192)
    wide = [made(rows[0], 2 * rows[1])[:, : rows[1]] for _ in range(3)]
    yield "rows of a wider tensor", wide[0], wide[1], wide[2]
    yield "one row broadcast", made(*rows), made(rows[1]), made(*rows)
    yield "one column broadcast", made(*rows), made(rows[0], 1), made(*rows)
    yield "other transposed", made(*rows), made(rows[1], rows[0]).t(), made(*rows)
    yield "all transposed", made(rows[1], rows[0]).t(), made(rows[1], rows[0]).t(), made(rows[1], rows[0]).t()
    yield "every second element", made(rows[0], 2 * rows[1])[:, ::2], made(*rows), made(*rows)
    four = [made(64, 128, 16, 256).permute(*order) for order in ((0, 2, 1, 3), (0, 2, 1, 3))]
    yield "heads and positions exchanged", four[0], made(64, 16, 128, 256), made(64, 16, 128, 256)
    yield (
        "4 axes in three orders",
        made(32, 64, 64, 128).permute(3, 1, 0, 2),
        made(64, 128, 32, 64).permute(1, 0, 2, 3),
        made(128, 64, 32, 64),
    )
    yield "rows of 32", made(2**19, 64)[:, :32], made(2**19, 64)[:, 32:], made(2**19, 32)


def speed(library: OperatorLibrary) -> Iterator[str]:
    """A line per layout: bytes per second of both, and of a copy; then the time of a call on the host."""
    yield f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}"
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
            ours, partial(torch.add, left, right, out=out), partial(out.copy_, left)
        )
        line = f"speed {name}: {moved / mine / 1e6:.0f} GB/s, torch {moved / theirs / 1e6:.0f} GB/s, {theirs / mine:.3f} x torch"
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
    found = {}
    for name, call in calls.items():
        times = []
        for _ in range(20):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(200):
                call()
            times.append((time.perf_counter() - begin) / 200)
        found[name] = sorted(times)[10] * 1e6
    return "host time of a call: " + ", ".join(f"{name} {value:.2f} us" for name, value in found.items())


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
