"""Cases of kernel families, loaded from their folders without disturbing other imports."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from aotforge.errors import RulesError
from aotforge.verify.invocation import Case

Cases = Callable[[str, Mapping[str, int]], Sequence[Case]]
Shaped = Callable[[str, Mapping[str, int], Mapping[str, int]], Case]
_ROOT = "aotforge_cases"


def load_cases(root: Path, folder: str) -> Cases | None:
    """The function `cases` of a family, or None when it has no cases.py. Raises RulesError for one that does not load."""
    module = _module(root, folder)
    if module is None:
        return None
    found = getattr(module, "cases", None)
    if not callable(found):
        raise RulesError(
            f"{root / folder / 'cases.py'} has no function cases", hint="see aotforge/verify/invocation.py"
        )
    return found  # type: ignore[no-any-return]


def load_shaped(root: Path, folder: str) -> tuple[Mapping[str, int], Shaped] | None:
    """The names that a family's shapes have with typical values, and its function `shaped`; None when it offers none.

    Raises RulesError.
    """
    module = _module(root, folder)
    if module is None or not callable(getattr(module, "shaped", None)):
        return None
    return dict(module.SHAPE), module.shaped


def _module(root: Path, folder: str) -> ModuleType | None:
    file = root / folder / "cases.py"
    if not file.exists():
        return None
    package = f"{_ROOT}_{hashlib.sha256(str(file.parent.resolve()).encode()).hexdigest()[:12]}"
    if package not in sys.modules:
        spec = importlib.util.spec_from_loader(package, loader=None, is_package=True)
        if spec is None or spec.submodule_search_locations is None:
            raise RulesError(f"{file.parent} cannot be loaded as a package")
        spec.submodule_search_locations.append(str(file.parent))
        sys.modules[package] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module(f"{package}.cases")
    except Exception as error:  # cases are foreign code: whatever they raise is their error
        raise RulesError(f"{file}: {type(error).__name__}: {error}", cause="the cases do not run") from error
