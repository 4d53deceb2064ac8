"""A feature of the Triton language: one small kernel with its inputs and a reference of its outputs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.formats import Array, decode, encode, storage

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
N = 256
"""Elements of most kernels' tensors."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A buffer: its type and its bits. `written`: the kernel writes it, and it is compared; without `stored`
    it starts as garbage."""

    kind: str
    size: int
    stored: Array | None = None
    written: bool = False


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One kernel. Its parameters are `tensors`, `values` (type and number), `constants`, in this order.

    `reference` takes the numbers of all tensors that are given and returns those of the written ones, in
    order. `tolerance` is relative to max(1, |expected|); 0: equal. `helpers`: functions before the kernel.
    `options` of the compiler; `expects` is a part of the fault that the launch must end with.
    """

    name: str
    group: str
    body: str
    tensors: Mapping[str, Tensor]
    reference: Callable[..., Any]
    tolerance: float = 0.0
    values: Mapping[str, tuple[str, int | float]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    helpers: str = ""
    grid: tuple[int, int, int] = (1, 1, 1)
    options: Mapping[str, Any] = field(default_factory=dict)
    expects: str = ""

    @property
    def signature(self) -> dict[str, str]:
        """Triton's type of every parameter."""
        pointers = {name: f"*{tensor.kind}" for name, tensor in self.tensors.items()}
        return (
            pointers
            | {name: kind for name, (kind, _) in self.values.items()}
            | dict.fromkeys(self.constants, "constexpr")
        )

    @property
    def source(self) -> str:
        """The text of the kernel's module."""
        parameters = [*self.tensors, *self.values, *(f"{name}: tl.constexpr" for name in self.constants)]
        lines = "\n".join("    " + line for line in self.body.strip("\n").splitlines())
        helpers = f"{self.helpers.strip()}\n\n\n" if self.helpers else ""
        return f"{HEAD}{helpers}@triton.jit\ndef kernel({', '.join(parameters)}):\n{lines}\n"

    def expected(self) -> dict[str, Array]:
        """Numbers of the written tensors."""
        given = [decode(t.stored, t.kind) for t in self.tensors.values() if t.stored is not None]
        with np.errstate(all="ignore"):
            found = self.reference(*given)
        names = [name for name, tensor in self.tensors.items() if tensor.written]
        results = found if isinstance(found, tuple) else (found,)
        return {name: np.asarray(one).ravel() for name, one in zip(names, results, strict=True)}


def given(kind: str, numbers: Sequence[Any] | Array, *, written: bool = False) -> Tensor:
    """An input with these numbers; with `written` the kernel changes it."""
    stored = np.ascontiguousarray(encode(np.asarray(numbers).ravel(), kind))
    return Tensor(kind=kind, size=stored.size, stored=stored, written=written)


def bits(kind: str, patterns: Array) -> Tensor:
    """An input with these bits."""
    stored = np.ascontiguousarray(patterns).view(storage(kind)).ravel()
    return Tensor(kind=kind, size=stored.size, stored=stored)


def out(kind: str, size: int = N) -> Tensor:
    """An output."""
    return Tensor(kind=kind, size=size, written=True)


def generator(name: str) -> np.random.Generator:
    """Random numbers that depend on the feature's name only."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def normal(name: str, size: int | tuple[int, ...] = N, scale: float = 2.0) -> Array:
    """Ordinary numbers."""
    return np.asarray(generator(name).standard_normal(size) * scale)


def integers(name: str, low: int, high: int, size: int | tuple[int, ...] = N) -> Array:
    """Integers from `low` up to, not including, `high`."""
    return generator(name).integers(low, high, size)


def elementwise(
    name: str,
    group: str,
    expression: str,
    result: str,
    inputs: Mapping[str, Tensor],
    reference: Callable[..., Any],
    **more: Any,
) -> Feature:
    """A kernel that stores an expression of every element; inputs are named in it as their tensors."""
    loads = [f"{name} = tl.load({name}_ + i)" for name in inputs]
    size = next(iter(inputs.values())).size
    body = "\n".join([f"i = tl.arange(0, {size})", *loads, f"tl.store(o + i, {expression})"])
    tensors = {f"{name}_": tensor for name, tensor in inputs.items()} | {"o": out(result, size)}
    return Feature(name=name, group=group, body=body, tensors=tensors, reference=reference, **more)
