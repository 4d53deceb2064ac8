"""AOTriton's dropout, and the calls for an entry of its tables."""

import numpy as np
import pytest

from aotforge.upstream.calls import (
    Choices,
    Problem,
    cells,
    expected_gradients,
    expected_outputs,
    own_call,
    read_choices,
)
from kernels.flash.call import Dropout
from kernels.flash.expectations import same_precision_results

BIASED = Choices(dtype="fp16", width=64, padded=True, causal=False, dropout=True, bias=True)


def kept(dropout: Dropout, columns: int, longest: tuple[int, int]) -> list[list[bool]]:
    """Of two queries and one head."""
    problem = Problem(seqlen_q=2, seqlen_k=columns, head_dim=8, dropout=dropout, longest=longest)
    mask = problem.options(problem.inputs()).keep
    assert mask is not None
    return [[bool(value) for value in row] for row in mask[0, 0]]


@pytest.mark.parametrize(
    ("seed", "offset", "drawn"),
    [
        # of four columns: words 0, 2, 1 and 3 of Philox-4x32-10 as signed numbers
        (42, 0, (-1662324653, 314527917, 2012563771, 1463989207)),
        (0x123456789ABCDEF0, 0x100000000, (-1421456673, -1144284261, 1849806798, -210274128)),
    ],
)
def test_mask_is_that_of_known_draws(seed: int, offset: int, drawn: tuple[int, ...]) -> None:
    for p, threshold in ((0.1, -1717986944), (0.22, -1202590848), (0.48, -85899392), (0.5, 0)):
        dropout = Dropout(p=p, seed=seed, offset1=offset - 3, offset2=3)
        assert kept(dropout, 4, (2, 4))[0] == [word > threshold for word in drawn]


def test_rows_follow_each_other_by_the_longest_keys() -> None:
    dropout = Dropout(p=0.5, seed=7, offset1=0, offset2=0)
    wide = kept(dropout, 40, (2, 40))
    assert kept(dropout, 8, (2, 12)) == [wide[0][:8], wide[0][12:20]]
    assert wide[0] != wide[1]


def test_calls_of_a_bias_are_of_one_sequence() -> None:
    packed = list(cells(BIASED, {"attn_fwd"}, (16, 8192)))
    assert [cell.maxima for cell in packed] == [(16, 16), (16, 8192), (8192, 16), (8192, 8192)]
    assert {cell.problem.batch for cell in packed} == {1}
    assert all(cell.problem.bias and cell.outputs == ("Out", "L") for cell in packed)


def test_own_call_is_dense_where_lengths_are_short() -> None:
    dense, packed = (own_call(BIASED, maxima, 0) for maxima in ((1024, 1024), (8192, 256)))
    assert (dense.maxima, dense.problem.seqlen_q, dense.problem.longest) == (None, 513, (513, 513))
    assert (packed.maxima, packed.problem.seqlen_q, packed.problem.longest) == ((8192, 256), 40, (8192, 256))
    assert dense.outputs[-1] == "DB" and dense.dropout_p == np.float32(0.25)


def test_gradients_have_the_errors_of_what_the_forward_stores() -> None:
    full = Choices(dtype="bf16", width=16, padded=False, causal=False, dropout=False, bias=False)
    problem = full.problem([40, 0, 7], [33, 5, 12])
    expected = expected_outputs(problem)
    given = same_precision_results("bwd_dq", problem)
    chained = expected["DQ"].same_precision
    assert len(chained) == len(given) == len(expected["Out"].same_precision)
    # Out is rounded, and D is summed from it
    assert not any(np.array_equal(x["DQ"], y) for x, y in zip(given, chained, strict=True))
    assert all(expected["DQ"].bounded.misses(values).max() <= 1 for values in chained)


def test_the_forward_alone_rounds_a_bias() -> None:
    biased = Choices(dtype="bf16", width=16, padded=False, causal=False, dropout=False, bias=True)
    problem = biased.problem([1], [65], packed=False)
    expected = expected_outputs(problem)
    exact, rounded = np.split(np.array(expected["L"].same_precision), 2)
    # probabilities of exact scores, with the L of rounded ones, do not add up to 1
    sums = np.exp(exact - rounded).mean(axis=0)[0]
    gradient = problem.inputs()["DO"][0, :, 0]
    wanted = [gradient.sum(axis=0), (sums * gradient).sum(axis=0)]
    for index, made in enumerate(np.split(np.array(expected["DV"].same_precision), 2)):
        total = made.mean(axis=0)[0, 0].sum(axis=0)
        own, other = (float(np.linalg.norm(total - wanted[i])) for i in (index, 1 - index))
        assert 3 * own < other


def test_gradients_may_have_what_the_forward_has_rounded_and_nothing_else() -> None:
    full = Choices(dtype="bf16", width=64, padded=False, causal=False, dropout=False, bias=False)
    problem = full.problem([1], [65], packed=False)
    expected = expected_outputs(problem)
    exact = {name: wanted.bounded.value for name, wanted in expected.items()}
    # probabilities that a rounded L makes 0.6 % smaller
    stored = {"Out": expected["Out"].same_precision[0], "L": exact["L"] + 0.006}
    right = exact["DV"] * np.exp(-0.006)
    own = expected_gradients(problem, expected, stored)
    assert expected["DV"].compare(right).tile > 1 and own["DV"].compare(right).passed
    assert not expected_gradients(problem, expected, stored | {"L": exact["L"]})["DV"].compare(right).passed
    assert not own["DV"].compare(exact["DV"] * 0.9).passed


def test_sequences_fit_into_every_declared_maximum() -> None:
    name = "a;Q='*bf16:16';BLOCK_DMODEL=64;PADDED_HEAD=True;ENABLE_DROPOUT=False;CAUSAL_TYPE=3;BIAS_TYPE=0"
    choices = read_choices(name)
    assert choices is not None and choices.dtype == "bf16" and choices.padded and choices.causal
    planned = list(cells(choices, {"bwd_kernel_fuse", "attn_fwd"}, (16, 64)))
    assert {cell.backend for cell in planned} == {1} and len(planned) == 4
    for cell in planned:
        assert cell.problem.varlen is not None and cell.maxima is not None
        assert max(cell.problem.varlen.queries) <= cell.maxima[0]
        assert max(cell.problem.varlen.keys) <= cell.maxima[1]
    assert {cell.backend for cell in cells(choices, {"attn_fwd"}, (16,))} == {-1}
    assert read_choices("a;Out='*fp16:16';D_HEAD=64;PADDED_HEAD=False") is None
