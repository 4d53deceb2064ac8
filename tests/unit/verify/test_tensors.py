"""Guarded tensors: canaries around an output differ from what a kernel computes of canaries around its
inputs."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.verify.interpreter.number_formats import DType, decode, encode
from aotforge.verify.tensors import Guarded, Layout

SHAPE = (1, 1, 1, 5)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_a_mask_that_is_off_by_one_is_seen_though_both_neighbours_are_canaries(dtype: DType) -> None:
    """x + y one element too far: NaN + NaN keeps the first one's payload."""
    x, y = (Guarded(SHAPE, dtype, Layout(), np.full(SHAPE, v)) for v in (1.0, 2.0))
    out = Guarded(SHAPE, dtype, Layout())
    end = Layout().offset + SHAPE[3]
    assert out.intact()
    for payload in (
        x.storage[end],
        encode(decode_bits(x, end) + decode_bits(y, end), dtype).view(out.storage.dtype)[0],
    ):
        after = out.storage.copy()
        out.storage[end] = payload
        assert not out.intact()
        out.storage[...] = after
    out.bits()[...] = encode(np.full(SHAPE, 3.0), dtype).view(out.storage.dtype)
    assert out.intact()


def decode_bits(tensor: Guarded, at: int) -> np.ndarray:
    """The number in one element of the storage."""
    kind = encode(np.zeros(1), tensor.dtype).dtype
    return np.asarray(decode(tensor.storage[at : at + 1].view(kind), tensor.dtype))
