"""Attention at API levels 0.11 to 0.14: variable length, L, lazy tensors and versions of the params, on the
HIP double."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels.flash.operators import ATTN_BWD, ATTN_FWD
from tests.support.attention import FP16, FP32, Problem, Tensor, decode
from tests.support.runtime import Driver, Objects

INVALID_VALUE, INVALID_SYMBOL, NOT_SUPPORTED = 1, 13, 801
TOP_LEFT, BOTTOM_RIGHT = -2147483647, -2147483646
LEVELS = ("0.11.2b", "0.12.1b", "0.13b", "0.14.2b")
COMPACT, PADDED, STRIDED = 0x0B0B, 0x0202, 0x1313
TH = 0x10000


@pytest.fixture(scope="module")
def drivers(objects: Objects, spy_images: Path) -> Iterator[dict[str, Driver]]:
    started = {level: Driver(objects.at(level), spy_images) for level in LEVELS}
    try:
        for driver in started.values():
            assert driver.rc("check") == 0
        yield started
    finally:
        for driver in started.values():
            driver.__exit__(None, None, None)


def values(driver: Driver, line: str, code: int = 0, events: str = "events") -> dict[str, Any]:
    """Operator values of the call's launch; {} when it is refused, as it must be with another code than 0.

    `events`: what a refused call acquires and disposes of.
    """
    driver.send("clear")
    assert driver.rc(line) == code, line
    launches = driver.launches()
    assert bool(launches) == (code == 0)
    assert code == 0 or driver.send("events") == events, line
    op = ATTN_FWD if line.startswith(("fwd", "v2fwd", "v2varfwd")) else ATTN_BWD
    return decode(launches[-1], op) if launches else {}


def lengths(sequences: int) -> Tensor:
    return Tensor(0x700000, (sequences,), 12)


def packed(level: str, tokens: int = 60, tokens_k: int = 80, sequences: int = 3, **more: Any) -> Problem:
    """Sequences of 20 queries and 30 keys at most in compact variable length, in the words of the level."""
    newer = level >= "0.14"
    rows = (sequences * 4, 20) if level < "0.12" else (4, tokens)
    extra = {
        "cu_seqlens_q": lengths(sequences + 1),
        "cu_seqlens_k": lengths(sequences + 1),
        "max_seqlen_q": 20,
        "max_seqlen_k": 30,
        "L": Tensor(0x800000, rows, FP32),
        "D": Tensor(0x900000, rows, FP32),
        **({"varlen_bits": COMPACT} if newer else {"varlen_type": 1}),
    }
    return Problem(batch=1, seqlen_q=tokens, seqlen_k=tokens_k, extra=extra | more)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("verb", ["fwd", "bwd"])
def test_compact(drivers: dict[str, Driver], level: str, verb: str) -> None:
    found = values(drivers[level], packed(level).line(verb))
    assert (found["varlen_bits"], found["batch"], found["seqlen_q"], found["seqlen_k"]) == (
        COMPACT,
        3,
        20,
        30,
    )
    assert found["seqinfo_q0"] == found["seqinfo_k0"] == 0x700000
    assert found["seqinfo_q1"] == found["seqinfo_k1"] == 0
    strides = [found[f"stride_l{x}"] for x in "zhm"]
    wanted = (0, [80, 20, 1]) if level < "0.12" else (1, [0, 60, 1])
    assert (found["lse_packed"], strides) == wanted
    if verb == "bwd":
        assert [found[f"stride_d{x}"] for x in "zhm"] == strides


@pytest.mark.parametrize("level", LEVELS[:3])
def test_lengths_without_a_type_are_compact(drivers: dict[str, Driver], level: str) -> None:
    assert values(drivers[level], packed(level, varlen_type=0).line("fwd"))["varlen_bits"] == COMPACT


@pytest.mark.parametrize("level", LEVELS)
def test_small_l_of_packed_sequences_is_refused(drivers: dict[str, Driver], level: str) -> None:
    """PyTorch's memory-efficient call allocates heads * longest elements, whatever the number of
    sequences."""
    for verb in ("fwd", "bwd"):
        short = packed(level, L=Tensor(0x800000, (4, 20), FP32))
        values(drivers[level], short.line(verb), INVALID_VALUE)
    one = packed(level, tokens=20, sequences=1, L=Tensor(0x800000, (4, 20), FP32))
    assert values(drivers[level], one.line("fwd"))["L"] == 0x800000
    drivers[level].send("clear")
    small_d = packed(level, D=Tensor(0x900000, (4, 19), FP32))
    values(
        drivers[level], small_d.line("bwd"), INVALID_VALUE, "events +D -D"
    )  # only its owner knows its size


@pytest.mark.parametrize("level", LEVELS[1:])
def test_rows_of_sequences_are_flat_memory(drivers: dict[str, Driver], level: str) -> None:
    """PyTorch's memory-efficient call of nested tensors: (sequences * heads, longest query), large enough for
    (heads, tokens)."""
    rows: dict[str, Any] = {
        name: Tensor(base, (12, 20), FP32) for name, base in (("L", 0x800000), ("D", 0x900000))
    }
    for verb, names in (("fwd", "l"), ("bwd", "ld")):
        found = values(drivers[level], packed(level, tokens=39, **rows).line(verb))
        assert found["lse_packed"] == 1
        for name in names:
            assert [found[f"stride_{name}{x}"] for x in "zhm"] == [0, 39, 1]
    assert (
        values(drivers[level], packed(level, tokens=60, **rows).line("fwd"))["stride_lh"] == 60
    )  # no row to spare
    refused = {
        "too few elements for the tokens": (61, (12, 20), None),
        "enough only with what is between rows": (61, (12, 20), (21, 1)),
        "rows apart": (39, (12, 20), (21, 1)),
        "another number of sequences": (39, (8, 30), None),
        "a product over 64 bits": (39, (12, 2**62), None),
    }
    for why, (tokens, sizes, strides) in refused.items():
        wrong = packed(level, tokens=tokens, L=Tensor(0x800000, sizes, FP32, strides))
        code = NOT_SUPPORTED if sizes[1] > 2**32 else INVALID_VALUE
        for verb in ("fwd", "bwd"):
            assert values(drivers[level], wrong.line(verb), code) == {}, why
    empty = packed(level, tokens=39, L=rows["L"], D=Tensor(0x900000, (12, 0), FP32))
    values(drivers[level], empty.line("bwd"), INVALID_VALUE, "events +D -D")


@pytest.mark.parametrize("level", LEVELS)
def test_longest_sequences_beyond_the_tokens_are_bounded(drivers: dict[str, Driver], level: str) -> None:
    rows = (12, 4096) if level < "0.12" else (4, 60)
    wide = packed(level, max_seqlen_q=4096, max_seqlen_k=2**31 - 1, L=Tensor(0x800000, rows, FP32))
    found = values(drivers[level], wide.line("fwd"))
    assert (found["seqlen_q"], found["seqlen_k"]) == (60, 80)
    unknown = packed(level, max_seqlen_k=0)
    assert values(drivers[level], unknown.line("fwd"))["seqlen_k"] == 80
    values(drivers[level], packed(level, max_seqlen_k=-1).line("fwd"), INVALID_VALUE)


@pytest.mark.parametrize("level", LEVELS)
def test_padded(drivers: dict[str, Driver], level: str) -> None:
    way = {"varlen_bits": PADDED} if level >= "0.14" else {"varlen_type": 2}
    extra = {"cu_seqlens_q": lengths(3), "cu_seqlens_k": lengths(3), "max_seqlen_q": 48, "max_seqlen_k": 64}
    found = values(drivers[level], Problem(extra=extra | way).line("fwd"))
    assert (found["varlen_bits"], found["batch"], found["lse_packed"]) == (PADDED, 2, 0)
    assert [found[f"stride_l{x}"] for x in "zhm"] == [4 * 48, 48, 1]


@pytest.mark.parametrize("level", LEVELS[1:])
def test_strided(drivers: dict[str, Driver], level: str) -> None:
    way = {"varlen_bits": STRIDED} if level >= "0.14" else {"varlen_type": 3}
    places: dict[str, Any] = {"seq_strides_q": lengths(4), "seq_strides_k": Tensor(0x710000, (4,), 12)}
    found = values(drivers[level], packed(level, **way, **places).line("fwd"))
    assert (found["varlen_bits"], found["seqinfo_q1"], found["seqinfo_k1"]) == (STRIDED, 0x700000, 0x710000)
    lost = packed(level, **way, seq_strides_q=lengths(4))
    values(drivers[level], lost.line("fwd"), INVALID_VALUE)


def test_strided_varlen_is_none_of_level_0_11(drivers: dict[str, Driver]) -> None:
    values(drivers["0.11.2b"], packed("0.11.2b", varlen_type=3).line("fwd"), INVALID_VALUE)


NEWEST = "0.14.2b"
CACHE = {"K": Tensor(0x300000, (3, 2, 64, 64), FP16), "V": Tensor(0x400000, (3, 2, 64, 64), FP16)}
WORDS: dict[int, dict[str, Any]] = {
    COMPACT: {},
    STRIDED: {"seq_strides_q": lengths(4), "seq_strides_k": lengths(4)},
    0x000B: {**CACHE, "cu_seqlens_k": None, "max_seqlen_k": 64},
    0x150B: {"cu_seqlens_k": lengths(3), "seq_strides_k": lengths(4)},
    0x040B: {**CACHE, "cu_seqlens_k": lengths(3), "max_seqlen_k": 64},
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("layout", [0, TH])
def test_words_of_level_0_14(drivers: dict[str, Driver], word: int, layout: int) -> None:
    rows = Tensor(0x800000, (60, 4) if layout else (4, 60), FP32)
    made = packed(NEWEST, **{**WORDS[word], "varlen_bits": word | layout, "L": rows})
    found = values(drivers[NEWEST], made.line("fwd"))
    assert (found["varlen_bits"], found["batch"], found["seqlen_q"], found["lse_packed"]) == (word, 3, 20, 1)
    assert [found[f"stride_l{x}"] for x in "zhm"] == ([0, 1, 4] if layout else [0, 60, 1])
    refused = packed(
        NEWEST, **{**WORDS[word], "varlen_bits": word | layout, "L": Tensor(8, rows.sizes[::-1], FP32)}
    )
    values(drivers[NEWEST], refused.line("fwd"), INVALID_VALUE)


def test_token_major_rows_of_dense_and_padded_calls(drivers: dict[str, Driver]) -> None:
    rows = Tensor(0x800000, (2 * 48, 4), FP32)
    for extra in (
        {},
        {"cu_seqlens_q": lengths(3), "cu_seqlens_k": lengths(3), "max_seqlen_q": 48, "max_seqlen_k": 64},
    ):
        word = TH | (PADDED if extra else 0)
        made = Problem(extra={"L": rows, "varlen_bits": word, **extra})
        found = values(drivers[NEWEST], made.line("fwd"))
        assert ([found[f"stride_l{x}"] for x in "zhm"], found["lse_packed"]) == ([48 * 4, 1, 4], 0)


@pytest.mark.parametrize(
    ("word", "extra"),
    [
        (0x0B0F, {}),  # length 3
        (0x0B1B, {}),  # position 3
        (0x0B0D, {}),  # REUSE of individual lengths
        (0x0B09, {"cu_seqlens_q": None}),  # REUSE of no lengths
        (0x0B2B, {}),  # reserved bits of a mode
        (0x40B0B, {}),  # reserved bits of the word
        (0x20B0B, {}),  # lse_layout 2
        (0x0B0B, {"cu_seqlens_k": None}),
        (0x0B0B, {"cu_seqlens_k": lengths(3)}),
        (0x130B, {}),  # ARRAY without positions
        (0x130B, {"seq_strides_k": lengths(2)}),
        (0x0B13, {"seq_strides_q": lengths(3)}),  # Q's positions need one more
        (0x010B, {"cu_seqlens_k": None, "max_seqlen_k": 0}),
        (0x010B, {"cu_seqlens_k": None, "max_seqlen_k": 27}),  # 3 * 27 tokens of 80
        (0x010B, {"max_seqlen_k": 20}),  # an array that no mode reads
        (0x000B, {"cu_seqlens_k": None}),  # one plane of K for three sequences
        (0x0B01, {"cu_seqlens_q": None, "max_seqlen_q": 7}),  # 60 tokens are no multiple
        (0x0000, {}),  # arrays, and dense
        (0x0B0B, {"max_seqlen_q": -1}),
    ],
)
def test_words_that_level_0_14_refuses(drivers: dict[str, Driver], word: int, extra: dict[str, Any]) -> None:
    made = packed(NEWEST, **{"varlen_bits": word, **extra})
    for verb in ("fwd", "bwd"):
        values(drivers[NEWEST], made.line(verb), INVALID_VALUE)
    assert drivers[NEWEST].send("events") == "events"


def test_equal_lengths_of_packed_tokens(drivers: dict[str, Driver]) -> None:
    made = packed(NEWEST, varlen_bits=0x0101, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_k=20)
    found = values(drivers[NEWEST], made.line("fwd"))
    assert (found["batch"], found["seqlen_q"], found["seqlen_k"], found["varlen_bits"]) == (3, 20, 20, 0x0101)


@pytest.mark.parametrize("level", LEVELS)
def test_windows_of_packed_sequences_arrive_as_they_are(drivers: dict[str, Driver], level: str) -> None:
    """Sequences differ in length: neither constants nor bounds can be resolved for all of them."""
    for left, right in ((BOTTOM_RIGHT, TOP_LEFT), (1000, 5), (3, 1000), (-7, -7)):
        window = {"causal_type": 3, "window_left": left, "window_right": right}
        found = values(drivers[level], packed(level, **window).line("fwd"))
        assert (found["mask"], found["window_left"], found["window_right"]) == (1, left, right)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_an_eager_tensor_is_not_acquired(drivers: dict[str, Driver], level: str) -> None:
    driver = drivers[level]
    found = values(driver, Problem(extra={"eager": 1}).line("bwd"))
    assert found["D"] == Problem().fields(backward=True)["D"].base
    assert driver.send("events") == "events"
    values(driver, Problem().line("bwd"))
    assert driver.send("events") == "events +D -D"


ACCEPTED = {"0.11.2b": (1, 3), "0.12.1b": (3, 6), "0.13b": (3, 6), "0.14.2b": (4, 7)}


@pytest.mark.parametrize("level", LEVELS)
def test_versions_of_the_params(drivers: dict[str, Driver], level: str) -> None:
    newest = level == NEWEST
    for verb, accepted in zip(("fwd", "bwd"), ACCEPTED[level], strict=True):
        for version in range(9):
            if newest and version == {"fwd": 3, "bwd": 6}[verb]:
                continue  # test_older_params_at_level_0_14
            code = 0 if version == accepted else INVALID_SYMBOL
            values(drivers[level], Problem(extra={"version": version}).line(verb), code)


@pytest.mark.parametrize("verb", ["fwd", "bwd"])
@pytest.mark.parametrize(
    ("made", "word"),
    [
        (Problem(), 0),
        (packed("0.13b"), COMPACT),
        (packed("0.13b", varlen_type=0), COMPACT),
        (packed("0.13b", varlen_type=3, seq_strides_q=lengths(4), seq_strides_k=lengths(4)), STRIDED),
        (packed("0.13b", seq_strides_q=lengths(4), seq_strides_k=lengths(4)), STRIDED),
        (Problem(extra={"varlen_type": 2, "cu_seqlens_q": lengths(3), "cu_seqlens_k": lengths(3),
                        "max_seqlen_q": 48, "max_seqlen_k": 64}), PADDED),
    ],
    ids=["dense", "compact", "without a type", "strided", "strides", "padded"],
)  # fmt: skip
def test_older_params_at_level_0_14(drivers: dict[str, Driver], verb: str, made: Problem, word: int) -> None:
    """Objects of levels 0.12 and 0.13 give the same call, whatever is at the place of 0.14.s word."""
    newest = values(drivers[NEWEST], made.line(f"{verb} older=1 unset=1"))
    assert newest == values(drivers["0.13b"], made.line(verb)) and newest["varlen_bits"] == word


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("verb", ["fwd", "bwd"])
def test_unset_fields_are_not_read(drivers: dict[str, Driver], level: str, verb: str) -> None:
    """AOTriton's constructors leave fields that PyTorch does not set."""
    line = Problem().line(verb)
    assert values(drivers[level], line.replace(verb, f"{verb} unset=1", 1)) == values(drivers[level], line)


def test_entry_points_by_level(drivers: dict[str, Driver]) -> None:
    absent = {"0.11.2b": (), "0.12.1b": ("aiter",)}
    for level, driver in drivers.items():
        for verb in ("aiter", "v2fused"):
            gone = verb in absent.get(level, ("aiter", "v2fused"))
            assert driver.rc(Problem().line(verb)) == (-2 if gone else NOT_SUPPORTED)
