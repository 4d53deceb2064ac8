"""What a client must refuse: each attack once, one clear error, nothing installed, what was installed as it
was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tuf.api.metadata import Metadata

from aotforge.errors import InstallError, TrustError
from aotforge.publish.index import Index
from aotforge.publish.keys import KeySet, rotate_keys
from aotforge.publish.repository import change_index
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.store import ExistsError, StoreError
from aotforge.publish.trust import trusted_index, trusted_root
from tests.support.publishing import NOW, make_keys, make_release, publish, try_install

RUNTIME = "0.11.2b-r1/aotriton-0.11.2b-r1-manylinux_2_28_x86_64-rocm7.1-shared.tar.gz"
IMAGES = "0.11.2b-r1/aotriton-0.11.2b-r1-images-amd-gfx908.tar.gz"


class Place:
    """A published release and a client that has seen it."""

    def __init__(self, folder: Path, keys: KeySet) -> None:
        self.folder, self.keys = folder, keys
        self.store = DirectoryStore(folder / "store")
        publish(make_release(folder / "r1"), self.store, keys)

    def path(self, name: str) -> Path:
        return self.folder / "store" / name

    def install(self) -> None:
        try_install(self.store, self.keys.roots[0], self.folder)

    def seen(self) -> None:
        trusted_index(self.store, self.keys.roots[0], self.folder / "trust")

    def refused(self, message: str) -> None:
        """Installing fails with one error and leaves the prefix as it is."""
        prefix = self.folder / "prefix"
        before = sorted(prefix.rglob("*")) if prefix.exists() else None
        with pytest.raises(TrustError, match=message) as caught:
            self.install()
        assert caught.value.exit_code == 7
        assert (sorted(prefix.rglob("*")) if prefix.exists() else None) == before
        assert not list(self.folder.glob(".prefix.staged-*"))


@pytest.fixture
def place(tmp_path: Path, keys: KeySet) -> Place:
    return Place(tmp_path, keys)


def flip(path: Path, position: int = -20) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("seen", [False, True])
def test_mirrors_get_every_verified_file(place: Place, seen: bool) -> None:
    if seen:
        place.seen()
    index = trusted_index(place.store, place.keys.roots[0], place.folder / "trust")
    names = ("1.root.json", "timestamp.json", "1.snapshot.json", "1.targets.json")
    assert index.metadata == {f"tuf/{name}": place.path(f"tuf/{name}").read_bytes() for name in names}


@pytest.mark.parametrize("name", ["1.root", "timestamp", "1.snapshot", "1.targets"])
def test_any_byte_of_metadata(place: Place, name: str) -> None:
    path = place.path(f"tuf/{name}.json")
    original = path.read_bytes()
    for position in range(0, len(original), max(1, len(original) // 12)):
        flip(path, position)
        if name == "1.root":  # what counts is the pinned one
            trusted_index(place.store, place.keys.roots[0], place.folder / f"trust-{position}")
        else:
            with pytest.raises(TrustError):
                trusted_index(place.store, place.keys.roots[0], place.folder / f"trust-{position}")
        path.write_bytes(original)


@pytest.mark.parametrize("name", [RUNTIME, IMAGES])
def test_changed_files(place: Place, name: str) -> None:
    original = place.path(name).read_bytes()
    flip(place.path(name))
    place.refused(r"refused|does not match the index")
    place.path(name).write_bytes(original[:-1])
    place.refused(r"truncated|does not match the index")
    place.path(name).write_bytes(original + b"\0")
    place.refused(r"something follows|longer|does not match the index")
    place.path(name).unlink()
    with pytest.raises(InstallError, match="does not exist"):
        place.install()
    assert not (place.folder / "prefix").exists()
    place.path(name).write_bytes(original)
    place.install()


def test_an_archive_of_another_release(place: Place) -> None:
    publish(make_release(place.folder / "r2", "0.11.2b-r2"), place.store, place.keys)
    shutil.copy(place.path(IMAGES), place.path(IMAGES.replace("r1", "r2")))
    place.refused(r"does not match the index|longer|truncated|unpacks to more")


def test_rollback(place: Place) -> None:
    """An attacker serves an index that was right once, e.g. from before a yank."""
    shutil.copytree(place.path("tuf"), place.folder / "old")
    publish(make_release(place.folder / "r2", "0.11.2b-r2"), place.store, place.keys)
    place.install()
    shutil.rmtree(place.path("tuf"))
    shutil.copytree(place.folder / "old", place.path("tuf"))
    place.refused("New timestamp version 1 must be >= 2\nLikely cause: an older index")


def test_freeze(place: Place) -> None:
    """The same index for ever: it expires."""
    other = DirectoryStore(place.folder / "frozen")
    publish(place.folder / "r1", other, place.keys, now=NOW - timedelta(days=91))
    with pytest.raises(TrustError, match=r"expired\nLikely cause: .*clock"):
        try_install(other, place.keys.roots[0], place.folder)


def test_mix_and_match(place: Place) -> None:
    """The new timestamp with the old snapshot's bytes; the new snapshot with the old targets' bytes."""
    publish(make_release(place.folder / "r2", "0.11.2b-r2"), place.store, place.keys)
    for role in ("snapshot", "targets"):
        new = place.path(f"tuf/2.{role}.json")
        original = new.read_bytes()
        shutil.copy(place.path(f"tuf/1.{role}.json"), new)
        place.refused("cannot be trusted")
        new.write_bytes(original)
    place.install()


def test_other_keys(place: Place) -> None:
    """Another publisher's complete, valid index at the same address."""
    shutil.rmtree(place.path("tuf"))
    publish(place.folder / "r1", place.store, make_keys(place.folder / "theirs"))
    place.refused("signed by other keys than the trusted root names")


