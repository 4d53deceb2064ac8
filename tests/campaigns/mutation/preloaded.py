"""Runs pytest in forks of this process, which has imported the other projects' modules: a run starts in a fraction of the time.

A fork imports the modules of this project itself, from the tree that is its working directory.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

_OURS = {path.name.removesuffix(".py") for path in Path(__file__).resolve().parents[3].iterdir()}
"""Top-level names of this project's modules, and of everything else in its folder."""


def preload(names: Iterable[str]) -> None:
    """Import modules of other projects; those that cannot be imported by themselves are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            if name.partition(".")[0] not in {*_OURS, "__main__", "__mp_main__", "conftest"}:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


def fork_pytest(
    arguments: Sequence[str],
    tree: Path,
    environment: Mapping[str, str],
    output: int,
    loaded: Path | None = None,
) -> int:
    """Process ID of a fork, leader of a session, that runs pytest in `tree` and writes to the file `output`. With `loaded`, it writes
    the names of its modules there."""
    process = os.fork()
    if process:
        return process
    status = 3
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        # a pytest that runs the campaign has its own files here
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        os.chdir(tree)
        os.environ.update(environment)
        sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in environment
        for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
            del sys.modules[name]
        sys.modules["__main__"] = types.ModuleType("__main__")
        sys.path[:] = [
            str(tree),
            *(path for path in sys.path if path and Path(path) != Path(__file__).parents[3]),
        ]
        sys.argv = ["pytest", *arguments]
        importlib.invalidate_caches()
        status = int(pytest.main(list(arguments)))
        if loaded:
            loaded.write_text("\n".join(sorted(sys.modules)))
    finally:
        sys.stdout.flush()
        os._exit(status)
