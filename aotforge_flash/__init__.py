"""flash-attn's functions on kernels that were compiled ahead of time: processors, AMD and NVIDIA GPUs."""

from __future__ import annotations

from .checks import ArgumentError, NotServedError
from .functions import (
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    reshape_and_cache,
)
from .library import LaunchError, load

__all__ = [
    "ArgumentError",
    "LaunchError",
    "NotServedError",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "load",
    "reshape_and_cache",
]
