"""Attention of a release's library on an NVIDIA GPU beside PyTorch's back ends: errors and times.

    python -m benchmarks.gpu_attention PREFIX [long] [wide] [few]

PREFIX is an unpacked release (lib/libaotriton_v2.so, lib/aotriton.images). The parts: head_dim 64 and 128 by
length, other widths, few queries; all by default. Prints the rows of tables. Calls are timed in turn, so that
the clock's changes concern all of them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from benchmarks.gpu_times import Call, milliseconds, milliseconds_each, sets_of
from kernels.flash.operators import ATTN_BWD, ATTN_FWD
from kernels.flash_atomic.operators import ATTN_BWD_ATOMIC
from kernels.flash_paged.operators import PAGED_ATTN

CUDA = 2
KINDS = ["ptr", "i32", "i64", "u64", "f32"]
NUMBERS = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA2": SDPBackend.FLASH_ATTENTION}
_BOUND = {torch.float16: 5e-3, torch.bfloat16: 3e-2}
_TOKENS = 16384
_FEATURES = 2048
"""Heads times head_dim."""
_PAGE_SIZES = (0, 16)
"""0: K and V of a sequence are one page."""
FEW = (
    (1, 1, 1024, 64, 8, 128), (1, 1, 32768, 64, 8, 128), (8, 1, 8192, 64, 8, 128), (64, 1, 4096, 64, 8, 128),
    (1, 16, 8192, 64, 8, 128), (8, 16, 8192, 64, 8, 128), (64, 1, 2048, 32, 32, 128),
    (64, 1, 4096, 64, 8, 64), (64, 1, 4096, 16, 8, 256), (4, 1, 32768, 64, 8, 128), (16, 1, 8192, 32, 8, 128),
    (32, 1, 2048, 32, 8, 64),
)  # fmt: skip
"""Batch, queries, keys, heads of queries and of keys, head_dim."""


class _Member(Union):
    _fields_ = [("ptr", c_void_p), ("i32", c_int32), ("i64", c_int64), ("u64", c_uint64), ("f32", c_float)]


class _Value(Structure):
    _fields_ = [("name", c_char_p), ("type", c_int32), ("reserved", c_int32), ("to", _Member)]


class Library:
    """`aotforge_launch` of one release, on PyTorch's current stream."""

    def __init__(self, prefix: Path) -> None:
        self._library = ctypes.CDLL(str(prefix / "lib" / "libaotriton_v2.so"))
        self._library.aotforge_launch.argtypes = [c_char_p, POINTER(_Value), c_size_t, c_int32, c_void_p]

    def prepared(self, operator: Any, values: Mapping[str, float]) -> Call:
        """A call with these values, those not named 0. It raises RuntimeError with the code of an error."""
        made = (_Value * len(operator.values))()
        for value, declared in zip(made, operator.values, strict=True):
            value.name, value.type = declared.name.encode(), KINDS.index(declared.type)
            setattr(value.to, declared.type, values.get(declared.name, 0))
        launch, name, count = self._library.aotforge_launch, operator.name.encode(), len(made)

        def call() -> None:
            if code := launch(name, made, count, CUDA, torch.cuda.current_stream().cuda_stream):
                raise RuntimeError(f"{operator.name}: error {code}")

        return call


