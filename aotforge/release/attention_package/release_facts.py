"""Constants of the release in a wheel, which replaces this file; a checkout has none."""

from __future__ import annotations

RELEASE = ""
VERSION = ""
NAMES: tuple[str, ...] = ()
"""Names under which PyTorch may need the library, the SONAME first."""

PACKS: dict[str, str] = {}
"""Image pack by arch, of every arch that the release has images for."""
