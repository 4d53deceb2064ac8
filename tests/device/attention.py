"""Random attention calls of few queries by a release's library on a GPU, both passes, beside float64.

`python -m tests.device.attention PREFIX ARCH [COUNT]` where PREFIX has lib/libaotriton_v2.so and
lib/aotriton.images with every width. The last line is the number of wrong calls. Exit status 77: no device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from aotforge.errors import ExecutionError
from aotforge.rules import Operator
from aotforge.targets.device_driver import Device
from aotforge.targets.installed import find_device
from aotforge.verify.device.library import LibraryImage
from aotforge.verify.invocation import Invocation, LaunchCall
from aotforge.verify.tensors import Float, Guarded
from kernels.flash.call import BOTTOM_RIGHT, TOP_LEFT, Case, arrays_of, tensor_of, values_of
from kernels.flash.expectations import known_of
from kernels.flash.operators import ATTN_BWD, ATTN_FWD
from tests.device.calls import SKIPPED, show
from tests.integration.vgpu.hip.any_call import FEW, drawn
from tests.integration.vgpu.hip.any_call_worker import shares_of


def resolved(case: Case) -> Case:
    """A dense call with its causal mask as a window: the library resolves those of PyTorch's calls."""
    if case.varlen or case.window_right not in {TOP_LEFT, BOTTOM_RIGHT}:
        return case
    right = 0 if case.window_right == TOP_LEFT else case.seqlen_k - case.seqlen_q
    left = None if case.window_left in {TOP_LEFT, BOTTOM_RIGHT} else case.window_left
    return replace(case, window_left=left, window_right=right)


class Libraries:
    """Both operators of one library on a device."""

    def __init__(self, device: Device, prefix: Path) -> None:
        library, images = prefix / "lib" / "libaotriton_v2.so", prefix / "lib" / "aotriton.images"
        self._by_operator = {
            one.name: LibraryImage(device, library, images, one) for one in (ATTN_FWD, ATTN_BWD)
        }

    def results(
        self, operator: Operator, case: Case, inputs: str, outputs: str
    ) -> Iterator[tuple[str, Float]]:
        """What a call writes. Raises ExecutionError for an error, a fault, and memory beside an output."""
        known = known_of(case)
        given = {name: tensor_of(case, name, known[name]) for name in inputs.split()} | arrays_of(case)
        made: dict[str, Guarded] = {name: tensor_of(case, name) for name in outputs.split()}
        values = values_of(case, {**given, **made})
        invocation = Invocation(values=values, inputs=given, outputs=made, expected=dict)
        # the library finds image and grid
        call = LaunchCall(
            use=cast(Any, None), launch=cast(Any, None), invocation=invocation, case=operator.name
        )
        self._by_operator[operator.name].run(call)
        for name, tensor in made.items():
            if not tensor.intact():
                raise ExecutionError(f"{operator.name}: memory beside {name} was written")
            swapped = name in {"L", "D"} and case.lse_swapped
            yield name, np.swapaxes(tensor.values(), 1, 2) if swapped else tensor.values()


def worst_share(libraries: Libraries, case: Case) -> float:
    """The largest error of a call's results as a share of its bound. Raises ExecutionError."""
    found = dict(libraries.results(ATTN_FWD, case, "Q K V", "Out L"))
    found |= dict(libraries.results(ATTN_BWD, case, "Q K V Out DO L", "D DQ DK DV"))
    del found["D"]
    return max(shares_of(case, case.inputs(), found).values())


def main(prefix: Path, arch: str, count: int) -> int:
    """1 when a call is wrong."""
    device, reason = find_device(arch)
    if device is None:
        show(f"skipped: {reason}")
        return SKIPPED
    libraries, wrong, shares = Libraries(device, prefix), 0, [0.0]
    for number in range(FEW, FEW + count):
        case = resolved(drawn(number).case)
        try:
            shares.append(worst_share(libraries, case))
            problem = f"the error is {shares[-1]:.3g} times its bound" if not shares[-1] <= 1 else ""
        except ExecutionError as error:
            problem = str(error)
        if problem:
            wrong += 1
            show(f"WRONG {number}: {case}: {problem}")
    show(f"{device}: {count} calls, {wrong} wrong, largest error {max(shares):.3f} of its bound")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int((sys.argv[3:] or ["500"])[0])))
