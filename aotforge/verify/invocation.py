"""What `kernels/<family>/cases.py` says: the calls on which each of a family's images is tried.

The module has one function:

    def cases(kernel: str, keys: Mapping[str, int]) -> Sequence[Case]

`keys` are the functional's numbers by operator value, e.g. {"dtype": 2, "head_dim": 64}. Cases may lead to any
image of the functional: the room keeps those that the plan dispatches to the image in hand, so aligned and
unaligned tensors, and every range of a setting, belong into the list.

It may offer calls of any shape for measuring, `SHAPE` being the names with a typical call's numbers:

    SHAPE: Mapping[str, int]
    def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aotforge.verify.compare import Expected
from aotforge.verify.tensors import Guarded


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """Fresh data of one launch.

    `values`: the operator's values, addresses of the tensors included. `inputs` must stay as they are, `outputs`
    start as NaN; `expected` computes reference, bounds and peers of each output, in its tensor's shape.
    """

    values: Mapping[str, int | float]
    inputs: Mapping[str, Guarded]
    outputs: Mapping[str, Guarded]
    expected: Callable[[], Mapping[str, Expected]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A named call; `make` gives new tensors each time, with the same numbers in them."""

    name: str
    make: Callable[[], Invocation]
