"""Installing a published release: what this machine needs of it, checked from the pinned root to the last byte (`docs/installing.md`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotforge.lazy import lazy_names

if TYPE_CHECKING:
    from aotforge.install.machine import this_machine
    from aotforge.install.place import uninstall
    from aotforge.install.run import install
    from aotforge.install.values import DropIn, Installation, InstallRequest, Machine

__all__ = ["DropIn", "InstallRequest", "Installation", "Machine", "install", "this_machine", "uninstall"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "install": "aotforge.install.run",
            "this_machine": "aotforge.install.machine",
            "uninstall": "aotforge.install.place",
            **dict.fromkeys(
                ("DropIn", "InstallRequest", "Installation", "Machine"), "aotforge.install.values"
            ),
        },
    )
