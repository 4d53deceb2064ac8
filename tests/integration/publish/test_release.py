"""Publishing: what readers see of it, twice, by several, over other bytes."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from aotforge.errors import PublishError, TrustError, UnknownNameError
from aotforge.publish.keys import KeySet, load_keys, rotate_keys
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.trust import trusted_index
from aotforge.publish.upload import mirror, publish_release, renew_index, yank_release
from tests.integration.publish.conftest import MakeStore
from tests.support.publishing import NOW, make_keys, make_release, publish, released_names, write_sums
from tests.support.s3 import Server, Trouble


def test_once_and_again(make_store: MakeStore, keys: KeySet, tmp_path: Path) -> None:
    release = make_release(tmp_path / "r1")
    (release / "SHA256SUMS.sig").write_text("signature\n")  # beside what SHA256SUMS lists
    store = make_store()
    dry = publish_release(release, store, keys, now=NOW, dry_run=True)
    assert dry.dry_run and len(dry.sent) == 8 and not store.names("")
    first = publish(release, store, keys)
    assert first.sent == dry.sent and not first.found
    assert first.sent[0] == "0.11.2b-r1/MANIFEST.json" and first.sent[-1] == "0.11.2b-r1/SHA256SUMS"
    assert first.bytes_read == first.bytes_sent == sum(path.stat().st_size for path in release.iterdir())
    before = dict(store.names(""))
    again = publish(release, make_store(), keys)
    assert not again.sent and again.found == first.sent and again.index_version == first.index_version == 1
    assert store.names("") == before
    assert released_names(store, keys.roots[0], tmp_path / "trust") == ("0.11.2b-r1",)
    # the file that PyTorch's client downloads
    assert store.size("0.11.2b-r1/aotriton-0.11.2b-r1-manylinux_2_28_x86_64-rocm7.0-shared.tar.gz")


def test_other_bytes_under_the_same_name(make_store: MakeStore, keys: KeySet, tmp_path: Path) -> None:
    store = make_store()
    publish(make_release(tmp_path / "r1"), store, keys)
    before = {name: b"".join(store.read(name)) for name in store.names("")}
    with pytest.raises(PublishError, match=r"published with other files.*\n.*\n.*new revision"):
        publish(make_release(tmp_path / "other", seed=1), store, keys)
    more = shutil.copytree(tmp_path / "r1", tmp_path / "more")
    (more / "provenance.dsse.json").write_text("{}")
    with pytest.raises(PublishError, match=r"other files: provenance.dsse.json"):
        publish(more, store, keys)
    assert {name: b"".join(store.read(name)) for name in store.names("")} == before


def test_an_unfinished_release_of_other_bytes(make_store: MakeStore, keys: KeySet, tmp_path: Path) -> None:
    store = make_store()
    release = make_release(tmp_path / "r1")
    store.put_if_absent("0.11.2b-r1/MANIFEST.json", b"x" * (release / "MANIFEST.json").stat().st_size)
    with pytest.raises(PublishError, match="exists with other bytes"):
        publish(release, store, keys)
    assert set(store.names("0.11")) == {"0.11.2b-r1/MANIFEST.json"}


def test_the_server_changes_bytes(server: Server, keys: KeySet, tmp_path: Path) -> None:
    """A server that answers 200 and stores other bytes: only reading back finds that."""
    store = server.store(server.bucket())

    def spoil(number: int, request: object) -> None:
        if getattr(request, "method", "") == "PUT" and "rocm7.0" in getattr(request, "url", ""):
            request.body = b"y" * len(request.body.read())  # type: ignore[attr-defined]

    Trouble(store, spoil)
    with pytest.raises(PublishError, match="read back with other bytes"):
        publish(make_release(tmp_path / "r1"), store, keys)
    assert not store.names("tuf/")
    assert "0.11.2b-r1/SHA256SUMS" not in store.names("")


def test_several_publishers(make_store: MakeStore, keys: KeySet, tmp_path: Path) -> None:
    """Three releases by six publishers at once, each release by two; a reader all the while."""
    releases = [make_release(tmp_path / f"r{n}", f"0.11.2b-r{n}") for n in (1, 2, 3)]
    publish(releases[0], make_store(), keys)
    errors: list[BaseException] = []
    done = threading.Event()

    def one(folder: Path) -> None:
        try:
            publish(folder, make_store(), keys)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    seen: list[tuple[str, ...]] = []

    def read() -> None:
        while not done.is_set():
            seen.append(released_names(make_store(), keys.roots[0], tmp_path / "trust"))

    reader = threading.Thread(target=read)
    reader.start()
    threads = [threading.Thread(target=one, args=(folder,)) for folder in releases * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert not errors, errors
    assert released_names(make_store(), keys.roots[0], tmp_path / "trust") == tuple(
        f"0.11.2b-r{n}" for n in (1, 2, 3)
    )
    assert seen and all("0.11.2b-r1" in names for names in seen)


def test_yank(make_store: MakeStore, keys: KeySet, tmp_path: Path) -> None:
    store = make_store()
    publish(make_release(tmp_path / "r1"), store, keys)
    with pytest.raises(UnknownNameError, match=r"no release 0.11.2b-r9\n.*0.11.2b-r1"):
        yank_release(store, keys, "0.11.2b-r9", reason="x", now=NOW)
    with pytest.raises(PublishError, match="without a reason"):
        yank_release(store, keys, "0.11.2b-r1", reason=" ", now=NOW)
    yank_release(store, keys, "0.11.2b-r1", reason="wrong results for bf16", now=NOW)
    index = trusted_index(store, keys.roots[0], tmp_path / "trust").index
    assert index.releases[0].yanked and index.releases[0].yanked.reason == "wrong results for bf16"
    publish(tmp_path / "r1", store, keys)  # publishing it again does not take the mark away
    assert trusted_index(store, keys.roots[0], tmp_path / "trust").index.releases[0].yanked
    assert released_names(store, keys.roots[0], tmp_path / "trust") == ("0.11.2b-r1",)
    yank_release(store, keys, "0.11.2b-r1", reason="", now=NOW, undo=True)
    assert not trusted_index(store, keys.roots[0], tmp_path / "trust").index.releases[0].yanked


def test_mirror(make_store: MakeStore, keys: KeySet, tmp_path: Path) -> None:
    origin, copy = DirectoryStore(tmp_path / "origin"), make_store()
    publish(make_release(tmp_path / "r1"), origin, keys)
    first = trusted_index(origin, keys.roots[0], tmp_path / "trust")
    assert len(mirror(origin, first, copy).sent) == 7
    assert released_names(copy, keys.roots[0], tmp_path / "trust-copy") == ("0.11.2b-r1",)
    publish(make_release(tmp_path / "r2", "0.11.2b-r2"), origin, keys)
    trusted = trusted_index(origin, keys.roots[0], tmp_path / "trust")
    report = mirror(origin, trusted, copy)
    assert (len(report.sent), len(report.found)) == (7, 7)
    assert released_names(copy, keys.roots[0], tmp_path / "trust-copy") == ("0.11.2b-r1", "0.11.2b-r2")
    with pytest.raises(PublishError, match="has index 2, the source has 1"):  # a mirror is never rolled back
        mirror(origin, first, copy)
    with pytest.raises(TrustError, match="does not match the index"):
        path = tmp_path / "origin/0.11.2b-r2/MANIFEST.json"
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        mirror(origin, trusted, DirectoryStore(tmp_path / "third"))
    assert not DirectoryStore(tmp_path / "third").names("tuf/")


def test_rotated_keys(make_store: MakeStore, tmp_path: Path) -> None:
    """Old roots lead to new ones, by rotation and through a mirror that began before it; keys that were
    replaced count no more."""
    old = make_keys(tmp_path / "keys")
    store = make_store()
    publish(make_release(tmp_path / "r1"), store, old)
    for role in ("targets", "snapshot", "timestamp", "root", "root"):
        rotate_keys(tmp_path / "keys", role, now=NOW)
    new = load_keys(tmp_path / "keys", {})
    assert len(new.roots) == 6
    renew_index(store, new, now=NOW)
    publish(make_release(tmp_path / "r2", "0.11.2b-r2"), store, new)
    for number, root in enumerate(new.roots):
        assert released_names(store, root, tmp_path / f"trust{number}") == ("0.11.2b-r1", "0.11.2b-r2")
    with pytest.raises(PublishError, match="0 of our keys count for 'targets' by root 6"):
        publish(make_release(tmp_path / "r3", "0.11.2b-r3"), store, old)
    assert renew_index(store, new, now=NOW).version == 4
    # now the index is signed with the new keys alone
    targets = json.loads(b"".join(store.read("tuf/4.targets.json")))
    assert len(targets["signatures"]) == 1
    assert released_names(store, old.roots[0], tmp_path / "trust0") == ("0.11.2b-r1", "0.11.2b-r2")
    copy = DirectoryStore(tmp_path / "copy")
    mirror(store, trusted_index(store, old.roots[0], tmp_path / "trust0"), copy)
    assert released_names(copy, old.roots[0], tmp_path / "trust-copy") == ("0.11.2b-r1", "0.11.2b-r2")


def test_someone_elses_index(make_store: MakeStore, keys: KeySet, tmp_path: Path) -> None:
    store = make_store()
    publish(make_release(tmp_path / "r1"), store, make_keys(tmp_path / "others"))
    before = dict(store.names(""))
    with pytest.raises(TrustError, match="another root than ours"):
        publish(make_release(tmp_path / "r2", "0.11.2b-r2"), store, keys)
    assert store.names("") == before


def test_an_expired_index_can_be_renewed(make_store: MakeStore, keys: KeySet, tmp_path: Path) -> None:
    store = make_store()
    publish(make_release(tmp_path / "r1"), store, keys, now=NOW - timedelta(days=100))
    with pytest.raises(TrustError, match="expired"):
        trusted_index(store, keys.roots[0], tmp_path / "trust")
    renew_index(store, keys, now=NOW)
    assert released_names(store, keys.roots[0], tmp_path / "trust") == ("0.11.2b-r1",)


ARCHIVE = "aotriton-0.11.2b-r1-images-amd-gfx908.tar.gz"


def _resummed(folder: Path) -> None:
    """SHA256SUMS.uncompressed has another digest, and SHA256SUMS that of the changed list."""
    lines = [(folder / name).read_text().splitlines() for name in ("SHA256SUMS.uncompressed", "SHA256SUMS")]
    tars, sums = ({line[66:]: line[:64] for line in each} for each in lines)
    write_sums(folder, sums, {**tars, ARCHIVE[:-3]: "0" * 64})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / ARCHIVE).unlink(), f"{ARCHIVE} is in the folder or in SHA256SUMS, not in both"),
        (lambda f: (f / "key.pem").write_text("private"), "key.pem is in the folder or in SHA256SUMS"),
        (lambda f: (f / "sub").mkdir(), "sub is in the folder or in SHA256SUMS"),
        (lambda f: (f / ARCHIVE).write_bytes(b"xx"), f"{ARCHIVE} is not the file that SHA256SUMS names"),
        (lambda f: (f / "MANIFEST.json").write_text("[]"), "MANIFEST.json is not"),
        (lambda f: (f / "SHA256SUMS").unlink(), "SHA256SUMS: No such file"),
        (_resummed, "differs from SHA256SUMS.uncompressed"),
    ],
)
def test_a_folder_that_is_not_a_release(
    keys: KeySet, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    """Everything wrong is found before anything is sent."""
    folder, store = make_release(tmp_path / "r1"), DirectoryStore(tmp_path / "store")
    change(folder)
    with pytest.raises(PublishError, match=message):
        publish(folder, store, keys)
    assert not store.names("")


def test_a_development_build_is_not_published_by_accident(keys: KeySet, tmp_path: Path) -> None:
    folder = make_release(tmp_path / "r1", development=("because",))
    with pytest.raises(PublishError, match="development build: because"):
        publish(folder, DirectoryStore(tmp_path / "store"), keys)
