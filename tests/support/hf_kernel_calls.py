"""Calls `add` of a variant for Hugging Face's `kernels`: `python -m tests.support.hf_kernel_calls VARIANT
DEVICE`.

The variant is imported as `kernels` does it: its `__init__.py` alone, as the module that the metadata name.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.operator_library import DRIVERS, DeviceTensor, Exported


def load(variant: Path) -> Any:
    """The module."""
    name = json.loads((variant / "metadata.json").read_text())["id"]
    spec = importlib.util.spec_from_file_location(name, variant / "__init__.py")
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(variant: Path, device: str) -> None:
    """Writes whether the elements are right, and the error of a call that is refused."""
    module, driver = load(variant), DRIVERS[device]()
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((3, 70), (70, 1)),
        ((70,), (2,)),
        ((3, 70), (80, 1)),
    )
    left, right, out = (
        DeviceTensor(driver=driver, dtype="fp16", shape=shape, strides=strides, seed=seed)
        for seed, (shape, strides) in enumerate(shapes)
    )
    exported = [Exported(tensor) for tensor in (left, right, out)]
    result = module.add(exported[0], exported[1], 2, exported[2])
    assert result is exported[2]
    result_elements = out.view(out.after())
    right_elements = (result_elements == (left.numbers() + 2 * right.numbers()).astype(np.float16)).all()
    sys.stdout.write(f"{bool(right_elements)}\n")
    try:
        module.add(exported[0], exported[1], 1.0, exported[1])
    except ValueError as error:
        sys.stdout.write(str(error).splitlines()[0] + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
