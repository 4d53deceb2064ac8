"""Speed of Triton kernels on the CPU over PyTorch's operators, with the same threads, and of a launch.

    python -m benchmarks.cpu_kernels [--threads N] [--lengths 512 4096]

Ratios above 1: the kernel is faster. `bandwidth` is over a copy of the same bytes by PyTorch. Each figure is
the best of several runs,
for 0.2 to 2 seconds; every result is compared with PyTorch's. Attention has lengths of its own.
"""

# ruff: noqa: ANN001, ANN201 - kernels are Triton's dialect
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
from __future__ import annotations

import argparse
import os
import struct
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton import backends
from triton.backends import Backend

from benchmarks import cpu_attention
from ttcpu.compiler import CPUBackend
from ttcpu.driver import ENABLE, CPUDriver
from ttcpu.launch import REQUEST, launcher
from ttcpu.levels import host_level

RUNS, LEAST, MOST = 7, 0.2, 2.0
SMALL, LARGE = 1024, 2048


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def softmax(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(x + at)
    power = tl.exp(row - tl.max(row, 0))
    tl.store(out + at, power / tl.sum(power, 0))


@triton.jit
def layer_norm(x, w, b, out, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * BLOCK + column)
    centred = row - tl.sum(row, 0) / BLOCK
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / BLOCK + 1e-5)
    made = centred * scale * tl.load(w + column) + tl.load(b + column)
    tl.store(out + tl.program_id(0) * BLOCK + column, made)


@triton.jit
def dropout(x, out, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(kept, tl.load(x + at) / (1 - p), 0.0))


@triton.jit
def matmul(a, b, c, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + m[:, None] * N + k[None, :], b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, N, BK):
        total = tl.dot(tl.load(left), tl.load(right), total, input_precision="ieee")
        left += BK
        right += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty))


def seconds(work: Callable[[], object], calls: int = 1) -> float:
    work()
    best, begin, runs = float("inf"), time.perf_counter(), 0
    while runs < RUNS or time.perf_counter() - begin < LEAST:
        start = time.perf_counter()
        for _ in range(calls):
            work()
        best = min(best, (time.perf_counter() - start) / calls)
        runs += 1
        if time.perf_counter() - begin > MOST:
            break
    return best


def row(name: str, ours: float, torchs: float, copy: float | None = None) -> None:
    bandwidth = f"{copy / ours:9.2f}" if copy else " " * 9
    print(f"{name:26} {ours * 1e3:10.3f} {torchs * 1e3:10.3f} {torchs / ours:8.2f} {bandwidth}", flush=True)


def memory_bound() -> None:
    n, rows = 1 << 24, 1 << 14
    x, y, out = torch.randn(n), torch.randn(n), torch.empty(n)
    copy = seconds(lambda: out.copy_(x))
    row(
        "vector add",
        seconds(lambda: add[(n // 4096,)](x, y, out, n, BLOCK=4096)),
        seconds(lambda: torch.add(x, y, out=out)),
        copy * 1.5,
    )
    table = x.view(rows, n // rows)
    width = table.shape[1]
    row(
        "softmax",
        seconds(lambda: softmax[(rows,)](x, out, BLOCK=width)),
        seconds(lambda: torch.softmax(table, 1)),
        copy,
    )
    w, b = torch.rand(width), torch.rand(width)
    row(
        "layer norm",
        seconds(lambda: layer_norm[(rows,)](x, w, b, out, BLOCK=width)),
        seconds(lambda: torch.nn.functional.layer_norm(table, (width,), w, b)),
        copy,
    )
    row(
        "dropout",
        seconds(lambda: dropout[(n // 4096,)](x, out, 0.5, 7, BLOCK=4096)),
        seconds(lambda: torch.dropout(x, 0.5, True)),
        copy,
    )


def products() -> None:
    for size in (SMALL, LARGE):
        for kind, (bm, bn, bk) in (
            (torch.float32, (128, 128, 64)),
            (torch.bfloat16, (256, 256, 64)),
            (torch.float16, (64, 128, 128)),
        ):
            a, b = torch.randn(size, size).to(kind), torch.randn(size, size).to(kind)
            c = torch.empty_like(a)
            grid = (size // bm, size // bn)
            work: Any = lambda: matmul[grid](a, b, c, size, BM=bm, BN=bn, BK=bk)  # noqa: B023, E731 - called here
            ours, torchs = seconds(work), seconds(lambda: a @ b)  # noqa: B023 - called here
            torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-2, atol=0.3)
            row(f"matmul {str(kind).removeprefix('torch.')} {size}", ours, torchs)


def compile_time() -> None:
    """Of a new specialisation, to machine code in this process."""
    x = torch.randn(8192)
    names = {
        "vector add": lambda: add[(1,)](x, x, x, 64, BLOCK=2048),
        "softmax": lambda: softmax[(1,)](x, x, BLOCK=4096),
    }
    for name, call in names.items():
        start = time.perf_counter()
        call()
        print(f"compile {name}: {time.perf_counter() - start:.2f} s", flush=True)
    for name in ("attn_fwd", "bwd_dk_dv", "bwd_dq"):
        call = cpu_attention.attention(128, 32, torch.float32, causal=False).launch(name)
        start = time.perf_counter()
        call()
        print(f"compile {name}: {time.perf_counter() - start:.2f} s", flush=True)


def main(threads: int, lengths: tuple[int, ...]) -> None:
    os.environ |= {ENABLE: "1", "TRITON_DEFAULT_BACKEND": "cpu", "TRITON_DEFAULT_FP_FUSION": "1"}
    backends.backends["cpu"] = Backend(CPUBackend, CPUDriver)
    torch.set_num_threads(threads)
    print(
        f"{host_level()}, {threads} threads\n{'':26} {'ms':>10} {'torch ms':>10} {'ratio':>8} "
        f"{'bandwidth':>9}"
    )
    memory_bound()
    products()
    for name, ours, torchs in cpu_attention.rows(lengths):
        row(name, seconds(ours), seconds(torchs))
    x = torch.zeros(64)
    front = seconds(lambda: add[(1,)](x, x, x, 64, BLOCK=64), calls=2000)
    print(f"launch of one program by Triton's front end: {front * 1e6:.2f} us")
    loaded = add.warmup(x, x, x, 64, BLOCK=64, grid=(1,))
    place = x.data_ptr()
    request = REQUEST.pack(1, 1, 1, 1, *loaded.function) + struct.pack("<QQQi4x", place, place, place, 64)
    start = launcher()
    native = seconds(lambda: start(request, None), calls=20000)
    print(f"of one program by the native function: {native * 1e6:.2f} us")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        triton.knobs.cache.dir = folder
        compile_time()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--lengths", type=int, nargs="*", default=[512, 4096])
    chosen = parser.parse_args()
    main(chosen.threads, tuple(chosen.lengths))
