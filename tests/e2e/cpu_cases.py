"""The families' cases through `aotforge_launch`: `python -m tests.e2e.cpu_cases PREFIX FAMILY.KERNEL...`.

Prints a line for each kernel: how many calls the installed pack served, all of them right.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path

from aotforge.plan.families import load_families
from aotforge.rules import Kernel, Operator, Scalar
from aotforge.verify.invocation import Case, Invocation, require_cases
from tests.e2e.cpu_calls import CPU, NOT_SUPPORTED, TYPES, Value

ROOT = Path(__file__).parents[2] / "kernels"


def launched(library: ctypes.CDLL, operator: Operator, invocation: Invocation) -> int:
    """The result of the operator's call with a case's values."""
    values = (Value * len(operator.values))()
    for one, declared in zip(values, operator.values, strict=True):
        one.name, one.type = declared.name.encode(), TYPES[declared.type]
        number = invocation.values.get(declared.name, 0)
        setattr(one.as_, declared.type, number if declared.type == "f32" else int(number))
    return int(library.aotforge_launch(operator.name.encode(), values, len(operator.values), CPU, None))


def check(library: ctypes.CDLL, operator: Operator, case: Case) -> bool:
    """Whether the pack serves a case. Asserts that the result is right."""
    invocation = case.make()
    result = launched(library, operator, invocation)
    if result == NOT_SUPPORTED:
        return False
    assert result == 0, (case.name, result)
    expected = invocation.expected()
    for name, tensor in invocation.outputs.items():
        assert not expected[name].compare(tensor.values()).violations(name), (case.name, name)
        assert tensor.intact(), (case.name, name)
    assert all(tensor.unchanged() for tensor in invocation.inputs.values()), case.name
    return True


def main(prefix: Path, wanted: tuple[str, ...]) -> None:
    """Every case of these kernels, for every functional of float16."""
    library = ctypes.CDLL(str(prefix / "lib" / "libaotriton_v2.so"))
    kernels = {
        f"{one.family.name}.{k.name}": (one, k) for one in load_families(ROOT) for k in one.family.kernels
    }
    for name in wanted:
        loaded, kernel = kernels[name]
        operator = next(one for one in loaded.family.operators if one.name == kernel.operator)
        cases = require_cases(ROOT, loaded.folder)
        served = sum(
            check(library, operator, case) for keys in _keys(kernel) for case in cases(kernel.name, keys)
        )
        assert served, name
        sys.stdout.write(f"{name}: {served} calls\n")


def _keys(kernel: Kernel) -> list[Mapping[str, int]]:
    """Of the first functional, those of float16, the smallest width and the longest rows."""
    chosen: dict[str, Scalar] = {"dtype": "fp16", "width": 32, "mask": "full", "dropout": False, "row": "any"}
    return [{choice.key: choice.options[chosen[choice.name]] for choice in kernel.choices}]


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]))
