"""Attention of a release's library on an NVIDIA GPU beside PyTorch's back ends: errors and times.

    python -m benchmarks.gpu_attention PREFIX

PREFIX is an unpacked release (lib/libaotriton_v2.so, lib/aotriton.images).
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from ctypes import (
    POINTER,
    Structure,
    Union,
    c_char_p,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.flash.operators import ATTN_BWD, ATTN_FWD
from kernels.flash_atomic.operators import ATTN_BWD_ATOMIC

CUDA = 2
KINDS = ["ptr", "i32", "i64", "u64", "f32"]
NUMBERS = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}


class _Member(Union):
    _fields_ = [("ptr", c_void_p), ("i32", c_int32), ("i64", c_int64), ("u64", c_uint64), ("f32", c_float)]


class _Value(Structure):
    _fields_ = [("name", c_char_p), ("type", c_int32), ("reserved", c_int32), ("to", _Member)]


class Library:
    """`aotforge_launch` of one release, on PyTorch's current stream."""

    def __init__(self, prefix: Path) -> None:
        self._library = ctypes.CDLL(str(next((prefix / "lib").glob("libaotriton_v2.so"))))
        self._library.aotforge_launch.argtypes = [c_char_p, POINTER(_Value), c_size_t, c_int32, c_void_p]

    def prepared(self, operator: Any, values: dict[str, float]) -> Any:
        """A call with these values, those not named 0."""
        made = (_Value * len(operator.values))()
        for one, declared in zip(made, operator.values, strict=True):
            one.name, one.type = declared.name.encode(), KINDS.index(declared.type)
            setattr(one.to, declared.type, values.get(declared.name, 0))
        launch, name, count = self._library.aotforge_launch, operator.name.encode(), len(made)

        def call() -> int:
            return int(launch(name, made, count, CUDA, torch.cuda.current_stream().cuda_stream))

        return call


def error_of(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative error in the norm of all elements; infinite when one is not finite."""
    if not torch.isfinite(found).all():
        return float("inf")
    difference = torch.linalg.vector_norm(found.detach().double() - wanted)
    return float(difference) / float(torch.linalg.vector_norm(wanted))


class Attention:
    """One problem: inputs, a float64 reference with its gradients, and the library's outputs, which begin as
    NaN."""

    def __init__(
        self, *, batch: int, heads: int, rows: int, width: int, dtype: torch.dtype, causal: bool
    ) -> None:
        shape, generator = (
            (batch, heads, rows, width),
            torch.Generator(device="cuda").manual_seed(rows + width),
        )
        self.q, self.k, self.v, self.do = (
            torch.randn(shape, generator=generator, device="cuda").to(dtype) for _ in range(4)
        )
        self.causal, self.scale = causal, width**-0.5
        self.out, self.dq, self.dk, self.dv = (torch.full_like(self.q, float("nan")) for _ in range(4))
        self.dq_acc = torch.zeros(shape, device="cuda")
        self.lse, self.delta = (
            torch.full((batch, heads, rows), float("nan"), device="cuda") for _ in range(2)
        )
        self.values: dict[str, float] = {
            "batch": batch, "num_head_q": heads, "num_head_k": heads, "group": 1, "seqlen_q": rows,
            "seqlen_k": rows, "head_dim": width, "head_dim_v": width, "width": width, "sm_scale": self.scale,
            "dtype": NUMBERS[dtype], "mask": int(causal), "window_left": rows if causal else 0,
            "window_right": 0,
        }  # fmt: skip
        tensors = {
            "Q": (self.q, "q", "m"), "K": (self.k, "k", "n"), "V": (self.v, "v", "n"),
            "Out": (self.out, "o", "m"), "DO": (self.do, "do", "m"), "DQ": (self.dq, "dq", "m"),
            "DK": (self.dk, "dk", "n"), "DV": (self.dv, "dv", "n"), "L": (self.lse, "l", "m"),
            "D": (self.delta, "d", "m"), "DQ_ACC": (self.dq_acc, "dqa", "m"),
        }  # fmt: skip
        for name, (tensor, letters, row) in tensors.items():
            self.values[name] = tensor.data_ptr()
            self.values |= zip(
                (f"stride_{letters}{axis}" for axis in f"zh{row}"), tensor.stride(), strict=False
            )

    def reference(self) -> tuple[torch.Tensor, ...]:
        """out, dq, dk, dv in float64, head by head."""
        results: list[list[torch.Tensor]] = [[], [], [], []]
        for head in range(self.q.shape[1]):
            q, k, v = (x[:, head].double().requires_grad_() for x in (self.q, self.k, self.v))
            scores = q @ k.transpose(-1, -2) * self.scale
            if self.causal:
                rows = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cuda").tril()
                scores = scores.masked_fill(~rows, float("-inf"))
            out = scores.softmax(-1) @ v
            grads = torch.autograd.grad(out, (q, k, v), self.do[:, head].double())
            for found, one in zip(results, (out.detach(), *grads), strict=True):
                found.append(one)
        return tuple(torch.stack(found, 1) for found in results)


def check_attention(library: Library, case: Attention) -> dict[str, float]:
    """Relative errors of the four results, and PyTorch's in the same precision."""
    for result in (case.out, case.dq, case.dk, case.dv):
        result.fill_(float("nan"))
    case.dq_acc.zero_()
    for operator in (ATTN_FWD, ATTN_BWD):
        code = library.prepared(operator, case.values)()
        assert code == 0, (operator.name, code)
    torch.cuda.synchronize()
    q, k, v = (x.detach().clone().requires_grad_() for x in (case.q, case.k, case.v))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.causal)
    grads = torch.autograd.grad(theirs, (q, k, v), case.do)
    found: dict[str, float] = {}
    for name, ours, other, wanted in zip(
        ("out", "dq", "dk", "dv"),
        (case.out, case.dq, case.dk, case.dv),
        (theirs, *grads),
        case.reference(),
        strict=True,
    ):
        found |= {name: error_of(ours, wanted), f"torch {name}": error_of(other, wanted)}
    return found


