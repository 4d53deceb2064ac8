"""Cases of a family from one numpy function and shapes: tensors, reference, bounds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from aotforge.verify.compare import Exact, Expected
from aotforge.verify.interpreter.number_formats import (
    EPSILON,
    SMALLEST,
    STORAGE,
    Array,
    DType,
    decode,
    encode,
    is_exact,
)
from aotforge.verify.invocation import Case, Invocation
from aotforge.verify.specials import Specials, expectation, with_specials
from aotforge.verify.tensors import Float, Guarded, Layout, check_dtype, dtype_of

Shape = Mapping[str, int]
"""Sizes by name; each is an operator value of that name."""
Values = Mapping[str, int | float]


Total = Callable[..., Array]
"""Sums of an array along an `axis` (default: the last), kept as 1; done in several orders."""

Compute = Callable[[Mapping[str, Array], Values, Total], Mapping[str, Array]]
"""Outputs by name from inputs by name and the operator's values. It works in the precision of its inputs."""


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Normally distributed numbers; of integers all from -100 to 100 that the type has, of bool both."""
    if not is_exact(dtype):
        return rng.standard_normal(shape)
    limits = np.iinfo(STORAGE[dtype])
    high = 1 if dtype == "i1" else min(100, limits.max)
    return rng.integers(max(-100, limits.min), high + 1, size=shape, dtype=STORAGE[dtype])


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of every call: names of sizes (or numbers) as its shape, and its type.

    `dtype` may name a key of the functional in braces, as in "{dtype}". `strides` are operator values by
    axis; a tensor with the stride of its rows is also tried with rows that do not follow each other. `draw`
    makes an input's numbers, `specials` states which special numbers may be among them in one more call.
    """

    shape: tuple[str | int, ...]
    dtype: str = "{dtype}"
    strides: Mapping[str, int] = field(default_factory=dict)
    draw: Callable[[np.random.Generator, tuple[int, ...], DType], Array] = _drawn
    specials: Specials = "all"

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        """The tensor's shape in one call."""
        return tuple(shape[name] if isinstance(name, str) else name for name in self.shape)

    def type(self, keys: Mapping[str, int]) -> DType:
        """The tensor's type in one functional. Raises RulesError."""
        if self.dtype.startswith("{"):
            return dtype_of(keys[self.dtype.strip("{}")])
        return check_dtype(self.dtype)


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Calls of an operator: assign `cases`, `shaped` and `typical` (as SHAPE) to the names that cases.py has.

    `compute` is the operator in numpy. `roundings` bounds the number of float32 roundings (float64 for fp64)
    that an element of an output depends on, in units of `magnitude`, by default of the element itself: sums
    that cancel need their terms' absolute values there. `scalars` are further operator values.
    """

    compute: Compute
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    shapes: Sequence[Shape]
    typical: Shape
    roundings: Callable[[Shape], float] = lambda shape: 1.0
    magnitude: Compute | None = None
    scalars: Values = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    title: str = ""

    def cases(self, kernel: str, keys: Mapping[str, int]) -> list[Case]:
        """Every shape with tensors of 64 bytes alignment, with odd addresses, and with rows apart."""
        layouts = {"aligned": Layout(), "unaligned": Layout(offset=37)}
        if any(tensor.strides for tensor in {**self.inputs, **self.outputs}.values()):
            layouts |= {"rows apart": Layout(row_padding=3), **self.layouts}
        return [
            Case(
                name=f"{self._name(shape)}, {where}",
                make=partial(self._invocation, keys, shape, layout),
                special=partial(self._invocation, keys, shape, layout, special=True),
                elements=self._elements(shape),
            )
            for shape in self.shapes
            for where, layout in layouts.items()
        ]

    def shaped(self, kernel: str, keys: Mapping[str, int], shape: Shape) -> Case:
        """A call of a given shape on aligned tensors."""
        complete = {**self.typical, **shape}
        name = ", ".join(f"{name}={size}" for name, size in complete.items())
        return Case(name=name, make=partial(self._invocation, keys, complete, Layout()))

    def _elements(self, shape: Shape) -> int:
        special = (one for one in self.inputs.values() if one.specials != "none")
        return max((prod(one.sizes(shape)) for one in special), default=0)

    def _name(self, shape: Shape) -> str:
        return self.title.format(**shape) or ", ".join(f"{name}={size}" for name, size in shape.items())

    def _invocation(
        self, keys: Mapping[str, int], shape: Shape, layout: Layout, *, special: bool = False
    ) -> Invocation:
        rng = np.random.default_rng(sum(shape.values()))
        numbers = {
            name: self._numbers(tensor, rng, keys, shape, special=special)
            for name, tensor in self.inputs.items()
        }
        tensors = {
            name: Guarded(tensor.sizes(shape), tensor.type(keys), _layout(tensor, layout), numbers.get(name))
            for name, tensor in {**self.inputs, **self.outputs}.items()
        }
        values: dict[str, int | float] = {**self.scalars, **keys, **shape}
        for name, guarded in tensors.items():
            values[name] = guarded.address
            described = self.inputs.get(name) or self.outputs[name]
            values |= {stride: guarded.strides[axis] for stride, axis in described.strides.items()}

        def expected() -> dict[str, Expected | Exact]:
            with np.errstate(all="ignore") if special else nullcontext():
                return dict(self._expected(numbers, values, keys, shape, special=special))

        return Invocation(
            values=values,
            inputs={name: tensors[name] for name in self.inputs},
            outputs={name: tensors[name] for name in self.outputs},
            expected=expected,
        )

    @staticmethod
    def _numbers(
        tensor: Tensor, rng: np.random.Generator, keys: Mapping[str, int], shape: Shape, *, special: bool
    ) -> Array:
        dtype = tensor.type(keys)
        drawn = tensor.draw(rng, tensor.sizes(shape), dtype)
        if special:
            drawn = with_specials(rng, drawn, dtype, tensor.specials)
        return decode(encode(drawn, dtype), dtype)

    def _expected(
        self,
        numbers: Mapping[str, Array],
        values: Values,
        keys: Mapping[str, int],
        shape: Shape,
        *,
        special: bool,
    ) -> Iterator[tuple[str, Expected | Exact]]:
        kinds = {name: tensor.type(keys) for name, tensor in self.outputs.items()}
        wide = "fp64" in {*kinds.values(), *(tensor.type(keys) for tensor in self.inputs.values())}
        # float64 itself needs a reference with more bits
        precise: type[Any] = np.longdouble if wide else np.float64
        step: DType = "fp64" if wide else "fp32"
        exact = self.compute(_as(numbers, precise), values, _exact_total)
        sizes = (self.magnitude or self.compute)(_as(numbers, precise), values, _exact_total)
        peers = [self.compute(_as(numbers, STORAGE[step].type), values, total) for total in _TOTALS]
        for name, dtype in kinds.items():
            if is_exact(dtype):
                yield name, Exact(value=np.asarray(exact[name]))
                continue
            value = np.asarray(exact[name], dtype=np.float64)
            # one rounding to the output's type and those of the computation; of fp64 also one of the
            # reference
            roundings = self.roundings(shape) + (1 if wide else 0)
            size = np.abs(np.asarray(sizes[name], dtype=np.float64))
            error = EPSILON[dtype] * np.abs(value) + roundings * EPSILON[step] * size + SMALLEST[dtype]
            stored = [_rounded(np.asarray(peer[name]), dtype) for peer in peers]
            yield name, expectation(value, error, stored, dtype, special=special)


def _layout(tensor: Tensor, layout: Layout) -> Layout:
    """Rows are apart, and axes in another order, only where strides of the operator describe them."""
    if not layout.order and not layout.row_padding:
        return layout
    outer = range(len(tensor.shape) - 1)
    needed = outer if layout.order else outer[-1:]
    return layout if needed and {*needed} <= {*tensor.strides.values()} else Layout()


def _as(numbers: Mapping[str, Array], kind: type[Any]) -> dict[str, Array]:
    """Floats in another precision; integers as they are."""
    return {name: x.astype(kind) if x.dtype.kind == "f" else x for name, x in numbers.items()}


def _rounded(values: Array, dtype: DType) -> Float:
    return cast("npt.NDArray[np.float64]", decode(encode(values, dtype), dtype))


def _exact_total(values: Array, axis: int = -1) -> Array:
    return np.asarray(values.sum(axis=axis, keepdims=True))


def _one_by_one(values: Array, axis: int = -1) -> Array:
    """From the first to the last, one after another."""
    return np.asarray(np.add.accumulate(values, axis=axis, dtype=values.dtype).take([-1], axis=axis))


def _in_lanes(values: Array, axis: int = -1) -> Array:
    """64 lanes, each adding every 64th element, then a tree over the lanes: as a warp of 64 does."""
    lanes = np.moveaxis(values, axis, 0)
    padded = np.concatenate([lanes, np.zeros((-len(lanes) % 64, *lanes.shape[1:]), dtype=lanes.dtype)])
    sums = np.add.accumulate(padded.reshape(-1, 64, *lanes.shape[1:]), axis=0, dtype=lanes.dtype)[-1]
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return np.moveaxis(sums, 0, axis)


_TOTALS: tuple[Total, ...] = (_exact_total, _one_by_one, _in_lanes)
