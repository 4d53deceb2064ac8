from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.source_route.routes import Route, environment
from tests.support.runtime import ROOT

Make = Callable[..., Route]


@pytest.fixture
def route(tmp_path: Path) -> Make:
    """Makes a route: of the checkout or another source tree, in a folder of its own."""

    def make(name: str = "build", *, source: Path = ROOT, **extra: str) -> Route:
        return Route(source, tmp_path / name, tmp_path / f"{name}-prefix", environment(**extra))

    return make
