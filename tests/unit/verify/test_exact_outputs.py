"""Tensors of every type and rank, exact outputs, and errors of a family's cases."""

from __future__ import annotations

import numpy as np
import pytest

from aotforge.errors import RulesError
from aotforge.verify.calls import Calls, Tensor
from aotforge.verify.compare import Bounded, Exact, Expected
from aotforge.verify.interpreter.number_formats import (
    DTYPES,
    EPSILON,
    SMALLEST,
    DType,
    decode,
    encode,
    is_exact,
)
from aotforge.verify.tensors import Guarded, Layout, dtype_of


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (2, 3, 4), (2, 1, 3, 4, 5)])
def test_tensors_of_every_type_and_rank(dtype: DType, shape: tuple[int, ...]) -> None:
    values = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape) % 2
    for offset in (64, 37):
        tensor = Guarded(shape, dtype, Layout(offset=offset, row_padding=3), values)
        assert np.array_equal(tensor.values(), values) and tensor.values().shape == shape
        assert (tensor.address % 64 == 0) == (offset == 64)
        output = Guarded(shape, dtype, Layout(offset=offset))
        assert output.intact() and not np.array_equal(output.values(), values)
        output.bits()[...] = tensor.bits()
        assert output.intact() and np.array_equal(output.values(), values)
        end = offset + values.size
        output.storage[end] = encode(np.ones(1), dtype).view(output.storage.dtype)[0]
        assert not output.intact()


def test_an_unknown_type_is_a_named_error() -> None:
    with pytest.raises(RulesError, match=r"'i33' is not a valid element type[\s\S]*perhaps you meant i32"):
        Guarded((3,), "i33", Layout())  # type: ignore[arg-type]
    with pytest.raises(RulesError, match="7 is not the number of an element type"):
        dtype_of(7)


@pytest.mark.parametrize(("dtype", "value"), [("i8", 128), ("u8", -1), ("i1", 2), ("u32", 2**32)])
def test_inputs_that_the_type_does_not_have(dtype: DType, value: int) -> None:
    with pytest.raises(RulesError, match=f"a value that {dtype} does not have"):
        Guarded((1,), dtype, Layout(), np.array([value]))


def test_an_order_of_other_axes_is_refused() -> None:
    with pytest.raises(RulesError, match="does not fit a tensor of 3 axes"):
        Layout(order=(0, 1, 2)).strides((2, 3, 4))


def test_integers_are_compared_exactly_beyond_the_precision_of_float64() -> None:
    value = np.array([[2**63 - 1, -(2**62) - 1]])
    right = Exact(value=value).compare(value.copy())
    assert right.passed and right.element == right.tensor == right.tile == 0
    wrong = Exact(value=value).compare(value + np.array([[0, 1]]))
    assert wrong.violations("out") == (
        f"out is wrong in 1 of 2 elements; the first at (0, 1) is {-(2**62)} instead of {-(2**62) - 1}",
    )
    assert not Exact(value=np.zeros(3, dtype=np.int8)).is_informative
    with pytest.raises(RulesError, match="has the shape"):
        Exact(value=value).compare(value[0])


@pytest.mark.parametrize("dtype", [name for name in DTYPES if not is_exact(name)])
@pytest.mark.parametrize("shape", [(700,), (33, 48), (2, 3, 40, 32)])
def test_correct_rounding_of_every_float_passes_and_a_scaled_tensor_fails(
    dtype: DType, shape: tuple[int, ...]
) -> None:
    value = np.random.default_rng(5).standard_normal(shape)
    stored = decode(encode(value, dtype), dtype)
    bounded = Bounded(value=value, error=EPSILON[dtype] * np.abs(value) + SMALLEST[dtype])
    expected = Expected(bounded=bounded, same_precision=[stored], dtype=dtype)
    assert expected.compare(stored).passed
    assert not expected.compare(decode(encode(1.3 * value, dtype), dtype)).passed


def test_calls_from_one_function() -> None:
    calls = Calls(
        compute=lambda t, v, total: {
            "most": np.argmax(t["x"], axis=-1).astype(np.int32),
            "mean": (total(t["x"]) / v["columns"])[..., 0],
        },
        inputs={"x": Tensor(shape=("rows", "columns"), strides={"stride_x": 0})},
        outputs={"most": Tensor(shape=("rows",), dtype="i32"), "mean": Tensor(shape=("rows",))},
        shapes=[{"rows": 3, "columns": 70}],
        typical={"rows": 8, "columns": 64},
        roundings=lambda shape: shape["columns"],
        magnitude=lambda t, v, total: {
            "most": t["x"],
            "mean": (total(np.abs(t["x"])) / v["columns"])[..., 0],
        },
        scalars={"eps": 0.5},
    )
    cases = calls.cases("k", {"dtype": 2})
    assert [case.name for case in cases] == [
        f"rows=3, columns=70, {layout}" for layout in ("aligned", "unaligned", "rows apart")
    ]
    strides = [case.make().values["stride_x"] for case in cases]
    assert strides == [70, 70, 73]
    call = cases[0].make()
    assert {name: call.values[name] for name in ("rows", "columns", "dtype", "eps")} == {
        "rows": 3, "columns": 70, "dtype": 2, "eps": 0.5
    }  # fmt: skip
    expected = call.expected()
    x = call.inputs["x"].values()
    assert np.array_equal(expected["most"].compare(x.argmax(axis=1)).actual, x.argmax(axis=1))
    mean = expected["mean"]
    assert isinstance(mean, Expected) and len(mean.same_precision) == 3
    assert mean.compare(decode(encode(x.astype(np.float32).mean(axis=1), "fp16"), "fp16")).passed
    assert not mean.compare(1.01 * mean.bounded.value).passed
    assert calls.shaped("k", {"dtype": 1}, {"rows": 2}).name == "rows=2, columns=64"


def test_the_reference_of_float64_is_wider_than_float64() -> None:
    calls = Calls(
        compute=lambda t, v, total: {"out": total(t["x"])[..., 0]},
        inputs={"x": Tensor(shape=("n",))},
        outputs={"out": Tensor(shape=())},
        shapes=[{"n": 1000}],
        typical={"n": 8},
        roundings=lambda shape: shape["n"],
        magnitude=lambda t, v, total: {"out": total(np.abs(t["x"]))[..., 0]},
    )
    call = calls.cases("k", {"dtype": 101})[0].make()
    expected = call.expected()["out"]
    x = call.inputs["x"].values()
    assert expected.compare(np.asarray(x.sum())).passed
    assert not expected.compare(np.asarray(x.astype(np.float32).sum(), dtype=np.float64)).passed
