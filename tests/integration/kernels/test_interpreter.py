"""The interpreter is a check only if it is faithful: types, rounding, bounds, and no trace left behind."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aotforge.errors import ExecutionError, UnsupportedError
from aotforge.verify.interpreter.breakpoints import tensor_text
from aotforge.verify.interpreter.corrections import Opaque, corrections
from aotforge.verify.interpreter.machine import execute
from aotforge.verify.interpreter.number_formats import (
    EPSILON,
    STORAGE,
    DType,
    bf16_bits,
    bf16_values,
    decode,
    encode,
)
from kernels.add.rules import FAMILY as ADD
from tests.integration.kernels import probe_kernels
from tests.integration.kernels.attention_call import DTYPE_KEY, FOLDER, GFX908, run_operator
from vgpu.memory import Memory


def run(kernel: Opaque, arguments: dict[str, Any], types: dict[str, str], **constants: int | bool) -> None:
    buffers = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    values = {n: v.ctypes.data if isinstance(v, np.ndarray) else v for n, v in arguments.items()}
    execute(
        kernel, types_=types, arguments=values, constants=constants, grid=(1, 1, 1), memory=Memory(buffers)
    )


COPY = {"x": "*fp32", "out": "*fp32", "n": "i32", "shift": "i32"}


def test_a_masked_lane_touches_nothing() -> None:
    x, out = np.arange(5, dtype=np.float32), np.full(5, -1, dtype=np.float32)
    run(probe_kernels.copy, {"x": x, "out": out, "n": 5, "shift": 0}, COPY, BLOCK=8, MASKED=True)
    assert list(out) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("masked", "shift", "verb"), [(False, 0, "read"), (True, 1, "read"), (True, -1, "read")]
)
def test_reading_outside_the_buffers_is_an_error(masked: bool, shift: int, verb: str) -> None:
    x, out = np.zeros(5, dtype=np.float32), np.zeros(8, dtype=np.float32)
    with pytest.raises(ExecutionError, match=verb):
        run(probe_kernels.copy, {"x": x, "out": out, "n": 5, "shift": shift}, COPY, BLOCK=8, MASKED=masked)


def test_writing_outside_the_buffers_is_an_error_and_does_not_happen() -> None:
    x, backing = np.ones(8, dtype=np.float32), np.zeros(8, dtype=np.float32)
    with pytest.raises(ExecutionError, match="write"):
        run(probe_kernels.copy, {"x": x, "out": backing[:5], "n": 8, "shift": 0}, COPY, BLOCK=8, MASKED=False)
    assert not backing.any()


@pytest.mark.parametrize("dtype", ["bf16", "fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16"])
def test_arithmetic_of_bit_patterns_is_rounded_after_each_operation(dtype: DType) -> None:
    x = encode(np.linspace(-2.2, 2.2, 64), dtype)
    out = np.zeros_like(x)
    run(probe_kernels.square, {"x": x, "out": out}, {"x": f"*{dtype}", "out": f"*{dtype}"}, BLOCK=64)
    product = decode(encode(decode(x, dtype) ** 2, dtype), dtype)
    assert (product > 2).any()
    np.testing.assert_array_equal(decode(out, dtype), np.where(product > 2, -1.0, product))


def test_a_sum_of_bfloat16_with_a_nan_is_nan() -> None:
    x, out = bf16_bits(np.full(16, 0.5)), np.zeros(1, np.uint16)
    types = {"x": "*bf16", "out": "*bf16"}
    run(probe_kernels.total, {"x": x, "out": out}, types, BLOCK=16)
    assert bf16_values(out)[0] == 8
    x[5] = 0x7FC0
    run(probe_kernels.total, {"x": x, "out": out}, types, BLOCK=16)
    assert np.isnan(bf16_values(out)[0])


FLOATS: tuple[DType, ...] = ("fp16", "bf16", "fp32", "fp64", "fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16")
INTEGERS: tuple[DType, ...] = ("i8", "u8", "i32", "i64")
CONVERSIONS = (  # Triton has none between fp8 and integers
    *product(FLOATS, FLOATS), *product(FLOATS[:4], INTEGERS), *product(INTEGERS, FLOATS[:4])
)  # fmt: skip


@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_conversions_are_rounded_once(source: DType, target: DType) -> None:
    draws = np.random.default_rng(3).standard_normal(64) * 7
    x = encode(np.trunc(np.abs(draws)) if target in INTEGERS else draws, source)
    out = np.zeros(64, STORAGE[target])
    run(probe_kernels.convert, {"x": x, "out": out}, {"x": f"*{source}", "out": f"*{target}"}, BLOCK=64)
    np.testing.assert_array_equal(decode(out, target), decode(encode(decode(x, source), target), target))


@pytest.mark.parametrize(("dtype", "infinity", "nan"), [("fp8e5", 0x7C, 0x7E), ("fp8e4nv", None, 0x7F)])
def test_specials_of_fp8_stay_special(dtype: str, infinity: int | None, nan: int) -> None:
    x = np.array([nan if infinity is None else infinity, nan], np.uint8)
    out = np.zeros(2, np.uint16)
    run(probe_kernels.convert, {"x": x, "out": out}, {"x": f"*{dtype}", "out": "*bf16"}, BLOCK=2)
    values = bf16_values(out)
    assert np.isnan(values[1]) and (np.isnan(values[0]) if infinity is None else values[0] == np.inf)


def test_the_debugger_shows_numbers_of_bit_patterns() -> None:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    for type_, pattern in ((tl.bfloat16, np.uint16(0x3FC0)), (tl.float8e4nv, np.uint8(0x3C))):
        shown = tensor_text(tl.tensor(TensorHandle(np.array([pattern]), type_), type_))
        assert shown == f"{type_} scalar\n[1.5]"


def test_atomics_are_checked_and_refused_on_bit_patterns() -> None:
    out = np.zeros(4, np.int32)
    types = {"out": "*i32", "at": "i32", "amount": "i32"}
    run(probe_kernels.count, {"out": out, "at": 3, "amount": 2}, types)
    assert list(out) == [0, 0, 0, 2]
    with pytest.raises(ExecutionError, match="write 4 bytes outside its buffers"):
        run(probe_kernels.count, {"out": out, "at": 4, "amount": 2}, types)
    halves = np.zeros(4, np.uint16)
    with pytest.raises(UnsupportedError, match="no atomics of bf16"):
        narrow = {**types, "out": "*bf16", "amount": "fp32"}
        run(probe_kernels.count, {"out": halves, "at": 0, "amount": 1.0}, narrow)


def test_bfloat16_dot_multiplies_numbers_and_not_bits() -> None:
    values = np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    x, out = bf16_bits(values), np.zeros((16, 16), np.float32)
    run(probe_kernels.product, {"x": x, "out": out}, {"x": "*bf16", "out": "*fp32"}, BLOCK=16)
    exact = bf16_values(x).astype(np.float64)
    np.testing.assert_allclose(out, exact @ exact.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("type_", "expected"), [("i32", 0), ("i64", 2**32)])
def test_arguments_have_the_width_of_their_signature(type_: str, expected: int) -> None:
    out = np.zeros(1, dtype=np.float32)
    run(probe_kernels.wrapped, {"out": out, "a": 2**16, "b": 2**16}, {"out": "*fp32", "a": type_, "b": type_})
    assert out[0] == expected


def test_an_argument_that_its_type_cannot_hold_is_an_error() -> None:
    out = np.zeros(1, dtype=np.float32)
    with pytest.raises(OverflowError):
        run(probe_kernels.wrapped, {"out": out, "a": 2**31, "b": 1}, {"out": "*fp32", "a": "i32", "b": "i32"})


def test_every_program_of_a_grid_runs_once() -> None:
    out = np.zeros(24, dtype=np.float32)
    execute(
        probe_kernels.which, types_={"out": "*fp32"}, arguments={"out": out.ctypes.data},
        constants={"BLOCK": 5}, grid=(2, 3, 4), memory=Memory({"out": out}),
    )  # fmt: skip
    assert list(out) == list(range(5, 29))


def test_triton_is_as_before_after_a_run_and_after_an_error() -> None:
    import triton.language as tl
    from triton.language import core, standard
    from triton.runtime import interpreter

    def state() -> list[dict[str, Any]]:
        builder = interpreter.interpreter_builder
        members = [name for name, _ in corrections(builder, Memory({}))]
        bound = {name: getattr(builder, name).__func__ for name in members}
        return [dict(vars(m)) for m in (tl, core, standard, core.tensor, core.dtype, probe_kernels)] + [bound]

    before = state()
    out = np.zeros(8, dtype=np.float32)
    good = {"x": out, "out": out, "n": 5, "shift": 0}
    run(probe_kernels.copy, good, COPY, BLOCK=8, MASKED=True)
    with pytest.raises(ExecutionError):
        run(probe_kernels.copy, {**good, "shift": 9}, COPY, BLOCK=8, MASKED=False)
    assert state() == before


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    dtype=st.sampled_from(["fp16", "bf16", "fp32"]),
    n=st.one_of(st.integers(0, 40), st.integers(2000, 5000)),
    offset=st.sampled_from([0, 8, 3]),
    seed=st.integers(0, 999),
)
def test_add_family_adds(dtype: DType, n: int, offset: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, out = (encode(rng.standard_normal(n + offset + 8) * 8, dtype) for _ in range(3))
    untouched = out.copy()
    values = {"n": n, "dtype": DTYPE_KEY[dtype]}
    values |= {name: a.ctypes.data + offset * a.itemsize for name, a in (("x", x), ("y", y), ("out", out))}
    run_operator(
        ADD, FOLDER.parent / "add", "add", target=GFX908, values=values, buffers={"x": x, "y": y, "out": out}
    )
    inside = slice(offset, offset + n)
    expected = decode(x, dtype)[inside] + decode(y, dtype)[inside]
    error = np.abs(decode(out, dtype)[inside] - expected)
    # the sum is rounded to float32 and then to the dtype
    assert np.all(error <= (EPSILON[dtype] * 1.001 + 2.0**-24) * np.abs(expected) + 2.0**-25)
    untouched[inside] = out[inside]
    assert untouched.tobytes() == out.tobytes()
