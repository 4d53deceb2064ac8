"""Rows whose distance from the tensor's first exceeds 32 bits: no address is formed in fewer than 64, forward
and backward."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from aotforge.verify.interpreter.number_formats import decode, encode
from aotforge.verify.tensors import Float, Guarded
from kernels.flash.bounds import bounds
from kernels.flash.call import Case, tensor_of, values_of
from kernels.flash.rules import FAMILY
from tests.integration.kernels.attention_call import FOLDER, GFX908, run_operator
from tests.integration.kernels.features import SMALL, planted

APART = 1 << 27
"""Elements between rows: the second block of 16 begins 2^31 elements after the first."""
CASE = Case(dtype="fp16", seqlen_q=20, seqlen_k=20, head_dim=16)


class Far:
    """A tensor of one head whose rows are far apart, in a mapped file that holds nothing but them."""

    def __init__(self, rows: int, columns: int, values: Float | None = None) -> None:
        with tempfile.TemporaryFile() as file:  # a sparse one
            self.storage = np.memmap(file, np.uint16, "w+", shape=((rows - 1) * APART + columns,))
        self.address = int(self.storage.ctypes.data)
        self.strides = (APART, APART, APART, 1)
        self._rows = np.lib.stride_tricks.as_strided(
            self.storage, (1, 1, rows, columns), (2, 2, 2 * APART, 2)
        )
        if values is not None:
            self._rows[...] = encode(values, "fp16").view(np.uint16)

    def values(self) -> Float:
        return np.asarray(decode(self._rows.copy().view(np.float16), "fp16"))


def worst(folder: Path) -> float:
    """The worst element of all results, in multiples of its bound."""
    inputs = CASE.inputs()
    tensors: dict[str, Any] = {name: Far(20, 16, inputs[name]) for name in ("Q", "K", "V", "DO")}
    tensors |= {name: Far(20, 16) for name in ("Out", "DQ", "DK", "DV")}
    tensors |= {name: tensor_of(CASE, name) for name in ("L", "D")}
    values = values_of(CASE, cast("dict[str, Guarded]", tensors))
    buffers = {name: tensor.storage for name, tensor in tensors.items()}
    for operator in ("attn_fwd", "attn_bwd"):
        run_operator(FAMILY, folder, operator, target=GFX908, values=values, buffers=buffers, override=SMALL)
    expected = bounds(inputs["Q"], inputs["K"], inputs["V"], inputs["DO"], CASE.options(inputs), dtype="fp16")
    names = {"out": "Out", "lse": "L", "delta": "D", "dq": "DQ", "dk": "DK", "dv": "DV"}
    return max(float(expected[name].misses(tensors[of].values()).max()) for name, of in names.items())


def test_rows_beyond_32_bits_are_addressed() -> None:
    assert worst(FOLDER) <= 1


FAULTS = {
    "the start of a block in 32 bits": ("base + start * stride +", "base + (start * stride).to(tl.int32) +"),
    "rows of a block in 32 bits": (
        "(row[:, None] * stride +", "((start + row[:, None]) * stride).to(tl.int32) - start * stride + (",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_an_address_in_32_bits_is_found(fault: str, tmp_path: Path) -> None:
    planted(tmp_path, "tiles.py", *FAULTS[fault])
    try:
        assert worst(tmp_path) > 1
    except ExecutionError:
        return
