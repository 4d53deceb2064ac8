"""The stand-in for an installed runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.release.standin import prefix


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    return prefix(tmp_path / "prefix")
