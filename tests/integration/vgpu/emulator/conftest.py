"""Images that several test modules execute, compiled once per session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.integration.vgpu.emulator.attention_images import Images
from tests.support.runtime import CACHE


@pytest.fixture(scope="session")
def images_of() -> Callable[[str], Images]:
    """The images of an arch; each is compiled at its first use."""
    return cache(lambda arch: Images(arch, CACHE))
