"""Triton's own interpreter in a process of its own: receives features, sends the tensors that they leave."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

from tests.integration.vgpu.coverage.execute import buffers_of, kernel_of
from tests.integration.vgpu.coverage.feature import Feature
from tests.integration.vgpu.coverage.formats import Array


class Interpreter:
    """A client of that process. The interpreter is chosen when `triton` is imported, so it cannot be in this
    one."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, folder))
        with mock.patch.dict(os.environ, TRITON_INTERPRET="1"):
            self._process.start()
        theirs.close()

    def __call__(self, feature: Feature) -> dict[str, Array] | str:
        """The written tensors, or what failed."""
        # Triton 3.9's interpreter multiplies the bits of bfloat16; both types hold the small integers of
        # these kernels exactly
        body = feature.body.replace("tl.bfloat16", "tl.float16")
        self._connection.send(replace(feature, body=body, reference=_nothing))
        found: dict[str, Array] | str = self._connection.recv()
        return found

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(60)


def _nothing(*_: object) -> None:
    """Results are compared by the client."""


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


def _serve(connection: Connection, folder: Path) -> None:
    while True:
        try:
            feature = connection.recv()
        except EOFError:
            return
        try:
            connection.send(_interpreted(feature, folder))
        except Exception as error:  # noqa: BLE001 - a difference like any other
            connection.send(f"{type(error).__name__}: {error}")
