"""The attention forward kernel that `emulator_speed` measures: a fixed kernel, so that its numbers stay
comparable.

It is the shipped kernel of commit f073fc7 without a causal bound, in its settings for gfx908. Retuning
`kernels/flash` does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.support.triton_kernels import compile_kernel
from vgpu.emulator.program import LaunchReport, LaunchRequest
from vgpu.memory import Memory

SOURCE = """
@triton.jit
def _load_tile(base, stride, start, limit, ROWS: tl.constexpr, COLS: tl.constexpr, MASKED: tl.constexpr):
    row = tl.arange(0, ROWS)
    pointers = base + start * stride + (row[:, None] * stride + tl.arange(0, COLS)[None, :])
    if MASKED:
        return tl.load(pointers, mask=(start + row)[:, None] < limit, other=0.0)
    return tl.load(pointers)


@triton.jit
def _attend(
    acc, row_max, row_sum, q, K, V, stride_kn, stride_vn, begin, end, limits, seqlen_k, scale,
    MASKED: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, STAGES: tl.constexpr,
):
    for start in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        k = _load_tile(K, stride_kn, start, seqlen_k, BLOCK_N, HEAD_DIM, MASKED)
        scores = tl.dot(q, tl.trans(k)) * scale
        if MASKED:
            keys = start + tl.arange(0, BLOCK_N)
            scores = tl.where(keys[None, :] < limits[:, None], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        shift = new_max
        if MASKED:
            shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        p = tl.exp2(scores - shift[:, None])
        correction = tl.exp2(row_max - shift)
        row_sum = row_sum * correction + tl.sum(p, 1)
        acc = acc * correction[:, None]
        v = _load_tile(V, stride_vn, start, seqlen_k, BLOCK_N, HEAD_DIM, MASKED)
        acc = tl.dot(p.to(v.dtype), v, acc)
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def attention(
    Q, K, V, L, Out,
    stride_qz, stride_qh, stride_qm, stride_kz, stride_kh, stride_kn, stride_vz, stride_vh, stride_vn,
    stride_lz, stride_oz, stride_oh, stride_om,
    num_head_q, group, seqlen_q, seqlen_k, sm_scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    block = tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2)
    start_q = block * BLOCK_M
    Q += batch * stride_qz + head * stride_qh
    K += batch * stride_kz + (head // group) * stride_kh
    V += batch * stride_vz + (head // group) * stride_vh
    Out += batch * stride_oz + head * stride_oh
    wants_lse = L.to(tl.int64) != 0
    L += (batch * num_head_q + head) * stride_lz

    queries = start_q + tl.arange(0, BLOCK_M)
    q = _load_tile(Q, stride_qm, start_q, seqlen_q, BLOCK_M, HEAD_DIM, True)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), tl.float32)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    scale = sm_scale * 1.4426950408889634
    limits = tl.zeros_like(queries) + seqlen_k
    full = (seqlen_k // BLOCK_N) * BLOCK_N
    acc, row_max, row_sum = _attend(
        acc, row_max, row_sum, q, K, V, stride_kn, stride_vn, 0, full,
        limits, seqlen_k, scale, False, HEAD_DIM, BLOCK_N, None,
    )
    acc, row_max, row_sum = _attend(
        acc, row_max, row_sum, q, K, V, stride_kn, stride_vn, full, seqlen_k,
        limits, seqlen_k, scale, True, HEAD_DIM, BLOCK_N, 1,
    )
    empty = row_sum == 0.0
    row_sum = tl.where(empty, 1.0, row_sum)
    row = tl.arange(0, BLOCK_M)
    to = Out + start_q * stride_om + (row[:, None] * stride_om + tl.arange(0, HEAD_DIM)[None, :])
    tl.store(to, (acc / row_sum[:, None]).to(Out.dtype.element_ty), mask=(start_q + row)[:, None] < seqlen_q)
    lse = tl.where(empty, float("inf"), (row_max + tl.log2(row_sum)) * 0.6931471805599453)
    if wants_lse:
        tl.store(L + queries, lse, mask=queries < seqlen_q)
"""
HEADS, ROWS, HEAD_DIM, BLOCK_M, BLOCK_N = 4, 512, 64, 128, 32
_POINTERS = {"Q": "*fp16", "K": "*fp16", "V": "*fp16", "L": "*fp32", "Out": "*fp16"}
_STRIDES = [f"stride_{t}{axis}" for t, axes in (("q", "zhm"), ("k", "zhn"), ("v", "zhn")) for axis in axes]
_STRIDES += ["stride_lz", "stride_oz", "stride_oh", "stride_om"]


class FixedAttention:
    """The kernel on random tensors."""

    def __init__(self, arch: str) -> None:
        types = _POINTERS | dict.fromkeys(_STRIDES, "i64")
        types |= dict.fromkeys(("num_head_q", "group", "seqlen_q", "seqlen_k"), "i32") | {"sm_scale": "fp32"}
        hints: Mapping[str, int] = dict.fromkeys(("Q", "K", "V", "Out"), 16)
        hints = {**hints, **{name: 8 for name in _STRIDES if name != "stride_lz"}}
        cdna = {"kpack": 1, "matrix_instr_nonkdim": 32} if arch.startswith("gfx9") else {}
        kernel = compile_kernel(
            SOURCE, arch, types, name="attention", divisible_by=hints, num_warps=4, num_stages=2,
            waves_per_eu=2,
            constants={"HEAD_DIM": HEAD_DIM, "BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}, **cdna,
        )  # fmt: skip
        self._program, self._lds = kernel.load(arch), kernel.lds
        rng = np.random.default_rng(0)
        shape = (1, HEADS, ROWS, HEAD_DIM)
        tensors = {name: rng.standard_normal(shape).astype(np.float16) for name in ("Q", "K", "V")}
        tensors |= {"L": np.zeros(shape[:3], np.float32), "Out": np.zeros(shape, np.float16)}
        self._memory = Memory(tensors)
        steps = [HEADS * ROWS * HEAD_DIM, ROWS * HEAD_DIM, HEAD_DIM]
        self._arguments = [int(tensors[name].ctypes.data) for name in _POINTERS]
        self._arguments += [*steps * 3, ROWS, *steps, HEADS, 1, ROWS, ROWS, HEAD_DIM**-0.5]

    def __call__(self, jobs: int, checks: bool) -> LaunchReport:
        return self._program.launch(
            LaunchRequest(
                grid=(ROWS // BLOCK_M, HEADS, 1),
                arguments=self._arguments,
                memory=self._memory,
                lds_bytes=self._lds,
                jobs=jobs,
                checks=checks,
            )
        )
