"""One small release per test process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.releases import build_small


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("release"))
