"""Variable-length and odd tensors of attention calls: what reaches the kernels, and each refusal by its own
call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.attention import BF16, FP16, FP32, Problem, Tensor, spy_pack
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import write

INT32 = 12
INVALID_VALUE, NOT_SUPPORTED = 1, 801
COMPACT, PADDED = 1, 2
THREE = Tensor(4096, (4,), INT32)
"""Offsets of three sequences."""


@pytest.fixture(scope="module")
def driver(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver of a pack that serves bias, dropout and every kind of variable length."""
    folder = tmp_path_factory.mktemp("variable")
    options = {"mask": (0, 1, 2), "dropout": (0, 1)}
    write(spy_pack(options=options), folder / "amd-gfx908")
    with Driver(objects, folder) as started:
        assert started.rc("check") == 0
        yield started


def varlen(kind: int = COMPACT, batch: int = 1, **changes: Any) -> Problem:
    """Sequences of at most 20 queries and 30 keys: three in compact form, else `batch`."""
    lengths = THREE if kind == COMPACT else Tensor(4096, (batch + 1,), INT32)
    extra: dict[str, Any] = {
        "varlen_type": kind, "cu_seqlens_q": lengths, "cu_seqlens_k": lengths, "max_seqlen_q": 20,
            "max_seqlen_k": 30,
    }  # fmt: skip
    extra |= changes
    sequences = max(extra["cu_seqlens_q"].sizes[0] - 1, 0) if kind == COMPACT else batch
    rows = {
        name: Tensor(base, (4 * sequences, 48), FP32) for name, base in (("L", 0x800000), ("D", 0x900000))
    }
    return Problem(batch=batch, extra=rows | extra)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_seqlen_q": 48, "max_seqlen_k": 64},
        {"max_seqlen_q": 0, "max_seqlen_k": 1},
        {"cu_seqlens_q": Tensor(4096, (4,), INT32, (1,))},
    ],
)
def test_bounds_of_lengths_themselves(driver: Driver, changes: dict[str, Any]) -> None:
    assert driver.rc(varlen(**changes).line("fwd")) == 0


def test_one_length_may_have_any_stride(driver: Driver) -> None:
    """No sequences: one element, whose stride cannot matter."""
    one = Tensor(4096, (1,), INT32, (7,))
    driver.send("clear")
    assert driver.rc(varlen(cu_seqlens_q=one, cu_seqlens_k=one).line("fwd")) == 0
    assert driver.launches() == []


LENGTHS: dict[str, Tensor] = {
    "null": Tensor(0, (4,), INT32),
    "of another dtype": Tensor(4096, (4,), FP32),
    "of another batch": Tensor(4096, (3,), INT32),
    "strided": Tensor(4096, (4,), INT32, (2,)),
}
MALFORMED: dict[str, Problem] = {
    **{f"cu_seqlens_k is {why}": varlen(cu_seqlens_k=tensor) for why, tensor in LENGTHS.items()},
    **{f"cu_seqlens_q is {why}": varlen(PADDED, 3, cu_seqlens_q=tensor) for why, tensor in LENGTHS.items()},
    "two planes of compact sequences": varlen(batch=2),
    "no element of cu_seqlens_q": varlen(cu_seqlens_q=Tensor(4096, (0,), INT32)),
    "a negative longest query": varlen(max_seqlen_q=-1),
    "a negative longest key": varlen(max_seqlen_k=-1),
    "a kind between the others": varlen(3),
}


@pytest.mark.parametrize("verb", ["fwd", "bwd"])
@pytest.mark.parametrize("why", MALFORMED)
def test_malformed_lengths(driver: Driver, why: str, verb: str) -> None:
    driver.send("clear")
    assert driver.rc(MALFORMED[why].line(verb)) == INVALID_VALUE
    assert (driver.launches(), driver.send("events")) == ([], "events")


def test_a_bias_with_variable_length_is_not_supported(driver: Driver) -> None:
    bias = Tensor(4096, (1, 4, 48, 64), FP16)
    assert driver.rc(varlen(B=bias).line("fwd")) == NOT_SUPPORTED
    window = {"causal_type": 3, "window_left": 4, "window_right": 4}
    assert driver.rc(Problem(batch=1, extra={"B": bias, **window}).line("fwd")) == NOT_SUPPORTED
    assert driver.rc(Problem(batch=1, extra={"B": bias}).line("fwd")) == 0


