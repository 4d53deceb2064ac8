"""A thief of the online keys has changed the index: what a rotation lets the new key sign."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from aotforge.errors import PublishError, TrustError
from aotforge.publish.cache.session import CachePlaces, open_shared_cache
from aotforge.publish.index import CACHE_INDEX, Index, IndexedFile, IndexedRelease
from aotforge.publish.keys import load_keys, rotate_keys
from aotforge.publish.maintenance import renew_index, yank_release
from aotforge.publish.signed_index import change_index, load_state
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.upload import publish_release
from tests.support.publishing import NOW, make_keys, make_release, publish, released_names

OURS, THEIRS = "0.11.2b-r1", "0.11.2b-r9"


class Theft:
    """Our release and one that a thief has added, both signed by our first keys; then the key for targets was replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, DirectoryStore(folder / "store")
        self.stolen = make_keys(folder / "keys")
        self.records = {OURS: publish(make_release(folder / "r1"), self.store, self.stolen).entry or ""}
        publish(make_release(folder / "evil", THEIRS), self.store, self.stolen)
        rotate_keys(folder / "keys", "targets", now=NOW)
        self.keys = load_keys(folder / "keys", {})

    def change(self, **fields: object) -> None:
        """As the thief, who still has the old key, changes our release's entry."""

        def change(index: Index) -> Index:
            releases = (
                replace(one, **fields) if one.name == OURS else one  # type: ignore[arg-type]
                for one in index.releases
            )
            return replace(index, releases=tuple(releases))

        change_index(self.store, self.stolen, change, now=NOW)

    def seen(self) -> tuple[str, ...]:
        """The releases that a new client sees."""
        shutil.rmtree(self.folder / "trust", ignore_errors=True)
        return released_names(self.store, self.keys.roots[0], self.folder / "trust")


@pytest.fixture
def theft(tmp_path: Path) -> Theft:
    return Theft(tmp_path)


def test_nothing_is_signed_unseen(theft: Theft) -> None:
    """Neither by renewing the index, nor by a publication or a yank."""
    more = make_release(theft.folder / "r2", "0.11.2b-r2")
    before = (theft.folder / "store/tuf/timestamp.json").read_bytes()
    for command in (
        lambda: renew_index(theft.store, theft.keys, now=NOW),
        lambda: publish(more, theft.store, theft.keys),
        lambda: yank_release(theft.store, theft.keys, THEIRS, reason="not ours", now=NOW),
    ):
        with pytest.raises(TrustError, match="signed by a key that your newest root replaces") as caught:
            command()
        assert f"which has {OURS}={theft.records[OURS]},{THEIRS}=" in caught.value.hint
    assert (theft.folder / "store/tuf/timestamp.json").read_bytes() == before
    assert not list((theft.folder / "store/tuf").glob("3.*.json"))


def test_only_what_the_records_have_is_signed(theft: Theft) -> None:
    renewed = renew_index(theft.store, theft.keys, now=NOW, entries=theft.records)
    assert renewed.entry_digests() == theft.records
    assert theft.seen() == (OURS,)
    with pytest.raises(PublishError, match="0 of our keys count for 'targets'"):
        publish(theft.folder / "evil", theft.store, theft.stolen)
    publish(make_release(theft.folder / "r2", "0.11.2b-r2"), theft.store, theft.keys)
    assert theft.seen() == (OURS, "0.11.2b-r2")


@pytest.mark.parametrize(
    "fields",
    [
        {"verified": False},
        {"published": "2001-01-01T00:00:00+00:00"},
        {"files": (IndexedFile(name="SHA256SUMS", size=1, sha256="0" * 64),)},
    ],
)
def test_a_changed_entry_is_not_that_of_the_records(theft: Theft, fields: dict[str, object]) -> None:
    theft.change(**fields)
    with pytest.raises(PublishError, match=f"has no entry {OURS}={theft.records[OURS]}") as caught:
        renew_index(theft.store, theft.keys, now=NOW, entries=theft.records)
    assert "it was changed meanwhile" in caught.value.cause


@pytest.mark.parametrize("fields", [{"verified": False}, {"development": ("x",)}])
def test_a_changed_entry_is_not_reported_as_published(theft: Theft, fields: dict[str, object]) -> None:
    """`release.publish` reports digests for the publisher's records: those of entries that it made, and no others."""
    again = publish(theft.folder / "r1", theft.store, theft.stolen, now=NOW + timedelta(days=1))
    assert again.entry is None and not again.sent
    theft.change(**fields)
    with pytest.raises(PublishError, match="is published with other marks than its manifest has"):
        publish(theft.folder / "r1", theft.store, theft.stolen)
    size = IndexedFile(name="SHA256SUMS", size=7, sha256="0" * 64)
    theft.change(files=(size,))
    with pytest.raises(PublishError, match="is published with other files"):
        publish(theft.folder / "r1", theft.store, theft.stolen)


