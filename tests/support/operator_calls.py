"""Calls of the operator library on HIP's double, whose record shows the values of every launch; nothing is
executed.

`python -m tests.support.operator_calls LIBRARY SCRIPT` executes the script with the names below and prints
`answers` as JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator, Sequence
from ctypes import c_size_t
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from kernels.elementwise.operators import ADD_DENSE, ADD_STRIDED, ADD_TILES, TENSORS
from kernels.gemm.operators import GEMM_NN, GEMM_NT, GEMM_STRIDED
from kernels.rms_norm.rules import RMS_NORM_ROWS
from tests.support.operator_library import ROCM, CTensor, OperatorLibrary, contiguous, integers

OPERATORS = {
    operator.name: operator
    for operator in (ADD_DENSE, ADD_TILES, ADD_STRIDED, RMS_NORM_ROWS, GEMM_NN, GEMM_NT, GEMM_STRIDED)
}
ADDRESSES = (1 << 40, 2 << 40, 3 << 40)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A float32 tensor at an address without memory."""

    address: int
    shape: Sequence[int]
    strides: Sequence[int]

    def c_tensor(self, **fields: Any) -> CTensor:
        """The C structure; `fields` replace others."""
        facts = {
            "data": self.address,
            "device_type": ROCM,
            "ndim": len(self.shape),
            "code": 2,
            "bits": 32,
            "lanes": 1,
            "shape": integers(self.shape),
            "strides": integers(self.strides),
        }
        return CTensor(**(facts | fields))

    def addresses(self, shape: Sequence[int]) -> Iterator[int]:
        """Of its elements, broadcast to `shape`, the last axis fastest."""
        missing = len(shape) - len(self.shape)
        sizes = [1] * missing + list(self.shape)
        steps = [
            0 if size == 1 else step
            for size, step in zip(sizes, [0] * missing + list(self.strides), strict=True)
        ]
        for index in product(*map(range, shape)):
            yield self.address + 4 * sum(i * step for i, step in zip(index, steps, strict=True))


def tensors(*described: tuple[Sequence[int], Sequence[int] | None]) -> tuple[Layout, Layout, Layout]:
    """Input, other and out from shapes and strides."""
    made = [
        Layout(address=address, shape=shape, strides=strides if strides is not None else contiguous(shape))
        for address, (shape, strides) in zip(ADDRESSES, described, strict=True)
    ]
    return made[0], made[1], made[2]


class Recorder:
    """The library on the double in this process."""

    def __init__(self, path: Path) -> None:
        self.library = OperatorLibrary(path)
        self.hip = ctypes.CDLL("libamdhip64.so.7", mode=ctypes.RTLD_GLOBAL)
        self.hip.hip_double_record.restype = c_size_t

    def launches(self) -> list[dict[str, Any]]:
        """Operator values of every launch since the last call of this, by name, with `operator` and
        `grid`."""
        size = self.hip.hip_double_record(None, c_size_t(0))
        text = ctypes.create_string_buffer(size)
        self.hip.hip_double_record(text, c_size_t(size))
        self.hip.hip_double_clear()
        events = [json.loads(line) for line in text.value.decode().splitlines()]
        return [self._launch(event) for event in events if event["event"] == "launch"]

    @staticmethod
    def _launch(event: dict[str, Any]) -> dict[str, Any]:
        operator = OPERATORS[event["kernel"]]
        launch: dict[str, Any] = {"operator": operator.name, "grid": event["grid"]}
        for value, argument in zip(operator.values, event["arguments"], strict=True):
            launch[value.name] = int.from_bytes(bytes.fromhex(argument["bytes"]), "little", signed=True)
        return launch

    def add(self, *layouts: Layout, alpha: float = 1.0) -> tuple[int, str, list[dict[str, Any]]]:
        """Result, text and launches of a call."""
        code, text = self.library.add(
            layouts[0].c_tensor(), layouts[1].c_tensor(), alpha, layouts[2].c_tensor()
        )
        return code, text, self.launches()


def elements(launch: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Addresses of the three elements that a launch's kernel combines, as `kernels/elementwise/add.py`
    computes them."""
    rank = {"add_dense": 1, "add_tiles": 4, "add_strided": 8}[launch["operator"]]
    total = launch["n"] if "n" in launch else prod(launch[f"size_{axis}"] for axis in range(rank))
    for index in range(total):
        at, offsets = index, [0, 0, 0]
        for axis in range(rank):
            size = launch.get(f"size_{axis}", 0)
            here, at = (at % size, at // size) if axis < rank - 1 and size else (at, 0)
            for i, name in enumerate(TENSORS):
                offsets[i] += here * launch.get(f"stride_{name}_{axis}", 1 if axis == 0 else 0)
        first = [launch[name] for name in TENSORS]
        yield first[0] + 4 * offsets[0], first[1] + 4 * offsets[1], first[2] + 4 * offsets[2]


def is_right(layouts: tuple[Layout, Layout, Layout], launches: list[dict[str, Any]]) -> bool:
    """Whether the launches combine each element of the broadcast tensors once, and nothing else."""
    shape = np.broadcast_shapes(*(tuple(layout.shape) for layout in layouts))
    wanted = zip(*(layout.addresses(shape) for layout in layouts), strict=True)
    return sorted(wanted) == sorted(triple for launch in launches for triple in elements(launch))


if __name__ == "__main__":
    answers: list[Any] = []
    names = {**globals(), "answers": answers, "recorder": Recorder(Path(sys.argv[1]))}
    exec(sys.argv[2], names)
    sys.stdout.write(json.dumps(answers))
    sys.stdout.flush()
