"""The dropout mask of a call as a tensor, as the attention kernels draw it: for tests, which read it by
sign."""

import triton
import triton.language as tl

from .features import dropout_key, dropout_limit, kept


@triton.jit
def attn_dropout_mask(
    R, stride_rz, stride_rh, stride_rm, stride_rn, num_head_q, seqlen_q, seqlen_k,
    dropout_p, philox_seed, philox_offset1, philox_offset2,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """+0.5 where dropout keeps an element, -0.5 where it drops it; grid (query blocks x key blocks, heads,
    batch)."""
    blocks = tl.cdiv(seqlen_k, BLOCK_N)
    start_q = tl.program_id(0) // blocks * BLOCK_M
    start_k = tl.program_id(0) % blocks * BLOCK_N
    head = tl.program_id(1)
    batch = tl.program_id(2)
    keep = tl.full((BLOCK_M, BLOCK_N), -1, tl.int32)
    if dropout_p > 0.0:
        key = dropout_key(philox_seed, philox_offset1, philox_offset2)
        keep = kept(
            key, batch * num_head_q + head, start_q, start_k, dropout_limit(dropout_p), BLOCK_M, BLOCK_N
        )
    queries = start_q + tl.arange(0, BLOCK_M)
    keys = start_k + tl.arange(0, BLOCK_N)
    R += batch * stride_rz + head * stride_rh
    pointers = R + (queries[:, None] * stride_rm + keys[None, :] * stride_rn)
    inside = (queries[:, None] < seqlen_q) & (keys[None, :] < seqlen_k)
    tl.store(pointers, tl.where(keep != 0, 0.5, -0.5).to(R.dtype.element_ty), mask=inside)
