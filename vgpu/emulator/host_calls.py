"""Host calls of a launch: texts of `tl.device_print`, messages of failed assertions.

A kernel reaches the host through a buffer in memory and an interrupt; native/hostcall.h serves it. A launch
with such a buffer runs on one thread, so that the order of texts does not depend on threads.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vgpu.emulator import native
from vgpu.emulator.address_space import HOST_CALLS_BASE

_MOST_BYTES = 64 << 20
"""Of texts that a launch keeps."""


@dataclass(frozen=True, kw_only=True)
class PrintedText:
    """What a lane has printed; `error`: to the standard error stream, as failed assertions do."""

    group: tuple[int, int, int]
    wave: int
    lane: int
    text: str
    error: bool = False


OnPrint = Callable[[PrintedText], None]


class HostCalls:
    """The buffer of one launch, and its first 64 MiB of texts, in the order in which lanes printed them."""

    def __init__(self, library: ctypes.CDLL, on_print: OnPrint | None) -> None:
        library.host_buffer_bytes.restype = ctypes.c_uint64
        self.memory = np.zeros(int(library.host_buffer_bytes()), dtype=np.uint8)
        buffer = ctypes.c_void_p(self.memory.ctypes.data)
        library.host_buffer_start(buffer, ctypes.c_uint64(HOST_CALLS_BASE))
        self.texts: list[PrintedText] = []
        self._left = _MOST_BYTES
        self._on_print = on_print
        self._callback = native.PRINT(self._receive)

    def attach(self, launch: native.Launch) -> None:
        """Let a launch use the buffer."""
        launch.host_buffer = self.memory.ctypes.data
        launch.print = ctypes.cast(self._callback, ctypes.c_void_p).value

    def _receive(self, printed: Any) -> None:
        one = printed.contents
        text = ctypes.string_at(one.text, one.bytes).decode("utf-8", "replace")
        group = int(one.group[0]), int(one.group[1]), int(one.group[2])
        found = PrintedText(group=group, wave=one.wave, lane=one.lane, text=text, error=bool(one.error))
        self._left -= one.bytes
        if self._left >= 0:
            self.texts.append(found)
        if self._on_print:
            self._on_print(found)
