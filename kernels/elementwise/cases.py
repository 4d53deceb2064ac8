"""Calls on which the images of `add` are executed: sizes around blocks and tiles, broadcast, permuted and
padded axes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import cycle
from math import prod

import numpy as np

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
from aotforge.verify.specials import expectation, with_specials
from aotforge.verify.tensors import Guarded, Layout, dtype_of

from .operators import STRIDED_RANK, TENSORS

SHAPE = {"n": 65536}
_UNALIGNED = 37
_FLOATS, _INTEGERS = (1.0, 0.1, -2.5, 0.0), (1, 3, -2, 0)


@dataclass(frozen=True, kw_only=True)
class View:
    """How a tensor is stored: the axes of the call from the outermost in; it is broadcast along axes that are
    missing."""

    order: tuple[int, ...]
    padding: int = 0

    def strides(self, guarded: Guarded) -> dict[int, int]:
        """By axis of the call, in elements."""
        return dict(zip(self.order, guarded.strides, strict=True))

    def broadcast(self, stored: Array, rank: int) -> Array:
        """The tensor with the call's axes, 1 where it is broadcast."""
        missing = tuple(axis for axis in range(rank) if axis not in self.order)
        kept = np.transpose(stored, np.argsort(self.order)) if self.order else stored
        return np.expand_dims(kept, missing)


