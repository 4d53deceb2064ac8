"""Attacks on a publisher: the index in the store is not its own, or changes while it publishes.

The attacker may write to the store and has keys of its own. The publisher must not sign anything that it
finds there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, MetaFile, Root, Timestamp

from aotforge.errors import PublishError, TrustError
from aotforge.publish.keys import KeySet, load_keys, rotate_keys
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import Content, StoreError
from aotforge.publish.trust import trusted_index
from tests.support.publishing import NOW, make_keys, make_release, publish, released_names

LATER = (NOW + timedelta(days=30)).replace(microsecond=0)


class Place:
    """A store in which our keys have published two releases."""

    def __init__(self, folder: Path, keys: KeySet) -> None:
        self.folder, self.keys = folder, keys
        self.tuf = folder / "store/tuf"
        self.store = DirectoryStore(folder / "store")
        publish(make_release(folder / "r1"), self.store, keys)
        publish(make_release(folder / "r2", "0.11.2b-r2"), self.store, keys)
        self.next = make_release(folder / "r3", "0.11.2b-r3")

    def content(self) -> dict[str, bytes]:
        return {name: b"".join(self.store.read(name)) for name in self.store.names("")}

    def other(self) -> Path:
        """The index of another place of the same keys, with the same version and other releases."""
        shutil.copytree(self.folder / "store", self.folder / "fork")
        for name in ("timestamp", "2.targets", "2.snapshot"):
            (self.folder / f"fork/tuf/{name}.json").unlink()
        timestamp = self.folder / "first/tuf/timestamp.json"
        publish(self.folder / "r1", DirectoryStore(self.folder / "first"), self.keys)
        shutil.copy(timestamp, self.folder / "fork/tuf/timestamp.json")
        for name in ("1.targets", "1.snapshot"):
            shutil.copy(self.folder / f"first/tuf/{name}.json", self.folder / f"fork/tuf/{name}.json")
        publish(
            make_release(self.folder / "fork-r9", "0.11.2b-r9"),
            DirectoryStore(self.folder / "fork"),
            self.keys,
        )
        return self.folder / "fork/tuf"


@pytest.fixture
def place(keys: KeySet, tmp_path: Path) -> Place:
    return Place(tmp_path, keys)


def _stranger(place: Place, role: str) -> None:
    """Signed by a key that the root does not name, and otherwise right."""
    path = place.tuf / f"{role}.json"
    metadata = Metadata.from_bytes(path.read_bytes())
    metadata.signatures.clear()
    metadata.sign(CryptoSigner.generate_ed25519())
    path.write_bytes(metadata.to_bytes())


def _edited(place: Place, role: str) -> None:
    path = place.tuf / f"{role}.json"
    data = json.loads(path.read_bytes())
    data["signed"]["expires"] = "2099-01-01T00:00:00Z"
    path.write_text(json.dumps(data))


def _cut(place: Place, role: str) -> None:
    path = place.tuf / f"{role}.json"
    path.write_bytes(path.read_bytes()[:-7])


def _kinds(place: Place, role: str) -> None:
    """Validly signed metadata of another kind."""
    others = {"timestamp": "2.snapshot", "2.snapshot": "2.targets", "2.targets": "timestamp"}
    shutil.copy(place.tuf / f"{others[role]}.json", place.tuf / f"{role}.json")


def _older(place: Place, role: str) -> None:
    """Validly signed metadata of this kind and an earlier version."""
    shutil.copy(place.tuf / f"{role.replace('2', '1')}.json", place.tuf / f"{role}.json")


def _forked(place: Place, role: str) -> None:
    """Validly signed metadata of this kind and version with other contents: of another place, or never
    referenced."""
    shutil.copy(place.other() / f"{role}.json", place.tuf / f"{role}.json")


ROLES = ("timestamp", "2.snapshot", "2.targets")
ATTACKS = [(attack, role) for attack in (_stranger, _edited, _cut, _kinds) for role in ROLES]
# with an older or a forked timestamp the index is a valid one of the same keys: clients remember, a store
# cannot
ATTACKS += [(attack, role) for attack in (_older, _forked) for role in ROLES[1:]]


@pytest.mark.parametrize(("attack", "role"), ATTACKS)
def test_an_attacked_index_is_not_signed(
    attack: Callable[[Place, str], None], role: str, place: Place
) -> None:
    attack(place, role)
    before = place.content()
    with pytest.raises(TrustError, match="cannot be trusted") as caught:
        publish(place.next, place.store, place.keys)
    assert "do not publish there before you know why" in str(caught.value)
    assert place.content() == before


def test_a_stolen_timestamp_key_does_not_bring_back_old_releases(place: Place) -> None:
    """It signs an old snapshot under a new number: everything that it lists is rolled back."""
    old = (place.tuf / "1.snapshot.json").read_bytes()
    (place.tuf / "9.snapshot.json").write_bytes(old)
    meta = MetaFile.from_data(9, old, ["sha256"])
    _sign(place, Timestamp(version=9, expires=LATER, snapshot_meta=meta))
    before = place.content()
    with pytest.raises(TrustError, match=r"9\.snapshot\.json cannot be trusted: its version is 1"):
        publish(place.next, place.store, place.keys)
    assert place.content() == before


def _sign(place: Place, timestamp: Timestamp) -> None:
    metadata = Metadata(timestamp)
    metadata.sign(place.keys.signers["timestamp"][-1])
    (place.tuf / "timestamp.json").write_bytes(metadata.to_bytes())


class Racing(DirectoryStore):
    """Calls `meddle` once, before or after the first write of an object whose name ends in `at`."""

    def __init__(self, folder: Path, at: str, meddle: Callable[[], object], *, after: bool = False) -> None:
        super().__init__(folder)
        self._at, self._meddle, self._after, self._done = at, meddle, after, False

    def _now(self, name: str, *, after: bool) -> None:
        if name.endswith(self._at) and after == self._after and not self._done:
            self._done = True
            self._meddle()

    def put_if_absent(self, name: str, content: Content) -> None:
        self._now(name, after=False)
        super().put_if_absent(name, content)
        self._now(name, after=True)

    def compare_and_swap(self, name: str, data: bytes, *, token: str | None) -> None:
        self._now(name, after=False)
        super().compare_and_swap(name, data, token=token)
        self._now(name, after=True)


def test_a_lost_update_is_repeated(place: Place) -> None:
    """Without conditional writes another publisher's timestamp may replace ours: both releases must be in
    the end."""
    theirs = (place.tuf / "timestamp.json").read_bytes()
    store = Racing(
        place.folder / "store",
        "timestamp.json",
        lambda: (place.tuf / "timestamp.json").write_bytes(theirs),
        after=True,
    )
    publish(place.next, store, place.keys)
    names = released_names(place.store, place.keys.roots[0], place.folder / "trust")
    assert names == ("0.11.2b-r1", "0.11.2b-r2", "0.11.2b-r3")


@pytest.mark.parametrize("name", ["3.targets.json", "3.snapshot.json"])
def test_metadata_that_the_store_changed_is_not_referenced(name: str, place: Place) -> None:
    before = (place.tuf / "timestamp.json").read_bytes()
    store = Racing(place.folder / "store", name, lambda: (place.tuf / name).write_bytes(b"{}"), after=True)
    with pytest.raises(PublishError, match=f"{name} was read back with other bytes"):
        publish(place.next, store, place.keys)
    assert (place.tuf / "timestamp.json").read_bytes() == before


def test_a_release_that_was_published_meanwhile(place: Place) -> None:
    """Another build of the same release, of which only the unsigned provenance differs, enters the index
    first."""
    other = shutil.copytree(place.next, place.folder / "other")
    (other / "provenance.dsse.json").write_text("{}")
    store = Racing(place.folder / "store", "3.targets.json", lambda: publish(other, place.store, place.keys))
    with pytest.raises(PublishError, match=r"published with other files: provenance\.dsse\.json"):
        publish(place.next, store, place.keys)
    index = trusted_index(place.store, place.keys.roots[0], place.folder / "trust").index
    release = index.release("0.11.2b-r3")
    assert release and release.file("provenance.dsse.json")


def rotated(folder: Path) -> tuple[Place, KeySet]:
    """A place of keys whose timestamp key is then replaced."""
    place = Place(folder, make_keys(folder / "keys"))
    rotate_keys(folder / "keys", "timestamp", now=NOW)
    return place, load_keys(folder / "keys", {})


def test_readers_of_the_old_root_see_an_interrupted_rotation(tmp_path: Path) -> None:
    """The new root is written last; until then the index must be signed with the old keys as well."""
    place, new = rotated(tmp_path)

    def interrupt() -> None:
        raise StoreError("killed")

    with pytest.raises(PublishError, match="killed"):
        publish(place.next, Racing(tmp_path / "store", "2.root.json", interrupt), new)
    assert not (place.tuf / "2.root.json").exists()
    for number, root in enumerate(new.roots):
        assert "0.11.2b-r3" in released_names(place.store, root, tmp_path / f"trust{number}")
    publish(place.next, place.store, new)
    assert (place.tuf / "2.root.json").read_bytes() == new.roots[1]


def test_a_root_of_strangers_after_ours(place: Place) -> None:
    """A root that follows in number and is signed by itself alone."""
    root = Metadata[Root].from_bytes(place.keys.roots[0])
    root.signed.version = 2
    root.signatures.clear()
    signer = CryptoSigner.generate_ed25519()
    for role in ("root", "targets", "snapshot", "timestamp"):
        root.signed.roles[role].keyids.clear()
        root.signed.roles[role].threshold = 1
        root.signed.add_key(signer.public_key, role)
    root.sign(signer)
    (place.tuf / "2.root.json").write_bytes(root.to_bytes())
    before = place.content()
    with pytest.raises(TrustError, match="does not follow from the root before it"):
        publish(place.next, place.store, place.keys)
    assert place.content() == before
