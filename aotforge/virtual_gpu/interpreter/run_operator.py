"""Run a call of an operator on numpy buffers, choosing configurations as the library does."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from aotforge.errors import RulesError
from aotforge.rules import Family, Scalar, Target
from aotforge.virtual_gpu.interpreter.dispatch import Launch, Values, select
from aotforge.virtual_gpu.interpreter.machine import Opaque, execute
from aotforge.virtual_gpu.interpreter.memory import Memory
from aotforge.virtual_gpu.interpreter.number_formats import Array

_ROOT = "aotforge_interpreted"


def run_operator(
    family: Family,
    folder: Path,
    operator: str,
    *,
    chip: Target,
    values: Values,
    buffers: Mapping[str, Array],
    override: Mapping[str, Scalar] | None = None,
) -> tuple[Launch, ...]:
    """Run every step of an operator and return what was launched, in order.

    `folder` holds the family's sources. Pointers in `values` are addresses inside `buffers`. A launch with an
    empty grid is left out, as at run time. Raises UnsupportedError before anything runs when one step does
    not serve the call, and AccessError.
    """
    kernels = sorted((k for k in family.kernels if k.operator == operator), key=lambda k: k.step)
    launches = [select(kernel, chip, values, override=override) for kernel in kernels]
    memory = Memory(buffers)
    done = []
    for launch in launches:
        if 0 not in launch.grid:
            run_launch(launch, folder, memory)
            done.append(launch)
    return tuple(done)


def run_launch(launch: Launch, folder: Path, memory: Memory) -> None:
    """Run one launch. Raises AccessError, RulesError when the kernel's source has no such function."""
    execute(
        _function(folder, launch.kernel.source, launch.kernel.function),
        types_=launch.types,
        arguments=launch.arguments,
        constants=launch.constants,
        grid=launch.grid,
        memory=memory,
    )


def _function(folder: Path, source: str, function: str) -> Opaque:
    module = _load(folder, source)
    found = getattr(module, function, None)
    if found is None:
        raise RulesError(f"{folder / source} has no function {function}")
    return found


def _load(folder: Path, source: str) -> ModuleType:
    """A module of the family, below a package of our own so that relative imports work and no other import is
    disturbed.
    """
    package = f"{_ROOT}_{folder.resolve().as_posix().encode().hex()}"
    if package not in sys.modules:
        spec = importlib.util.spec_from_loader(package, loader=None, is_package=True)
        if spec is None or spec.submodule_search_locations is None:
            raise RulesError(f"{folder} cannot be loaded as a package")
        spec.submodule_search_locations.append(str(folder))
        sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{package}.{Path(source).stem}")
