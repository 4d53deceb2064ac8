"""PyTorch's CPU tensors in memory of a virtual device, and calls of the bridge (tests/fixtures/pytorch_bridge.cpp) with them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import torch

from .bridge import BridgeCall, BridgeTensor

_TO_DEVICE, _TO_HOST = 1, 2
_DTYPES = {
    torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.int32: 12, torch.int64: 13,
}  # fmt: skip
_INPUTS = (
    *("Q", "K", "V", "B", "Out", "DO", "L"),
    *("lengths_q", "lengths_k", "positions_q", "positions_k", "seed", "offset1"),
)


class LibraryError(Exception):
    """A call's result that is not hipSuccess, or a tensor that it must not have written."""


class Library:
    """The library of one API level on the current device of the process's HIP."""

    def __init__(self, hip: ctypes.CDLL, bridge: Path) -> None:
        self._hip, self._bridge = hip, ctypes.CDLL(str(bridge))

    def check_gpu(self) -> None:
        """Raises LibraryError."""
        self._check("check_gpu", self._bridge.bridge_check_gpu())

    def call(
        self, function: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], **numbers: float
    ) -> int:
        """`forward`, `backward` or `dropout_mask`: copies tensors to the device, calls, waits, and copies outputs back.

        The return value is how often D was acquired. An allocation has exactly the bytes of its tensor's storage, so that the virtual
        GPU notices accesses beside it. Raises LibraryError.
        """
        call, places = BridgeCall(), []
        for name, tensor in {**inputs, **outputs}.items():
            if tensor is not None:
                places.append((name, tensor, self._upload(tensor)))
                setattr(call, name, _view(tensor, places[-1][2]))
        for name, number in numbers.items():
            setattr(call, name, number)
        try:
            self._check(function, getattr(self._bridge, f"bridge_{function}")(byref(call)))
            self._check("hipDeviceSynchronize", self._hip.hipDeviceSynchronize())
            self._check("hipGetLastError", self._hip.hipGetLastError())
            for name, tensor, at in places:
                self._download(name, tensor, at, written=name in outputs)
        finally:
            for _, _, at in places:
                self._hip.hipFree(at)
        return int(call.acquired)

    def _check(self, function: str, code: int) -> None:
        if code:
            text = ctypes.create_string_buffer(4096)
            self._hip.aotforge_virtual_report(text, c_size_t(len(text)))
            raise LibraryError(f"{function}: {code} {text.value.decode(errors='replace')}")

    def _upload(self, tensor: Any) -> c_void_p:
        storage, at = tensor.untyped_storage(), c_void_p()
        if storage.nbytes():
            self._check("hipMalloc", self._hip.hipMalloc(byref(at), c_size_t(storage.nbytes())))
            self._copy(at, c_void_p(storage.data_ptr()), storage.nbytes(), _TO_DEVICE)
        return at

    def _download(self, name: str, tensor: Any, at: c_void_p, *, written: bool) -> None:
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return
        if written:
            self._copy(c_void_p(storage.data_ptr()), at, storage.nbytes(), _TO_HOST)
            return
        found = ctypes.create_string_buffer(storage.nbytes())
        self._copy(c_void_p(ctypes.addressof(found)), at, storage.nbytes(), _TO_HOST)
        if found.raw != ctypes.string_at(storage.data_ptr(), storage.nbytes()):
            raise LibraryError(f"the input {name} was written")

    def _copy(self, to: Any, source: Any, size: int, kind: int) -> None:
        self._check("hipMemcpy", self._hip.hipMemcpy(to, source, c_size_t(size), c_int(kind)))


def _view(tensor: Any, at: c_void_p) -> BridgeTensor:
    base = (at.value or 0) + tensor.storage_offset() * tensor.element_size() if at.value else 0
    made = BridgeTensor(base=base, dtype=_DTYPES[tensor.dtype], given=1)
    for i, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        made.sizes[i], made.strides[i] = size, stride
    return made


def nothing_written(like: Any) -> Any:
    """Memory for a result: not a number where nothing is written."""
    return torch.empty_like(like).fill_(float("nan"))