def test_a_name_that_is_misspelt_removes_nothing(theft: Theft) -> None:
    with pytest.raises(PublishError, match=r"has no entry 0\.11\.2b-r7=") as caught:
        renew_index(theft.store, theft.keys, now=NOW, entries={"0.11.2b-r7": "0" * 64})
    assert "misspelt" in caught.value.cause
    assert theft.seen() == (OURS, THEIRS)


def test_an_index_of_the_thief_that_replaces_what_was_written(theft: Theft) -> None:
    """Its digests would be reported, as what this publisher has signed."""
    tuf = theft.folder / "store/tuf"
    before = (tuf / "timestamp.json").read_bytes()
    renew_index(theft.store, theft.keys, now=NOW, entries=theft.records)

    class Thief(DirectoryStore):
        def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
            super().compare_and_swap(name, data, token=token)
            (tuf / "2.root.json").unlink()
            (tuf / "timestamp.json").write_bytes(before)

    with pytest.raises(TrustError, match="signed by a key that your newest root replaces"):
        renew_index(Thief(theft.folder / "store"), theft.keys, now=NOW)


def test_a_folder_of_records_is_compared_with_the_entry(theft: Theft) -> None:
    """Who kept the release's folder and not its digest can compare before the rotation is published."""
    compared = publish_release(theft.folder / "r1", theft.store, theft.keys, now=NOW, dry_run=True)
    assert not compared.sent
    assert "signed by a key that your newest root replaces" in compared.notes[-1]
    theft.change(files=(IndexedFile(name="SHA256SUMS", size=1, sha256="0" * 64),))
    with pytest.raises(PublishError, match="is published with other files"):
        publish_release(theft.folder / "r1", theft.store, theft.keys, now=NOW, dry_run=True)


def test_a_kill_before_the_root_is_in_place(theft: Theft, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is signed by both keys then; the same command completes it."""
    with monkeypatch.context() as patched:
        patched.setattr(theft.store, "put_if_absent", _fail_at_root(theft.store))
        with pytest.raises(KeyboardInterrupt):
            renew_index(theft.store, theft.keys, now=NOW, entries=theft.records)
    assert theft.seen() == (OURS,)
    for _ in range(2):  # once more, it is a renewal without a rotation
        renew_index(theft.store, theft.keys, now=NOW, entries=theft.records)
        assert theft.seen() == (OURS,)
    assert (theft.folder / "store/tuf/2.root.json").exists()


def _fail_at_root(store: DirectoryStore) -> object:
    put = store.put_if_absent

    def put_if_absent(name: str, content: bytes, **more: object) -> None:
        if name.endswith(".root.json"):
            raise KeyboardInterrupt
        put(name, content, **more)  # type: ignore[arg-type]

    return put_if_absent


def test_entries_stay_without_a_rotation(theft: Theft) -> None:
    """Published releases are not removed by a forgotten name."""
    renew_index(
        theft.store, theft.keys, now=NOW, entries=load_state(theft.store, theft.keys).index.entry_digests()
    )
    with pytest.raises(PublishError, match=f"{THEIRS} cannot leave the index"):
        renew_index(theft.store, theft.keys, now=NOW, entries=theft.records)
    assert theft.seen() == (OURS, THEIRS)


@pytest.mark.parametrize("role", ["snapshot", "timestamp", "root"])
def test_keys_that_sign_no_entries(tmp_path: Path, role: str) -> None:
    store, keys = DirectoryStore(tmp_path / "store"), make_keys(tmp_path / "keys")
    publish(make_release(tmp_path / "r1"), store, keys)
    rotate_keys(tmp_path / "keys", role, now=NOW)
    renew_index(store, load_keys(tmp_path / "keys", {}), now=NOW)
    assert released_names(store, keys.roots[0], tmp_path / "trust") == (OURS,)


def test_a_shared_cache_of_the_thief(theft: Theft) -> None:
    """A build that writes into the place takes no object of it, and the new key does not sign its index unseen."""
    poison = IndexedFile(name="index.json", size=2, sha256="4" * 64)
    change_index(theft.store, theft.stolen, lambda index: replace(index, cache=poison), now=NOW)
    notes: list[str] = []
    places = CachePlaces(
        source=None, target=theft.store.url, keys=theft.folder / "keys", root=None, seconds=60.0, limit=10**9,
        checkout=theft.folder, memory=theft.folder / "memory", environment={},
    )  # fmt: skip
    with open_shared_cache(places, notes.append) as shared:
        assert shared.writer is None
    assert "signed by a key that your newest root replaces; nothing is read or written there" in notes[0]
    assert CACHE_INDEX in load_state(theft.store, theft.keys).index.entry_digests()
    renewed = renew_index(theft.store, theft.keys, now=NOW, entries=theft.records)
    assert renewed.cache is None
    with open_shared_cache(places, notes.append) as shared:
        assert shared.writer is not None


def test_digests_have_every_field() -> None:
    one = IndexedRelease(name=OURS, files=(), published="2026-01-01T00:00:00+00:00", verified=True)
    others = (replace(one, name=THEIRS), replace(one, verified=False), replace(one, development=("x",)))
    assert len({entry.digest() for entry in (one, *others)}) == 4
