"""Loader of kernel families: runs the `rules.py` of every folder of a kernels root.

Rules run as modules of a package whose path is the kernels root, so `from .operators import ...` works. They
cannot import Triton: planning must stay quick, and must work where Triton is missing.
"""

import hashlib
import importlib
import itertools
import sys
import threading
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import AotforgeError, RulesError
from aotforge.rules import Family

_BLOCKED = ("triton", "torch")
_LOADING = threading.Lock()
"""Modules are the process's: one thread at a time has the package of rules."""


@dataclass(frozen=True, kw_only=True)
class LoadedFamily:
    """A family and its folder's path below the kernels root, in POSIX form."""

    family: Family
    folder: str


def load_families(root: Path) -> tuple[LoadedFamily, ...]:
    """Every family below `root`, sorted by name. Raises RulesError with the rules file and line."""
    files = sorted(root.glob("*/rules.py"))
    lacking = [
        path
        for path in sorted(root.glob("[!._]*/"))
        if any(path.glob("*.py")) and path / "rules.py" not in files
    ]
    if lacking:
        raise RulesError(
            f"{lacking[0]} has no rules.py",
            cause="every folder with Python files in a kernels root is a family, and rules.py describes it",
            hint="write rules.py (CONTRIBUTING.md), or move the folder away",
        )
    if not files:
        raise RulesError(
            f"{root}: no kernel family", cause="no folder in it has a rules.py", hint="check the kernels root"
        )
    with _LOADING, _package(root) as package:
        loaded = [_load(package, file) for file in files]
    loaded.sort(key=lambda item: item.family.name)
    for one, next_one in itertools.pairwise(loaded):
        if (name := one.family.name) == next_one.family.name:
            raise RulesError(f"{root / next_one.folder / 'rules.py'}: family {name} is also in {one.folder}")
    return tuple(loaded)


def _load(package: str, file: Path) -> LoadedFamily:
    folder = file.parent.name
    if not folder.isidentifier():
        raise RulesError(f"{file}: the folder's name is not a Python identifier", hint="rename the folder")
    hint = "rules may import aotforge.rules, the standard library and siblings that do the same"
    with family_errors(file.parent.parent, file, hint):
        module = importlib.import_module(f"{package}.{folder}.rules")
    family = getattr(module, "FAMILY", None)
    if not isinstance(family, Family):
        raise RulesError(f"{file}: FAMILY is missing", hint="assign a rules.Family to FAMILY")
    return LoadedFamily(family=family, folder=folder)


@contextmanager
def family_errors(folder: Path, file: Path, hint: str) -> Iterator[None]:
    """An exception of a family's code in `file` as RulesError with its innermost line in `folder`."""
    try:
        yield
    except AotforgeError:
        raise
    except Exception as error:  # a family's code may raise anything
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(folder)
        ]
        where, line = (
            (f"{frames[-1].filename}:{frames[-1].lineno}", frames[-1].line) if frames else (file, "")
        )
        if isinstance(error, SyntaxError) and error.filename:
            where = f"{error.filename}:{error.lineno}"
        kind, message = type(error).__name__, getattr(error, "msg", None) or error
        if isinstance(error, ImportError):
            kind = "ImportError"
            message = f"{file.name} must not import {error.name}" if error.name in _BLOCKED else message
        cause = f"{file.name} does not run" + (f": {line}" if line else "")
        raise RulesError(f"{where}: {kind}: {message}", cause=cause, hint=hint) from error


@contextmanager
def _package(root: Path) -> Iterator[str]:
    """A package over `root` that exists while rules are loaded, so that several roots do not mix."""
    name = f"aotforge_rules_{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]}"
    package = types.ModuleType(name)
    package.__path__ = [str(root.resolve())]
    hidden = {key: sys.modules.pop(key) for key in list(sys.modules) if key.partition(".")[0] in _BLOCKED}
    sys.modules[name] = package
    sys.modules.update(dict.fromkeys(_BLOCKED))  # type: ignore[arg-type]  # None: Python refuses the import
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a kernels root may be read-only
    importlib.invalidate_caches()
    try:
        yield name
    finally:
        sys.dont_write_bytecode = written
        for key in [key for key in sys.modules if key.partition(".")[0] in (name, *_BLOCKED)]:
            del sys.modules[key]
        sys.modules.update(hidden)


def family_module(folder: Path, name: str) -> types.ModuleType:
    """A module in `folder`, in a package of its own for relative imports. Raises whatever it raises."""
    package = f"aotforge_family_{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"
    if package not in sys.modules:
        module = types.ModuleType(package)
        module.__path__ = [str(folder)]
        sys.modules[package] = module
        importlib.invalidate_caches()
    return importlib.import_module(f"{package}.{name}")
