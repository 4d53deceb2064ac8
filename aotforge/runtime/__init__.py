"""The runtime room: `runtime/` (C++) in, libaotriton_v2.so with headers and CMake package out."""

from aotforge.runtime.build import build_runtime
from aotforge.runtime.interface import check_interfaces
from aotforge.runtime.manifest import RuntimeManifest, load_runtime_manifest
from aotforge.runtime.values import RuntimeBuild, Tools

__all__ = [
    "RuntimeBuild",
    "RuntimeManifest",
    "Tools",
    "build_runtime",
    "check_interfaces",
    "load_runtime_manifest",
]
