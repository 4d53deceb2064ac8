"""Triton's own interpreter in a process of its own: reads features from stdin, writes the tensors that they
leave to stdout."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.vgpu.coverage.execute import buffers_of, kernel_of
from tests.integration.vgpu.coverage.feature import Feature
from tests.integration.vgpu.coverage.formats import Array

ROOT = Path(__file__).parents[3]


class Interpreter:
    """A client of that process. The interpreter is chosen when `triton` is imported, so it cannot be in this
    one."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"},
        )  # fmt: skip

    def __call__(self, feature: Feature) -> dict[str, Array] | str:
        """The written tensors, or what failed."""
        assert self.process.stdin
        assert self.process.stdout
        # Triton 3.9's interpreter multiplies the bits of bfloat16; both types hold the small integers of
        # these kernels exactly
        body = feature.body.replace("tl.bfloat16", "tl.float16")
        parts = (
            feature.helpers,
            body,
            feature.tensors,
            feature.values,
            feature.constants,
            feature.grid,
        )
        pickle.dump(parts, self.process.stdin)
        self.process.stdin.flush()
        found: dict[str, Array] | str = pickle.load(self.process.stdout)
        return found

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(60)


def _interpreted(feature: Feature, folder: Path) -> dict[str, Array]:
    import torch

    kernel = kernel_of(feature, folder)
    buffers = buffers_of(feature)
    tensors = {}
    for name, stored in buffers.items():
        kept = torch.from_numpy(stored.copy())
        tensors[name] = kept.view(torch.bfloat16) if feature.tensors[name].kind == "bf16" else kept
    values: dict[str, Any] = {name: value for name, (_, value) in feature.values.items()}
    kernel[feature.grid](**tensors, **values, **feature.constants)
    return {name: tensor.numpy() for name, tensor in tensors.items() if feature.tensors[name].written}


def main(folder: Path) -> None:
    """Serve until stdin ends."""
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            helpers, body, tensors, values, constants, grid = pickle.load(stdin)
        except EOFError:
            return
        feature = Feature(
            name="", group="", body=body, tensors=tensors, reference=lambda *_: None, values=values,
            constants=constants, helpers=helpers, grid=grid,
        )  # fmt: skip
        try:
            found: dict[str, Array] | str = _interpreted(feature, folder)
        except Exception as error:  # noqa: BLE001 - a difference like any other
            found = f"{type(error).__name__}: {error}"
        pickle.dump(found, stdout)
        stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