def error_of(result: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative error in the norm of all elements; infinite when one is not finite."""
    if not torch.isfinite(result).all():
        return float("inf")
    difference = torch.linalg.vector_norm(result.detach().double() - wanted)
    return float(difference) / float(torch.linalg.vector_norm(wanted))


class Attention:
    """One problem: random inputs, a float64 reference with its gradients, and the library's outputs, which
    begin as NaN."""

    def __init__(
        self, *, batch: int, queries: int, keys: int, heads: int, heads_k: int, width: int,
        dtype: torch.dtype, causal: bool,
    ) -> None:  # fmt: skip
        def random(number: int, rows: int) -> torch.Tensor:
            return torch.randn((batch, number, rows, width), device="cuda").to(dtype)

        self.q, self.do = random(heads, queries), random(heads, queries)
        self.k, self.v = random(heads_k, keys), random(heads_k, keys)
        self.causal, self.scale, self.group = causal, width**-0.5, heads // heads_k
        self.out, self.dq = (torch.full_like(self.q, float("nan")) for _ in range(2))
        self.dk, self.dv = (torch.full_like(self.k, float("nan")) for _ in range(2))
        self.dq_acc = torch.zeros(self.q.shape, device="cuda")
        self.lse, self.delta = (torch.full(self.q.shape[:3], float("nan"), device="cuda") for _ in range(2))
        self.values: dict[str, float] = {
            "batch": batch, "num_head_q": heads, "num_head_k": heads_k, "group": self.group,
            "seqlen_q": queries, "seqlen_k": keys, "head_dim": width, "head_dim_v": width, "width": width,
            "sm_scale": self.scale, "dtype": NUMBERS[dtype], "mask": int(causal),
            "window_left": queries if causal else 0, "window_right": 0,
        }  # fmt: skip
        tensors = {
            "Q": (self.q, "q", "m"), "K": (self.k, "k", "n"), "V": (self.v, "v", "n"),
            "Out": (self.out, "o", "m"), "DO": (self.do, "do", "m"), "DQ": (self.dq, "dq", "m"),
            "DK": (self.dk, "dk", "n"), "DV": (self.dv, "dv", "n"), "L": (self.lse, "l", "m"),
            "D": (self.delta, "d", "m"), "DQ_ACC": (self.dq_acc, "dqa", "m"),
        }  # fmt: skip
        for name, (tensor, letters, row) in tensors.items():
            self.values[name] = tensor.data_ptr()
            strides = (f"stride_{letters}{axis}" for axis in f"zh{row}")
            self.values |= zip(strides, tensor.stride(), strict=False)

    @property
    def gigaflops(self) -> float:
        """Of the forward pass: half of them where the mask is causal."""
        return float(4 * self.q.numel() * self.k.shape[2] / (2 if self.causal else 1) / 1e9)

    def reference(self) -> tuple[torch.Tensor, ...]:
        """out, dq, dk, dv of the first sequence's first group of heads in float64."""
        q, k, v = (x.double().requires_grad_() for x in (self.q[0, : self.group], self.k[0, 0], self.v[0, 0]))
        scores = q @ k.T * self.scale
        if self.causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cuda").tril()
            scores = scores.masked_fill(~seen, float("-inf"))
        out = scores.softmax(-1) @ v
        return out.detach(), *torch.autograd.grad(out, (q, k, v), self.do[0, : self.group].double())

    def error(self, results: Mapping[str, torch.Tensor]) -> float:
        """The largest relative error of results (out, dq, dk, dv) of the first group of heads."""
        parts = {"out": self.group, "dq": self.group, "dk": 1, "dv": 1}
        wanted = dict(zip(parts, self.reference(), strict=True))
        return max(
            error_of(result[0, : parts[name]], wanted[name].reshape(result[0, : parts[name]].shape))
            for name, result in results.items()
        )


def peers(case: Attention) -> Iterator[tuple[str, Call, Call]]:
    """PyTorch's forward and backward pass of a problem, by back end; without those that refuse it."""
    attention = torch.nn.functional.scaled_dot_product_attention
    for name, backend in BACKENDS.items():

        def forward(backend: SDPBackend = backend) -> torch.Tensor:
            with sdpa_kernel(backend):
                return attention(case.q, case.k, case.v, is_causal=case.causal, enable_gqa=case.group > 1)

        q, k, v = (x.detach().clone().requires_grad_() for x in (case.q, case.k, case.v))
        try:
            with sdpa_kernel(backend):
                out = attention(q, k, v, is_causal=case.causal, enable_gqa=case.group > 1)
        except RuntimeError as error:
            print(f"{name} refuses {tuple(q.shape)}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue

        def backward(out: torch.Tensor = out, of: Any = (q, k, v)) -> object:
            return torch.autograd.grad(out, of, case.do, retain_graph=True)

        yield name, forward, backward


def passes(library: Library, case: Attention) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds of the forward and of the backward pass, by who makes it. Raises RuntimeError for wrong
    results."""
    forward, backward, fused = (
        library.prepared(operator, case.values) for operator in (ATTN_FWD, ATTN_BWD, ATTN_BWD_ATOMIC)
    )

    def atomic() -> None:
        case.dq_acc.zero_()
        fused()

    forward()
    results = {"dq": case.dq, "dk": case.dk, "dv": case.dv}
    calls = {"ours": backward, "ours, atomic": atomic}
    for name in tuple(calls):
        for result in results.values():
            result.fill_(float("nan"))
        try:
            calls[name]()
        except RuntimeError:
            if name == "ours":
                raise
            del calls[name]  # it serves head_dim 64 and 128
            continue
        if (error := case.error({"out": case.out, **results})) > _BOUND[case.q.dtype]:
            raise RuntimeError(f"{name}: relative error {error:.2e} of {tuple(case.q.shape)}")
    theirs = list(peers(case))
    first = {"ours": forward} | {name: call for name, call, _ in theirs}
    return milliseconds(first), milliseconds(calls | {name: call for name, _, call in theirs})


def row(title: str, work: float, times: Mapping[str, float], unit: str) -> str:
    """A row of a table: work per time, and ours as a share of the fastest other's and of each."""
    rates = {name: work / time for name, time in times.items()}
    shown = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
    shares = ", ".join(
        f"{mine} / {other} {rates[mine] / rates[other]:.2f}"
        for mine in rates if mine.startswith("ours") for other in rates if not other.startswith("ours")
    )  # fmt: skip
    return f"| {title} | {shown} {unit} | {shares} |"


def by_shape(library: Library, widths: tuple[int, ...], lengths: tuple[int, ...]) -> Iterator[str]:
    """Rows of forward and backward, bf16, full and causal."""
    for width in widths:
        for length in lengths:
            for causal in (False, True):
                heads = _FEATURES // width
                case = Attention(
                    batch=max(1, _TOKENS // length), queries=length, keys=length, heads=heads, heads_k=heads,
                    width=width, dtype=torch.bfloat16, causal=causal,
                )  # fmt: skip
                title = f"D {width}, S {length}, {'causal' if causal else 'full'}"
                forward, backward = passes(library, case)
                yield row(f"forward {title}", case.gigaflops, forward, "TFLOP/s")
                yield row(f"backward {title}", 2.5 * case.gigaflops, backward, "TFLOP/s")


class Pages:
    """A problem's calls of `paged_attn`: queries of all sequences one after the other, pages in a random
    order, keys in as many splits as give each multiprocessor a program."""

    def __init__(self, case: Attention, page_size: int) -> None:
        batch, heads, queries, width = case.q.shape
        heads_k, keys = case.k.shape[1:3]
        self._size, self._case = page_size or keys, case
        self.q = case.q.transpose(1, 2).reshape(-1, heads, width).contiguous()
        self.out = torch.full_like(self.q, float("nan"))
        pages = keys // self._size
        self._table = torch.randperm(batch * pages, device="cuda", dtype=torch.int32).view(batch, pages)
        # a single page keeps its rows: (pages, heads, rows, head_dim)
        self._k, self._v = (
            self._placed(x) if page_size else x[self._table[:, 0].argsort()] for x in (case.k, case.v)
        )
        self._starts = torch.arange(0, (batch + 1) * queries, queries, device="cuda", dtype=torch.int32)
        self._lengths = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
        rows = queries * case.group
        programs = batch * heads_k * (1 if rows <= 16 else -(-rows // 64))
        most = torch.cuda.get_device_properties(0).multi_processor_count // programs
        self._split_keys = -(-keys // max(1, min(most, keys // 128)))
        self._splits = -(-keys // self._split_keys)
        self._parts = torch.empty((self.q.shape[0], heads, self._splits, width + 1), device="cuda")

    def _placed(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, heads, keys, head_dim) as pages whose rows have all heads."""
        batch, heads, keys, width = x.shape
        rows = x.transpose(1, 2).reshape(batch * keys // self._size, self._size, heads, width)
        return rows[self._table.view(-1).argsort()].transpose(1, 2)

    @property
    def values(self) -> dict[str, float]:
        """As the operator takes them."""
        same = ("batch", "num_head_q", "num_head_k", "group", "sm_scale", "head_dim", "dtype")
        lists = {"block_table": self._table, "cu_seqlens_q": self._starts, "seqused_k": self._lengths}
        tokens, heads, splits, _ = self._parts.shape
        values: dict[str, float] = {name: self._case.values[name] for name in same}
        tensors = {"Q": self.q, "Out": self.out, "K": self._k, "V": self._v, "O_part": self._parts} | lists
        values |= {name: tensor.data_ptr() for name, tensor in tensors.items()}
        values["L_part"] = self._parts.data_ptr() + 4 * self._parts[..., 1:].numel()
        for name, tensor in {"k": self._k, "v": self._v}.items():
            page, head, row, _ = tensor.stride()
            values |= {f"stride_{name}p": page, f"stride_{name}h": head, f"stride_{name}n": row}
        for name, tensor in {"q": self.q, "o": self.out}.items():
            values |= {f"stride_{name}m": tensor.stride(0), f"stride_{name}h": tensor.stride(1)}
        return values | {
            "stride_table": self._table.stride(0), "rows": self._case.group * self._case.q.shape[2],
            "page_size": self._size, "num_splits": splits, "split_keys": self._split_keys,
            "rows_combined": tokens * heads if splits > 1 else 0, "window_left": -1,
            "cache": self._case.values["dtype"],
        }  # fmt: skip

    def of_first_sequence(self) -> torch.Tensor:
        """Results in the order of the problem's."""
        batch, _, queries, _ = self._case.q.shape
        return self.out.unflatten(0, (batch, queries)).transpose(1, 2)


def copied() -> float:
    """Bytes that a copy within the GPU's memory reads and writes in a millisecond."""
    source, target = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    times = milliseconds({"copy": lambda: target.copy_(source)}, cold=False)
    return float(2 * source.numel() / times["copy"])


def few_queries(library: Library) -> Iterator[str]:
    """Rows of calls with few queries, in microseconds and in bytes of K and V per second."""
    limit = copied()
    yield f"copy: {limit / 1e6:.0f} GB/s"
    for batch, queries, keys, heads, heads_k, width in FEW:
        size = 4 * batch * heads_k * keys * width
        cases = [
            Attention(
                batch=batch, queries=queries, keys=keys, heads=heads, heads_k=heads_k, width=width,
                dtype=torch.bfloat16, causal=False,
            )
            for _ in range(sets_of(size))
        ]  # fmt: skip

        paged = {
            f"ours, pages of {size}" if size else "ours, one page": [Pages(case, size) for case in cases]
            for size in _PAGE_SIZES
            if width in {64, 128}
        }

        def make(
            cases: Sequence[Attention] = cases, paged: Mapping[str, list[Pages]] = paged
        ) -> dict[str, list[Call]]:
            calls = {"ours": [library.prepared(ATTN_FWD, case.values) for case in cases]}
            for name, every in paged.items():
                calls[name] = [library.prepared(PAGED_ATTN, pages.values) for pages in every]
            for made in zip(*(list(peers(case)) for case in cases), strict=True):
                calls[made[0][0]] = [forward for _, forward, _ in made]
            return calls

        times = milliseconds_each(make)
        results = {"ours": cases[0].out} | {
            name: every[0].of_first_sequence() for name, every in paged.items()
        }
        for name, out in results.items():
            if (error := cases[0].error({"out": out})) > _BOUND[torch.bfloat16]:
                raise RuntimeError(f"{name}: relative error {error:.2e} of {tuple(cases[0].q.shape)}")
        title = f"B {batch}, Sq {queries}, Sk {keys}, {heads}:{heads_k}, D {width}: " + ", ".join(
            f"{name} {1000 * time:.1f} us, {size / time / limit:.2f} of copy"
            for name, time in times.items()
            if name.startswith("ours")
        )
        yield row(title, size / 1e6, times, "GB/s")


PARTS: Mapping[str, Callable[[Library], Iterator[str]]] = {
    "long": lambda library: by_shape(library, (64, 128), (512, 1024, 2048, 4096, 8192, 16384)),
    "wide": lambda library: by_shape(library, (32, 80, 96, 160, 192, 256), (4096,)),
    "few": few_queries,
}


def main(prefix: Path, names: list[str]) -> None:
    library = Library(prefix)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    for name in names or list(PARTS):
        for line in PARTS[name](library):
            print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
