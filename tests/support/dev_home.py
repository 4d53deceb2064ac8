"""What the script `dev` writes into an environment that it made."""

from __future__ import annotations

import hashlib
import sys

from tests.support.families import PROJECT

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Content of `.made`, and end of the environment's name."""


def stamp_of(name: str) -> str:
    """Content of the file that names an installed list."""
    return hashlib.sha256((PROJECT / "requirements" / f"{name}.txt").read_bytes()).hexdigest() + "\n"