def milliseconds(call: Any, *, repeats: int = 50) -> float:
    """Median time of a call, by events; the L2 cache is written over before each.

    The GPU waits first, so that a call is queued before its time begins: PyTorch's autograd takes longer than
    some calls.
    """
    cache = torch.empty(1 << 26, dtype=torch.int32, device="cuda")
    times = []
    for _ in range(repeats + 5):
        cache.zero_()
        torch.cuda._sleep(1 << 20)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(sorted(times[5:])[repeats // 2])


def peer(case: Attention) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """PyTorch's forward and backward pass of a problem, by the back end that is selected."""
    q, k, v = (x.detach().clone().requires_grad_() for x in (case.q, case.k, case.v))
    plain = (case.q, case.k, case.v)
    attention = torch.nn.functional.scaled_dot_product_attention
    out = attention(q, k, v, is_causal=case.causal)
    return (
        lambda: attention(*plain, is_causal=case.causal),
        lambda: torch.autograd.grad(out, (q, k, v), case.do, retain_graph=True),
    )


def speed(library: Library, case: Attention) -> dict[str, float]:
    """TFLOP/s forward and backward: the library's, and PyTorch's FlashAttention and cuDNN.

    "atomic" is the backward pass by `attn_bwd_atomic`, with the time in which its workspace becomes zero.
    """
    flops = 4 * case.q.numel() * case.k.shape[2] / (2 if case.causal else 1) / 1e9
    forward, backward, fused = (
        library.prepared(one, case.values) for one in (ATTN_FWD, ATTN_BWD, ATTN_BWD_ATOMIC)
    )

    def atomic() -> None:
        case.dq_acc.zero_()
        fused()

    found = {"forward": flops / milliseconds(forward), "backward": 2.5 * flops / milliseconds(backward)}
    found["atomic"] = 2.5 * flops / milliseconds(atomic)
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        with sdpa_kernel(backend):
            theirs, gradients = peer(case)
            found[f"{name} forward"] = flops / milliseconds(theirs)
            found[f"{name} backward"] = 2.5 * flops / milliseconds(gradients)
    return found


def main(prefix: Path) -> None:
    library = Library(prefix)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    for rows in (2048, 8192):
        for width in (64, 128):
            for causal in (False, True):
                case = Attention(
                    batch=16384 // rows, heads=16, rows=rows, width=width, dtype=torch.float16, causal=causal
                )
                found = {**check_attention(library, case), **speed(library, case)}
                print(f"S={rows} D={width} causal={causal}: {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
