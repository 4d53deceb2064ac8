"""Python modules from files, for kernels, whose source Triton reads."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load_module(path: Path, text: str | None = None) -> Any:
    """The module of a file, which first gets `text`."""
    if text is not None:
        path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
