"""Import of a kernel family's modules from its folder."""

import hashlib
import importlib
import sys
from pathlib import Path
from types import ModuleType


def family_module(folder: Path, name: str) -> ModuleType:
    """The module `name` in `folder`, in a package of its own: relative imports work, other imports are not
    disturbed.

    Raises whatever the module raises.
    """
    package = f"aotforge_family_{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"
    if package not in sys.modules:
        module = ModuleType(package)
        module.__path__ = [str(folder)]
        sys.modules[package] = module
        importlib.invalidate_caches()
    return importlib.import_module(f"{package}.{name}")
