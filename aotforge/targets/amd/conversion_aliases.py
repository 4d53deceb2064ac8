"""Compile aliases: conversion passes of Triton that get another arch than the target's.

Imported in worker processes only: it loads Triton.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton._C.libtriton import amd

from aotforge.errors import ToolchainError

_ARCH = 1
"""Position of the arch among a pass's arguments, behind the pass manager."""


@contextmanager
def conversion_aliases(aliases: tuple[tuple[str, str], ...]) -> Iterator[None]:
    """Gives each pass (`to_llvmir`) its alias (`gfx1100`) while it lasts. Raises ToolchainError for a pass
    that Triton lacks."""
    passes, before = amd.passes.ttgpuir, dict[str, Callable[..., Any]]()
    for name, _ in aliases:
        if not hasattr(passes, f"add_{name}"):
            raise ToolchainError(
                f"the installed Triton has no pass {name}",
                cause="`compile_aliases` of manifests/architectures.yaml belong to another version of Triton",
                hint="compare its `passes` with make_llir of triton/backends/amd/compiler.py",
            )
        before[f"add_{name}"] = getattr(passes, f"add_{name}")
    try:
        for name, arch in aliases:
            setattr(passes, f"add_{name}", _given(before[f"add_{name}"], arch))
        yield
    finally:
        for name, function in before.items():
            setattr(passes, name, function)


def _given(function: Callable[..., Any], arch: str) -> Callable[..., Any]:
    return lambda *arguments: function(*arguments[:_ARCH], arch, *arguments[_ARCH + 1 :])
