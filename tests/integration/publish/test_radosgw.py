"""Ceph's gateway checks secrets, and ignores If-Match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.errors import PublishError
from aotforge.publish.keys import KeySet
from aotforge.publish.stores.store import ErrorKind, StoreError
from tests.support.publishing import make_release, publish, released_names, try_install
from tests.support.radosgw import SECRET, have_radosgw, running_radosgw
from tests.support.s3 import Server

MIB = 1 << 20
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not have_radosgw(), reason="radosgw, ceph-mon and ceph-osd (Debian) are not installed"
    ),
]


@pytest.fixture(scope="module")
def rados(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_radosgw(tmp_path_factory.mktemp("rados")) as running:
        yield running


def test_a_wrong_secret(rados: Server, keys: KeySet, tmp_path: Path) -> None:
    bucket = rados.bucket()
    store = replace(rados, secret="aWrongSecretThatMustNeverBePrinted").store(bucket)
    with pytest.raises(
        PublishError, match=r"403 SignatureDoesNotMatch\nLikely cause: the server refuses these credentials"
    ) as caught:
        publish(make_release(tmp_path / "r1"), store, keys)
    assert "Secret" not in str(caught.value) and SECRET not in str(caught.value)
    assert not rados.store(bucket).names("")


def test_release_and_install(rados: Server, keys: KeySet, tmp_path: Path) -> None:
    store = rados.store(rados.bucket())
    release = make_release(tmp_path / "r1", size=6 * MIB, rocm=("7.1",), packs=("amd-gfx908",))
    first = publish(release, store, keys)
    assert "conditional replacement" in first.notes[0] and "one publish at a time" in first.notes[0]
    again = publish(release, store, keys)
    assert not again.sent
    publish(make_release(tmp_path / "r2", "0.11.2b-r2"), rados.store(store._bucket), keys)
    assert released_names(store, keys.roots[0], tmp_path / "trust") == ("0.11.2b-r1", "0.11.2b-r2")
    assert try_install(store, keys.roots[0], tmp_path).release == "0.11.2b-r2"


def test_large_objects_are_not_overwritten(rados: Server) -> None:
    store = rados.store(rados.bucket())
    store.probe()
    store.put_if_absent("large", b"1" * 6 * MIB)
    with pytest.raises(StoreError) as caught:
        store.put_if_absent("large", b"2" * 6 * MIB)
    assert caught.value.kind is ErrorKind.EXISTS
    assert b"".join(store.read("large")) == b"1" * 6 * MIB
