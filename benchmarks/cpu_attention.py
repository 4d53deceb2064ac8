"""Attention by `kernels/flash` on the CPU beside PyTorch's flash attention: rows of
benchmarks/cpu_kernels.py."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton

HEADS = 2
BLOCKS = (64, 64)
"""Queries and keys of a block."""
_NUMBERS = (
    "num_head_q",
    "group",
    "varlen_bits",
    "lse_packed",
    "philox_offset2",
    "head_dim",
    "head_dim_v",
    "window_right",
)


def _kernel(function: Any) -> Any:
    """Triton would make constants of the arguments that are 1; these kernels take numbers."""
    return triton.jit(
        function.fn, do_not_specialize=[name for name in _NUMBERS if name in function.arg_names]
    )


KERNELS = {
    name: _kernel(getattr(importlib.import_module(f"kernels.flash.{module}"), name))
    for name, module in (
        ("attn_fwd", "forward"), ("bwd_preprocess", "backward"), ("bwd_dk_dv", "backward"),
        ("bwd_dq", "backward"),
    )
}  # fmt: skip
_TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One batch of `HEADS` heads, with everything that the kernels take."""

    length: int
    width: int
    kind: torch.dtype
    causal: bool
    tensors: dict[str, torch.Tensor]

    def common(self) -> dict[str, Any]:
        """Arguments of all kernels, by name; pointers to what this call has not are to one number."""
        s, d = self.length, self.width
        strides = {
            f"stride_{name}{axis}": size
            for name in ("q", "k", "v", "o", "do", "dk", "dv", "dq")
            for axis, size in zip(
                "zh" + ("n" if name in {"k", "v", "dk", "dv"} else "m"),
                (HEADS * s * d, s * d, d),
                strict=True,
            )
        }
        strides |= {f"stride_{name}{axis}": 0 for name in ("b", "db") for axis in "zhmn"}
        strides |= {
            f"stride_{name}{axis}": size
            for name in "ld"
            for axis, size in zip("zhm", (HEADS * s, s, 1), strict=True)
        }
        none = torch.zeros(1, dtype=torch.int32)
        words = torch.zeros(1, dtype=torch.uint64)
        return strides | {
            **self.tensors, "B": self.tensors["Q"], "DB": self.tensors["Q"], "philox_seed": words,
            "philox_offset1": words,
            "philox_offset2": 0, "philox_seed_output": words, "philox_offset_output": words,
            "num_head_q": HEADS, "group": 1,
            "seqlen_q": s, "seqlen_k": s, "head_dim": d, "head_dim_v": d, "seqinfo_q0": none,
            "seqinfo_q1": none,
            "seqinfo_k0": none, "seqinfo_k1": none, "varlen_bits": 0, "lse_packed": 0,
            "sm_scale": 1 / math.sqrt(d),
            "window_left": s, "window_right": 0, "dropout_p": 0.0, "WIDTH": d, "PART": d, "PIECE": d,
            "EXACT": True, "STEP": 0,
            "MASK": "window" if self.causal else "full", "WINDOW": self.causal, "BIAS": False,
            "DROPOUT": False, "PACKED": False,
            "HOLD": True, "APART": False,
        }  # fmt: skip

    def launch(self, name: str) -> Callable[[], object]:
        """One kernel."""
        blocks = BLOCKS
        by = 1 if name == "bwd_dk_dv" else 0
        values = self.common() | {"BLOCK_M": blocks[0], "BLOCK_N": blocks[1]}
        kernel = KERNELS[name]
        given = {name: values[name] for name in kernel.arg_names}
        grid = (-(-self.length // blocks[by]), HEADS, 1)
        return lambda: kernel[grid](**given)

    def run_forward(self) -> Callable[[], object]:
        """Out and the log-sum-exp."""
        return self.launch("attn_fwd")

    def run_backward(self) -> Callable[[], object]:
        """DQ, DK and DV, with the sums that they share."""
        parts = [self.launch(name) for name in ("bwd_preprocess", "bwd_dk_dv", "bwd_dq")]
        return lambda: [part() for part in parts]


def attention(length: int, width: int, kind: torch.dtype, *, causal: bool) -> Attention:
    """A call on random numbers."""
    shape = (1, HEADS, length, width)
    torch.manual_seed(0)
    tensors = {name: torch.randn(shape).to(kind) for name in ("Q", "K", "V", "DO")}
    tensors |= {name: torch.empty(shape, dtype=kind) for name in ("Out", "DQ", "DK", "DV")}
    tensors |= {name: torch.empty((1, HEADS, length)) for name in "LD"}
    return Attention(length=length, width=width, kind=kind, causal=causal, tensors=tensors)


def rows(lengths: tuple[int, ...]) -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    """Name, ours and PyTorch's, after a comparison of their results."""
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        for width in (64, 128):
            for length in lengths:
                for causal in (False, True):
                    call = attention(length, width, kind, causal=causal)
                    name = f"{str(kind).removeprefix('torch.')} D {width} S {length}"
                    name += " causal" if causal else ""
                    yield from _pair(call, name)


def _pair(call: Attention, name: str) -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    t = call.tensors
    leaves = [t[key].clone().requires_grad_() for key in "QKV"]

    def forward() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=call.causal)

    out = forward()

    def backward() -> object:
        return torch.autograd.grad(out, leaves, t["DO"], retain_graph=True)

    def inference() -> object:
        with torch.no_grad():
            return forward()

    call.run_forward()()
    call.run_backward()()
    wanted = [out.detach(), *torch.autograd.grad(out, leaves, t["DO"], retain_graph=True)]
    for key, want in zip(("Out", "DQ", "DK", "DV"), wanted, strict=True):
        torch.testing.assert_close(t[key], want, rtol=_TOLERANCE[call.kind], atol=_TOLERANCE[call.kind])
    yield f"fwd {name}", call.run_forward(), inference
    yield f"bwd {name}", call.run_backward(), backward
