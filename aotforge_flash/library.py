"""Calls of the installed library: `aotforge_launch` on PyTorch's current stream."""

from __future__ import annotations

import ctypes
import importlib.util
import struct
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

from .operators import OPERATORS

_TYPES = {"ptr": 0, "i32": 1, "i64": 2, "u64": 3, "f32": 4}
_CPU, _CUDA, _HIP = 1, 2, 10
_NO_PACK, _NO_DRIVER, _NOT_SERVED = 209, 303, 801
_REASONS = {
    _NO_PACK: "no installed images are for this device: pip install 'aotforge-flash[ARCH]' has them",
    301: "no images are installed beside the library: pip install 'aotforge-flash[ARCH]' has them",
    _NO_DRIVER: "the driver's library is not installed",
    _NOT_SERVED: "no installed image serves this call",
}
_lock = threading.Lock()
_loaded: list[ctypes.CDLL] = []


class LaunchError(RuntimeError):
    """The library did not start a call; `code` is the number of hipError_t, CUresult or cudaError_t."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def load(path: str | Path | None = None) -> str:
    """Loads the library, once in a process: the file `path`, else that of the wheel aotforge-attention.

    Returns its path. Raises LaunchError.
    """
    with _lock:
        if not _loaded:
            _loaded.append(_open(Path(path) if path is not None else _installed()))
        return _loaded[0]._name


def _open(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        library.aotforge_launch.argtypes = [
            ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p
        ]  # fmt: skip
    except (OSError, AttributeError) as error:
        raise LaunchError(
            f"{path} cannot be used: {error}; install the wheel for this platform", 0
        ) from error
    return library


def _installed() -> Path:
    """The library in the wheel aotforge-attention, which is not imported: it would load it for PyTorch."""
    found = importlib.util.find_spec("aotforge_attention")
    if found is None or found.origin is None:
        raise LaunchError(
            "the wheel aotforge-attention is not installed: pip install 'aotforge-flash[ARCH]', or name the "
            "library of another place by aotforge_flash.load(PATH)",
            0,
        )
    folder = Path(found.origin).parent / "lib"
    for name in sorted(folder.glob("libaotriton_v2.so*"), key=lambda file: -file.stat().st_size):
        return name
    raise LaunchError(f"{folder} has no libaotriton_v2.so; install aotforge-attention again", 0)


@cache
def _template(name: str) -> tuple[type[ctypes.Array[ctypes.c_int64]], bytes, Mapping[str, int], list[object]]:
    """An `aotforge_value[]` as words of 64 bits: its type, one with all values 0, where each value is."""
    declared = [(value, kind) for kind, values in OPERATORS[name] for value in values.split()]
    kept = [ctypes.create_string_buffer(value.encode("ascii")) for value, _ in declared]
    type_ = ctypes.c_int64 * (3 * len(declared))
    words = type_()
    for at, ((_, kind), text) in enumerate(zip(declared, kept, strict=True)):
        words[3 * at] = ctypes.addressof(text)
        words[3 * at + 1] = _TYPES[kind]  # little-endian: the lower half, and `reserved` above it
    return type_, bytes(words), {value: 3 * at + 2 for at, (value, _) in enumerate(declared)}, list(kept)


def _word(value: float | None) -> int:
    if isinstance(value, float):
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    return int(value or 0)


def launch(name: str, values: Mapping[str, float | None], device: torch.device, call: str) -> None:
    """Queues an operator on the device's current stream; values that are not named are 0. Raises LaunchError.

    `call` describes the call in an error's text.
    """
    type_, empty, places, _ = _template(name)
    words = type_.from_buffer_copy(empty)
    for key, value in values.items():
        words[places[key]] = _word(value)
    if device.type == "cpu":
        code = _launched(name, words, len(places), _CPU, None)
    else:
        kind = _HIP if torch.version.hip else _CUDA
        with torch.cuda.device(device):
            stream = torch.cuda.current_stream(device).cuda_stream
            code = _launched(name, words, len(places), kind, stream)
    if code:
        reason = _REASONS.get(code, f"error {code} of the library or the driver")
        raise LaunchError(f"{call}: {reason}; AOTRITON_LOG=warn in the environment prints details", code)


def _launched(name: str, words: object, count: int, kind: int, stream: int | None) -> int:
    if not _loaded:
        load()
    return int(_loaded[0].aotforge_launch(name.encode("ascii"), words, count, kind, stream))
