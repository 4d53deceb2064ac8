"""PyTorch's tensors on a virtual device, and calls through PyTorch's own adapter with them
(tests/fixtures/pytorch)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_size_t
from typing import Any

import torch

from .grids import minor_of

_INTEGERS = (
    *("masked", "window_left", "window_right"),
    *("longest_q", "longest_k", "word", "deterministic", "offset2"),
)


def load_libraries(hip: ctypes.CDLL, device: str, words: Sequence[str]) -> dict[str, Library]:
    """The libraries that command-line words LEVEL=CALLS name, by level, after that of the device. Raises
    LibraryError where `check_gpu` fails."""
    ctypes.CDLL(device)
    libraries = {}
    for word in words:
        level, calls = word.split("=", 1)
        ctypes.CDLL(calls)
        libraries[level] = Library(hip, f"aotforge_{minor_of(level)}")
        libraries[level].check_gpu()
    return libraries


class LibraryError(Exception):
    """A call's result that is not hipSuccess, or a tensor that it must not have written."""


class Library:
    """The library of one API level on the current device of the process's HIP; `name` is that of its
    operators."""

    def __init__(self, hip: ctypes.CDLL, name: str) -> None:
        self._hip, self._calls, self._device = hip, getattr(torch.ops, name), torch.ops.aotforge_device

    def check_gpu(self) -> None:
        """Raises LibraryError."""
        self._check("check_gpu", self._calls.check_gpu())

    def call(
        self,
        function: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        *,
        sm_scale: float = 0.0,
        dropout_p: float = 0.0,
        **numbers: float,
    ) -> None:
        """`forward`, `backward` or `dropout_mask`: copies tensors to the device, calls, waits, and copies
        outputs back.

        An allocation has exactly the bytes of its tensor's storage, so that the virtual GPU notices accesses
        beside it. The backward must acquire D and nothing else. Raises LibraryError.
        """
        assert numbers.keys() <= {*_INTEGERS}, numbers
        integers = {name: int(number) for name, number in numbers.items()}
        given = {name: tensor for name, tensor in {**inputs, **outputs}.items() if tensor is not None}
        there = {name: self._device.upload(tensor.detach()) for name, tensor in given.items()}
        if function == "dropout_mask":
            code = self._calls.dropout_mask(there["Q"], there["seed"], there["offset1"], dropout_p)
        elif function == "forward":
            code = self._calls.forward(there, integers, sm_scale, dropout_p)
        else:
            code, acquired = self._calls.backward(there, integers, sm_scale, dropout_p)
            if not code and acquired != 1:
                raise LibraryError(f"backward: D and DQ_ACC were acquired as {acquired}")
        self._check(function, code)
        self._check("hipDeviceSynchronize", self._hip.hipDeviceSynchronize())
        self._check("hipGetLastError", self._hip.hipGetLastError())
        for name, tensor in given.items():
            self._download(name, tensor.detach(), there[name], written=name in outputs)

    def _check(self, function: str, code: int) -> None:
        if code:
            text = ctypes.create_string_buffer(4096)
            self._hip.aotforge_virtual_report(text, c_size_t(len(text)))
            raise LibraryError(f"{function}: {code} {text.value.decode(errors='replace')}")

    def _download(self, name: str, tensor: Any, there: Any, *, written: bool) -> None:
        found, ours = _bytes(self._device.download(there)), _bytes(tensor)
        if written:
            ours.copy_(found)
        elif not torch.equal(found, ours):
            raise LibraryError(f"the input {name} was written")


def _bytes(tensor: Any) -> Any:
    """All of its storage."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),))


def nothing_written(like: Any) -> Any:
    """Memory for a result: not a number where nothing is written."""
    return torch.empty_like(like).fill_(float("nan"))