ODD: dict[str, Problem] = {
    "an output of one row with a stride of zero": Problem(
        seqlen_q=1, extra={"Out": Tensor(4096, (2, 4, 1, 64), FP16, (256, 64, 0, 1))}),
    "an output of one batch with a stride of zero": Problem(
        batch=1, extra={"Out": Tensor(4096, (1, 4, 48, 64), FP16, (0, 3072, 64, 1))}),
    "a broadcast input": Problem(extra={"K": Tensor(4096, (2, 2, 64, 64), FP16, (0, 0, 64, 1))}),
    "the default back end": Problem(extra={"backend": 0}),
    "no back end": Problem(extra={"backend": -1}),
    "one row of L with any stride": Problem(seqlen_q=1, extra={"L": Tensor(4096, (8, 1), FP32, (1, 9))}),
    "one head of L with any stride": Problem(
        batch=1, heads_q=1, heads_k=1, extra={"L": Tensor(4096, (1, 48), FP32, (3, 1))}),
    "dropout of zero without a seed": Problem(extra={"dropout_p": 0.0}),
    "dropout of one": Problem(extra={"dropout_p": 1.0, "philox_seed": 8, "philox_offset1": 16}),
}  # fmt: skip


@pytest.mark.parametrize("why", ODD)
def test_odd_but_valid_calls(driver: Driver, why: str) -> None:
    driver.send("clear")
    assert driver.rc(ODD[why].line("fwd")) == 0
    assert len(driver.launches()) == 1


REFUSED: dict[str, tuple[Problem, int]] = {
    "negative dropout": (Problem(extra={"dropout_p": -0.25}), INVALID_VALUE),
    "dropout over one": (Problem(extra={"dropout_p": 1.25, "philox_seed": 8, "philox_offset1": 16}),
        INVALID_VALUE),
    "a seed without an offset": (Problem(extra={"dropout_p": 0.5, "philox_seed": 8}), INVALID_VALUE),
    "an offset without a seed": (Problem(extra={"dropout_p": 0.5, "philox_offset1": 8}), INVALID_VALUE),
    "a back end below -1": (Problem(extra={"backend": -2}), NOT_SUPPORTED),
    "a back end over 0": (Problem(extra={"backend": 1}), NOT_SUPPORTED),
    "no head_dim": (Problem(head_dim=0), INVALID_VALUE),
    "a V without columns": (Problem(extra={
        "V": Tensor(0, (2, 2, 64, 0), FP16), "Out": Tensor(0, (2, 4, 48, 0), FP16)}), INVALID_VALUE),
    "no heads of K": (Problem(heads_k=0), INVALID_VALUE),
    "a broadcast row of Out": (Problem(extra={"Out": Tensor(4096, (2, 4, 48, 64), FP16,
        (12288, 3072, 0, 1))}), INVALID_VALUE),
    "rows of L that overlap by one": (Problem(extra={"L": Tensor(4096, (8, 48), FP32, (47, 1))}),
        INVALID_VALUE),
    "a stride of L that a sequence's heads exceed": (
        Problem(extra={"L": Tensor(4096, (8, 48), FP32, (2**61 + 1, 1))}), NOT_SUPPORTED),
    "another dtype of Out": (Problem(extra={"Out": Tensor(4096, (2, 4, 48, 64), BF16)}), INVALID_VALUE),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_odd_and_refused_calls(driver: Driver, why: str) -> None:
    problem, code = REFUSED[why]
    driver.send("clear")
    assert driver.rc(problem.line("fwd")) == code
    assert driver.launches() == []


def test_head_dim_of_one_with_any_last_stride(objects: Objects, tmp_path: Path) -> None:
    write(spy_pack(widths=(1,)), tmp_path / "amd-gfx908")
    strided = {
        name: Tensor(4096, (2, heads, rows, 1), FP16, (9999, 999, 9, 5))
        for name, heads, rows in (("Q", 4, 48), ("K", 2, 64), ("V", 2, 64), ("Out", 4, 48))
    }
    with Driver(objects, tmp_path) as driver:
        assert driver.rc(Problem(head_dim=1, extra=strided).line("fwd")) == 0
        wrong = {"Q": Tensor(4096, (2, 4, 48, 2), FP16, (9999, 999, 9, 5))}
        assert driver.rc(Problem(head_dim=2, extra=wrong).line("fwd")) == INVALID_VALUE