def test_one_root_key_is_not_enough(place: Place, tmp_path: Path) -> None:
    """A root that only one of two root keys has signed does not install new keys."""
    keys = make_keys(tmp_path / "two")
    other = Place(tmp_path / "place", keys)
    path = rotate_keys(tmp_path / "two", "targets", now=NOW)
    root = Metadata.from_file(str(path))
    root.signatures.pop(next(iter(root.signatures)))
    root.to_file(str(other.path("tuf/2.root.json")))
    other.refused("cannot be trusted")


def test_expired_root(tmp_path: Path) -> None:
    from aotforge.publish.keys import create_keys, load_keys

    create_keys(tmp_path / "keys", now=NOW - timedelta(days=400), repository=tmp_path / "repository")
    place = Place(tmp_path / "place", load_keys(tmp_path / "keys", {}))
    place.refused(r"root.json is expired")


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([b"{"], StoreError),
        ([], StoreError),
        ([], ExistsError),
    ],
)
def test_a_newer_root_that_cannot_be_read_is_not_a_missing_one(
    place: Place, pieces: list[bytes], kind: type[StoreError]
) -> None:
    """Its absence ends the chain of roots, which a broken connection must not."""

    class Breaking(DirectoryStore):
        def read(self, name: str, *, start: int = 0) -> Iterator[bytes]:
            if name.endswith("2.root.json"):
                yield from pieces
                raise kind("the rest is not readable")
            yield from super().read(name, start=start)

    with pytest.raises(StoreError, match="the rest is not readable"):
        trusted_index(Breaking(place.folder / "store"), place.keys.roots[0], place.folder / "trust")


def test_endless_metadata(place: Place) -> None:
    with place.path("tuf/timestamp.json").open("ab") as file:
        file.truncate(40 << 20)
    with pytest.raises(StoreError, match="is larger than"):
        place.install()


def test_a_signed_index_that_makes_no_sense(place: Place) -> None:
    """Its signer is to blame, or is not who he seems: sums that contradict the index, names that lead
    elsewhere."""

    def swapped(index: Index) -> Index:
        release = index.releases[0]
        files = tuple(
            replace(f, tar=release.files[-1].tar) if "gfx908" in f.name else f for f in release.files
        )
        return replace(index, releases=(replace(release, files=files),))

    change_index(place.store, place.keys, swapped, now=NOW)
    place.refused("gfx908.* is refused")

    def climbing(index: Index) -> Index:
        release = index.releases[0]
        return replace(
            index,
            releases=(replace(release, files=(*release.files, replace(release.files[0], name="../../x"))),),
        )

    before = dict(place.store.names("tuf/"))
    with pytest.raises(TrustError, match="is not valid"):
        change_index(place.store, place.keys, climbing, now=NOW)
    assert place.store.names("tuf/") == before


def _no_root(folder: Path) -> bytes:
    return trusted_root(None, folder, {})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_no_root, "no root of trust.*\n.*has published nothing\n.*by a way that you trust"),
        (
            lambda folder: trusted_root(str(folder / "none"), folder, {}),
            "none, the root of trust, cannot be read",
        ),
        (lambda folder: trusted_root(str(folder / "bad"), folder, {}), "bad is not a valid root of trust"),
        (
            lambda folder: trusted_root(None, folder, {"AOTFORGE_ROOT": str(folder / "unsigned")}),
            "unsigned is not a valid root of trust",
        ),
    ],
)
def test_first_trust(make: Callable[[Path], bytes], message: str, keys: KeySet, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("{}")
    (tmp_path / "unsigned").write_text(json.dumps({**json.loads(keys.roots[0]), "signatures": []}))
    with pytest.raises(TrustError, match=message):
        make(tmp_path)
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases/root.json").write_bytes(keys.roots[0])
    assert trusted_root(None, tmp_path, {}) == keys.roots[0]
