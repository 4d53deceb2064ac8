from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.wine import Wine, missing_wine, wine_session


@pytest.fixture(scope="session")
def wine() -> Iterator[Wine]:
    if missing_wine():
        pytest.skip(missing_wine())
    with wine_session() as ready:
        yield ready
