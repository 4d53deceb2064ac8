"""One S3 server per test process; every test has a bucket of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aotforge.publish.keys import KeySet
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import ObjectStore
from tests.support.publishing import make_keys
from tests.support.s3 import Server, have_ministack, running_server

MakeStore = Callable[[], ObjectStore]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not have_ministack():
        pytest.skip("ministack, an S3 server from the package index, is not in this environment")
    with running_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeySet:
    return make_keys(tmp_path_factory.mktemp("keys") / "keys")


@pytest.fixture(params=["directory", "s3"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes independent stores of one place."""
    if request.param == "directory":
        return lambda: DirectoryStore(tmp_path / "store")
    server: Server = request.getfixturevalue("server")
    bucket = server.bucket()
    return lambda: server.store(bucket)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
