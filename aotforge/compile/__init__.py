"""The compile room: jobs to verified, content-addressed kernel images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotforge.lazy import lazy_names

if TYPE_CHECKING:
    from aotforge.compile.build import compile_one, compile_plan, find_job, reproduction, toolchain_of
    from aotforge.compile.cache import Cache
    from aotforge.compile.events import CompileEvent
    from aotforge.compile.images import ImageSet
    from aotforge.compile.limits import Limits
    from aotforge.compile.values import KernelArgument, KernelImage, Resources

__all__ = [
    "Cache",
    "CompileEvent",
    "ImageSet",
    "KernelArgument",
    "KernelImage",
    "Limits",
    "Resources",
    "compile_one",
    "compile_plan",
    "find_job",
    "reproduction",
    "toolchain_of",
]

_HOMES = {
    "Cache": "aotforge.compile.cache",
    "CompileEvent": "aotforge.compile.events",
    "ImageSet": "aotforge.compile.images",
    "KernelArgument": "aotforge.compile.values",
    "KernelImage": "aotforge.compile.values",
    "Limits": "aotforge.compile.limits",
    "Resources": "aotforge.compile.values",
    "compile_one": "aotforge.compile.build",
    "compile_plan": "aotforge.compile.build",
    "find_job": "aotforge.compile.build",
    "reproduction": "aotforge.compile.build",
    "toolchain_of": "aotforge.compile.build",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
