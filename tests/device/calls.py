"""What calls of the operator library on a device have in common: memory around tensors, bounds, counts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from ctypes import c_int
from pathlib import Path
from typing import Any

import numpy as np

from aotforge.verify.interpreter.number_formats import Array, decode
from tests.support.operator_library import DRIVERS, CTensor, DeviceTensor, Driver, OperatorLibrary

SKIPPED = 77
Strides = tuple[int, ...] | None


def show(line: str) -> None:
    """Printed at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def written(
    library: OperatorLibrary,
    function: str,
    tensors: Sequence[DeviceTensor | None],
    *arguments: CTensor | float | int | c_int | None,
) -> Array | str:
    """Numbers that a call wrote to the last tensor, which are freed; or its error, or what else it wrote."""
    code, text = library.call(function, *arguments)
    given = [(tensor, tensor.after()) for tensor in tensors if tensor]
    for tensor, _ in given:
        tensor.driver.free(tensor.address)
    if code:
        return f"{code}: {text}"
    if any(now.tobytes() != tensor.storage.tobytes() for tensor, now in given[:-1]):
        return "an input changed"
    out, now = given[-1]
    expected, result = out.storage.copy(), out.view(now)
    out.view(expected)[...] = result
    if expected.tobytes() != now.tobytes():
        return "memory around out changed"
    return decode(result.copy(), out.dtype)


def beyond(found: Array, wanted: Array, bound: Array) -> str:
    """What is wrong with numbers, or ''."""
    worst = float((np.abs(found - wanted) / bound).max(initial=0.0))
    return f"the error is {worst:.3g} times its bound" if not worst <= 1 else ""


def run_calls(
    prefix: Path,
    vendor: str,
    flags: Collection[str],
    wanted: Iterable[Any],
    check: Callable[[OperatorLibrary, Driver, Any], str],
) -> int:
    """Print wrong calls and counts; 1 when a call is wrong."""
    try:
        driver = DRIVERS[vendor]()
    except OSError as error:
        show(f"skipped: no driver or device for {vendor}: {error}")
        return SKIPPED
    library, wrong, count = OperatorLibrary(prefix / "lib" / "libaotforge_ops.so"), 0, 0
    for call in wanted:
        count += 1
        if problem := check(library, driver, call):
            wrong += 1
            show(f"WRONG {call.title()}: {problem}")
    if "--large" in flags:
        from tests.device.on_torch import large

        wrong += large(library)
    show(f"{count} calls, {wrong} wrong")
    return int(wrong > 0)