@dataclass(frozen=True, kw_only=True)
class Call:
    """Sizes from the outermost axis in, a view by tensor (by default all axes in order), and where all
    tensors start."""

    sizes: tuple[int, ...]
    views: Mapping[str, View]
    alpha: float
    aligned: bool = True

    def view(self, name: str) -> View:
        """How the tensor is stored."""
        return self.views.get(name) or View(order=tuple(range(len(self.sizes))))

    def guarded(self, name: str, dtype: DType, values: Array | None = None) -> Guarded:
        """The tensor; an output without values."""
        view = self.view(name)
        layout = Layout(row_padding=view.padding, offset=64 if self.aligned else _UNALIGNED)
        return Guarded(self.stored_shape(name), dtype, layout, values)

    def stored_shape(self, name: str) -> tuple[int, ...]:
        """In storage order."""
        return tuple(self.sizes[axis] for axis in self.view(name).order)

    def case(self, kernel: str, keys: Mapping[str, int]) -> Case:
        """The call for one functional of a kernel."""
        shape, where = " x ".join(map(str, self.sizes)), "aligned" if self.aligned else "unaligned"
        stored = ", ".join(f"{name} {view.order}+{view.padding}" for name, view in self.views.items())
        return Case(
            name=f"{shape}{', ' * bool(stored)}{stored}, alpha {self.alpha:g}, {where}",
            make=lambda: self.invocation(kernel, keys),
            special=lambda: self.invocation(kernel, keys, special=True),
            elements=max(prod(self.stored_shape(name)) for name in ("input", "other")),
        )

    def invocation(self, kernel: str, keys: Mapping[str, int], *, special: bool = False) -> Invocation:
        """New tensors."""
        dtype = dtype_of(keys["dtype"])
        rng = np.random.default_rng(sum(self.sizes))
        numbers = {name: _drawn(rng, self.stored_shape(name), dtype) for name in ("input", "other")}
        if special:
            numbers = {name: with_specials(rng, drawn, dtype) for name, drawn in numbers.items()}
        tensors = {name: self.guarded(name, dtype, numbers.get(name)) for name in TENSORS}
        values: dict[str, int | float] = {name: tensor.address for name, tensor in tensors.items()}
        values |= {"alpha": _bits(self.alpha, dtype), "dtype": keys["dtype"], "n": prod(self.sizes)}
        rank = len(self.sizes)
        if kernel != "add_dense":
            values |= {f"size_{rank - 1 - axis}": size for axis, size in enumerate(self.sizes)}
            strides = {name: self.view(name).strides(tensor) for name, tensor in tensors.items()}
            for axis in range(STRIDED_RANK):
                values.setdefault(f"size_{axis}", 1)
                for name in TENSORS:
                    values[f"stride_{name}_{axis}"] = strides[name].get(rank - 1 - axis, 0)
        return Invocation(
            values=values,
            inputs={name: tensors[name] for name in ("input", "other")},
            outputs={"out": tensors["out"]},
            expected=lambda: {"out": self._expected(numbers, dtype, special=special)},
        )

    def _expected(self, numbers: Mapping[str, Array], dtype: DType, *, special: bool) -> Expected | Exact:
        with np.errstate(all="ignore") if special else nullcontext():
            return self._result(numbers, dtype, special=special)

    def _result(self, numbers: Mapping[str, Array], dtype: DType, *, special: bool) -> Expected | Exact:
        left, right = (
            self.view(name).broadcast(decode(encode(numbers[name], dtype), dtype), len(self.sizes))
            for name in ("input", "other")
        )

        def stored(result: Array) -> Array:
            return np.transpose(np.broadcast_to(result, self.sizes), self.view("out").order)

        if is_exact(dtype):
            factor = np.asarray(int(self.alpha)).astype(STORAGE[dtype])
            return Exact(value=stored(left + factor * right))
        step: DType = "fp64" if dtype == "fp64" else "fp32"
        kind = STORAGE[step].type
        factor, wide = kind(self.alpha), np.longdouble if dtype == "fp64" else np.float64
        term = wide(factor) * right.astype(wide)
        exact = stored(left.astype(wide) + term).astype(np.float64)
        # the product and the sum, or both at once
        size = stored(np.abs(left) + np.abs(term)).astype(np.float64)
        error = EPSILON[dtype] * np.abs(exact) + 3 * EPSILON[step] * size + SMALLEST[dtype]
        peers = (left.astype(kind) + factor * right.astype(kind), (left.astype(wide) + term).astype(kind))
        rounded = [decode(encode(stored(peer), dtype), dtype).astype(np.float64) for peer in peers]
        return expectation(exact, error, rounded, dtype, special=special)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Normally distributed numbers; of integers all that the type has: sums wrap around."""
    if not is_exact(dtype):
        return rng.standard_normal(shape)
    limits = np.iinfo(STORAGE[dtype])
    return rng.integers(limits.min, limits.max, size=shape, dtype=STORAGE[dtype], endpoint=True)


def _bits(alpha: float, dtype: DType) -> int:
    """`alpha` as `rules.Parameter` describes numbers."""
    return int(alpha) if is_exact(dtype) else int(struct.unpack("<q", struct.pack("<d", alpha))[0])


def _dense() -> Iterator[tuple[tuple[int, ...], Mapping[str, View]]]:
    # blocks have 512 to 4096 elements
    for n in (1, 8, 37, 1003, 2056, 4096, 5000):
        yield (n,), {}


def _tiles() -> Iterator[tuple[tuple[int, ...], Mapping[str, View]]]:
    # few rows have 512 to 4096 elements in a tile, narrow tiles 32 columns, others 64 x 64 or 32 x 32
    yield (3, 67), {name: View(order=(0, 1), padding=5) for name in TENSORS}
    yield (2, 4104), {"input": View(order=(1,)), "other": View(order=(0, 1), padding=8)}
    yield (1, 520), {"other": View(order=())}
    yield (8, 24), {"input": View(order=(0, 1), padding=8), "other": View(order=(1, 0))}
    yield (130, 24), {name: View(order=(0, 1), padding=8) for name in TENSORS}
    yield (11, 32), {"input": View(order=(1, 0), padding=5), "other": View(order=(0,))}
    yield (2, 9, 16), {"input": View(order=(1, 0, 2)), "out": View(order=(0, 1, 2), padding=8)}
    yield (70, 72), {"input": View(order=(1, 0), padding=2), "other": View(order=(0,))}
    yield (66, 40), {"input": View(order=(1, 0)), "out": View(order=(1, 0), padding=1)}
    yield (
        (3, 11, 72),
        {"input": View(order=(0, 2)), "other": View(order=(1, 2), padding=8), "out": View(order=(1, 0, 2))},
    )
    yield (
        (2, 3, 9, 40),
        {
            "input": View(order=(2, 1, 0, 3)),
            "other": View(order=(0, 3, 2), padding=6),
            "out": View(order=(0, 1, 2, 3), padding=16),
        },
    )


def _strided() -> Iterator[tuple[tuple[int, ...], Mapping[str, View]]]:
    yield (601,), {"other": View(order=())}
    yield (
        (3, 5, 7),
        {
            "input": View(order=(2, 0, 1), padding=2),
            "other": View(order=(1, 2), padding=1),
            "out": View(order=(1, 0, 2), padding=3),
        },
    )
    yield (2, 3, 2, 5, 4), {"input": View(order=(4, 3, 1)), "out": View(order=(1, 0, 2, 3, 4), padding=1)}
    yield (
        (2, 3, 2, 2, 3, 2, 2, 3),
        {"input": View(order=(7, 5, 3, 1)), "other": View(order=(1, 0, 3, 2, 5, 4, 7, 6))},
    )


def _calls(kernel: str, keys: Mapping[str, int]) -> Iterator[Call]:
    alphas = cycle(_INTEGERS if is_exact(dtype_of(keys["dtype"])) else _FLOATS)
    for sizes, views in {"add_dense": _dense, "add_tiles": _tiles, "add_strided": _strided}[kernel]():
        for aligned in (True, False):
            yield Call(sizes=sizes, views=views, alpha=next(alphas), aligned=aligned)


def cases(kernel: str, keys: Mapping[str, int]) -> Sequence[Case]:
    """All calls of one functional."""
    return [call.case(kernel, keys) for call in _calls(kernel, keys)]


def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case:
    """A call of n elements: contiguous, or rows of 1024 elements with `other` transposed."""
    n = {**SHAPE, **shape}["n"]
    columns = min(n, 1024)
    sizes = (n,) if kernel == "add_dense" else (n // columns, columns)
    views = {} if kernel == "add_dense" else {"other": View(order=(1, 0))}
    return Call(sizes=sizes, views=views, alpha=1.0).case(kernel, keys)
