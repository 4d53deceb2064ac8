"""The key for targets was stolen and replaced: nothing that it signed is signed again unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import PublishError, TrustError
from aotforge.publish.keys import KeySet, load_keys, rotate_keys
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.trust import trusted_index
from aotforge.publish.upload import renew_index, yank_release
from tests.support.publishing import NOW, make_keys, make_release, publish, released_names

OURS, THEIRS = "0.11.2b-r1", "0.11.2b-r9"


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


@pytest.fixture
def stolen(store: DirectoryStore, tmp_path: Path) -> KeySet:
    """They signed our release and one that a thief has added."""
    keys = make_keys(tmp_path / "keys")
    publish(make_release(tmp_path / "r1"), store, keys)
    publish(make_release(tmp_path / "evil", THEIRS), store, keys)
    return keys


def test_an_index_of_a_replaced_key(store: DirectoryStore, stolen: KeySet, tmp_path: Path) -> None:
    rotate_keys(tmp_path / "keys", "targets", now=NOW)
    keys = load_keys(tmp_path / "keys", {})
    more = make_release(tmp_path / "r2", "0.11.2b-r2")
    before = dict(store.names("tuf/"))
    for command in (
        lambda: publish(more, store, keys),
        lambda: yank_release(store, keys, THEIRS, reason="not ours", now=NOW),
    ):
        with pytest.raises(TrustError, match="signed by a key that your newest root replaces"):
            command()
    assert store.names("tuf/") == before
    assert [release.name for release in renew_index(store, keys, now=NOW).releases] == [OURS, THEIRS]
    yank_release(store, keys, THEIRS, reason="not ours", now=NOW)
    assert list(trusted_index(store, keys.roots[0], tmp_path / "trust").index.yanked()) == [THEIRS]
    with pytest.raises(PublishError, match="0 of our keys count for 'targets'"):
        publish(tmp_path / "evil", store, stolen)


@pytest.mark.parametrize("role", ["snapshot", "timestamp", "root"])
def test_keys_that_sign_no_entries(store: DirectoryStore, stolen: KeySet, tmp_path: Path, role: str) -> None:
    rotate_keys(tmp_path / "keys", role, now=NOW)
    publish(make_release(tmp_path / "r2", "0.11.2b-r2"), store, load_keys(tmp_path / "keys", {}))
    assert len(released_names(store, stolen.roots[0], tmp_path / "trust")) == 3
