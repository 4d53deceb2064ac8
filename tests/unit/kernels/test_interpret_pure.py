"""Dispatch, numbers and memory of the interpreter: the parts that need no Triton."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aotforge.errors import ExecutionError, RulesError, UnsupportedError
from aotforge.rules import Kernel, Target
from aotforge.verify.interpreter.corrections import AccessCheck
from aotforge.verify.interpreter.number_formats import bf16_bits, bf16_values, decode, encode
from kernels.flash.rules import FAMILY
from tests.support.source_launches import select
from vgpu.memory import Memory

GFX908 = Target(arch="gfx908", vendor="amd", warp_size=64, matrix="MFMA", shared_bytes=65536)
FORWARD: Kernel = next(k for k in FAMILY.kernels if k.name == "attn_fwd")


def call(**changes: int | float) -> dict[str, int | float]:
    values: dict[str, int | float] = {a.value: 64 for a in FORWARD.arguments}
    values |= {c.key: 0 for c in FORWARD.choices}
    values |= {
        "dtype": 2,
        "head_dim": 64,
        "head_dim_v": 64,
        "width": 64,
        "batch": 3,
        "num_head_q": 5,
        "seqlen_q": 1000,
    }
    return values | changes


def test_large_and_small_queries_get_their_settings() -> None:
    large, small = select(FORWARD, GFX908, call()), select(FORWARD, GFX908, call(seqlen_q=16))
    assert (large.constants["BLOCK_M"], large.grid, large.hinted) == (128, (8, 5, 3), True)
    assert (small.constants["BLOCK_M"], small.grid, small.hinted) == (16, (1, 5, 3), True)
    assert select(FORWARD, GFX908, call(seqlen_q=17)).setting == large.setting


@pytest.mark.parametrize("unaligned", [{"Q": 1026}, {"Out": 8}, {"stride_kn": 7}, {"stride_oz": 4}])
def test_unaligned_calls_get_the_fallback_of_the_last_setting(unaligned: dict[str, int]) -> None:
    launch = select(FORWARD, GFX908, call(seqlen_q=1, **unaligned))
    assert not launch.hinted
    assert launch.setting == FORWARD.settings(GFX908, launch.functional)[-1]


@pytest.mark.parametrize("head_dims", [(48, 64), (64, 63)])
def test_other_head_dims_than_the_width_get_the_general_image(head_dims: tuple[int, int]) -> None:
    launch = select(FORWARD, GFX908, call(head_dim=head_dims[0], head_dim_v=head_dims[1]))
    assert (launch.functional["width"], launch.constants["EXACT"], launch.hinted) == (64, False, False)


def test_unaligned_vectors_of_float32_need_no_fallback() -> None:
    assert select(FORWARD, GFX908, call(L=1028, stride_lz=3)).hinted


@pytest.mark.parametrize(
    "outside",
    [
        {"head_dim": 513, "head_dim_v": 64, "width": 513},
        {"dtype": 13},
        {"mask": 3},
        {"dropout": 2},
    ],
)
def test_calls_outside_the_coverage_are_refused(outside: dict[str, int]) -> None:
    with pytest.raises(UnsupportedError):
        select(FORWARD, GFX908, call(**outside))


def test_the_last_choice_alone_is_a_ladder() -> None:
    assert [choice.ladder for choice in FORWARD.choices][:-1] == [False] * (len(FORWARD.choices) - 1)
    widths = tuple(FORWARD.choices[-1].options.values())
    for width in (*widths, 1, 33):
        values = call(width=width, head_dim=min(w for w in widths if w >= width))
        launch = select(FORWARD, GFX908, values | {"head_dim_v": values["head_dim"]})
        assert launch.functional["width"] == values["head_dim"]


def test_a_missing_value_is_named() -> None:
    values = call()
    del values["window_right"]
    with pytest.raises(RulesError, match="lacks the value window_right"):
        select(FORWARD, GFX908, values)


def test_override_changes_block_sizes_and_the_grid_with_them() -> None:
    launch = select(FORWARD, GFX908, call(), override={"BLOCK_M": 16, "UNKNOWN": 1})
    assert launch.grid[0] == 63
    assert "UNKNOWN" not in launch.constants


def test_no_queries_make_an_empty_grid() -> None:
    assert 0 in select(FORWARD, GFX908, call(seqlen_q=0)).grid


@given(st.floats(width=32, allow_nan=False))
@example(1.99999988)
@example(3.4028234663852886e38)
@example(1.00390625)  # a tie
@example(1.01171875)  # a tie, the other way
@example(1e-40)
def test_bf16_rounds_to_the_nearest_even(value: float) -> None:
    bits = int(bf16_bits(np.array(value))[()])
    if np.isinf(bf16_values(np.array(bits)))[()]:
        assert abs(value) >= float.fromhex("0x1.ffp127")
        return
    magnitude = bits & 0x7FFF
    neighbours = [b for b in (magnitude - 1, magnitude, magnitude + 1) if b >= 0]
    # the first number past the largest would be 2^128: infinity takes its place
    numbers = [float(bf16_values(np.array(b))[()]) if b < 0x7F80 else 2.0**128 for b in neighbours]
    distances = [abs(abs(value) - n) for n in numbers]
    best = min(distances)
    chosen = distances[neighbours.index(magnitude)]
    assert chosen == best
    if distances.count(best) == 2:
        assert magnitude % 2 == 0
    assert (bits >> 15 == 1) == (np.signbit(value))


def test_bf16_keeps_not_a_number_and_infinity() -> None:
    odd = np.array([0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000], dtype=np.uint32).view(np.float32)
    got = bf16_values(bf16_bits(odd))
    assert np.isnan(got[:2]).all()
    assert list(got[2:]) == [np.inf, -np.inf]


@given(st.sampled_from(["fp16", "bf16", "fp32"]), st.integers(0, 2**16 - 1))
def test_stored_numbers_survive_decoding_and_encoding(dtype: str, bits: int) -> None:
    half = {"fp16": np.float16, "bf16": np.uint16}
    stored = (
        np.array([bits << 16], np.uint32).view(np.float32)
        if dtype == "fp32"
        else np.array([bits], np.uint16).view(half[dtype])
    )
    values = decode(stored, dtype)  # type: ignore[arg-type]
    if not np.isnan(values).any():
        assert encode(values, dtype).tobytes() == stored.tobytes()  # type: ignore[arg-type]


def test_accesses_are_checked_to_the_byte() -> None:
    first, second = np.zeros(8, np.uint16), np.zeros(4, np.float32)
    check = AccessCheck(Memory({"first": first, "second": second}))
    start = first.ctypes.data
    inside = np.arange(start, start + 16, 2, dtype=np.uint64)
    check(inside, 2, "read")
    check(np.array([second.ctypes.data], np.uint64), 4, "write")
    for addresses, size in (
        (inside + np.uint64(1), 2),
        (inside - np.uint64(2), 2),
        (inside, 4),
        (inside * 0, 1),
    ):
        with pytest.raises(ExecutionError):
            check(addresses, size, "read")


def test_an_outside_access_names_distance_and_buffer() -> None:
    buffer = np.zeros(8, np.uint16)
    with pytest.raises(ExecutionError, match="write 2 bytes") as error:
        AccessCheck(Memory({"Q": buffer}))(np.array([buffer.ctypes.data + 16], np.uint64), 2, "write")
    assert "+16 bytes from the start of Q, which has 16 bytes" in error.value.cause


def test_no_memory_means_no_access() -> None:
    with pytest.raises(ExecutionError):
        AccessCheck(Memory({"empty": np.zeros(0, np.uint16)}))(np.array([64], np.uint64), 1, "read")
    AccessCheck(Memory({}))(np.array([], np.uint64), 1, "read")
