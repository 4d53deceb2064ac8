"""The compile room: jobs to verified, content-addressed kernel images."""

from aotforge.compile.build import compile_one, compile_plan, find_job, reproduction
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
]
