"""One launch of a code object on a virtual GPU.

from vgpu.api import run
run(hsaco, asm, grid=(4, 1, 1), arguments=[x, out, 1000])
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vgpu.emulator.listing import parse_listing
from vgpu.emulator.program import Emulator, LaunchReport, LaunchRequest
from vgpu.memory import Memory


def run(
    hsaco: bytes,
    asm: str,
    *,
    grid: tuple[int, int, int],
    arguments: Sequence[int | float | npt.NDArray[Any]],
    lds_bytes: int = 0,
    **options: Any,
) -> LaunchReport:
    """Executes `grid` on the arch that `asm` names; arrays in `arguments` are changed in place. `options`:
    other fields of `LaunchRequest`. Raises what `Emulator.load` and `Program.launch` raise."""
    arrays = {f"argument {i}": a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    values = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    request = LaunchRequest(
        grid=grid, arguments=values, memory=Memory(arrays), lds_bytes=lds_bytes, **options
    )
    return Emulator(parse_listing(asm).arch).load(hsaco, asm).launch(request)
