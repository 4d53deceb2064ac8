"""`import flash_attn` for programs that know no other name, after `install()`."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from . import functions, packed

_NAME = "flash_attn"
_VERSION = "2.8.3"
"""The release of flash-attn whose functions these are."""


def install() -> None:
    """Makes flash_attn and flash_attn.flash_attn_interface of this package's functions.

    Raises ImportError where flash-attn itself is installed or was imported.
    """
    present = sys.modules.get(_NAME)
    if getattr(present, "of_aotforge", False):
        return
    if present is not None or importlib.util.find_spec(_NAME) is not None:
        raise ImportError(
            "flash_attn is installed, and is not replaced: pip uninstall flash-attn, or use aotforge_flash",
            name=_NAME,
        )
    package, interface = ModuleType(_NAME, __doc__), ModuleType(f"{_NAME}.flash_attn_interface", __doc__)
    for module in (package, interface):
        for source in (functions, packed):
            own = {name: one for name, one in vars(source).items() if name.startswith("flash_attn_")}
            module.__dict__.update(own)
        sys.modules[module.__name__] = module
    package.__dict__.update(
        __path__=[], __version__=_VERSION, flash_attn_interface=interface, of_aotforge=True
    )
