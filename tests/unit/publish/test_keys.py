"""Signing keys in folders and in the environment: made, read, rotated, and each refusal."""

from __future__ import annotations

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from securesystemslib.signer import CryptoSigner

from aotforge.errors import OutputError, PublishError, TrustError
from aotforge.publish import keys as keys_module
from aotforge.publish.keys import ONLINE, ROLES, create_keys, load_keys, next_root, read_root, rotate_keys

NOW = datetime(2026, 5, 4, 3, 2, 1, 999, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_keys(tmp_path / "keys", now=NOW, repository=tmp_path / "repository")
    return tmp_path / "keys"


def test_new_keys(folder: Path) -> None:
    """Three root keys of which two must sign, one key of each other role; the root is valid for a year."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    roots = [f"root-{number}.pem" for number in (1, 2, 3)]
    assert names == sorted(["roots/1.root.json", *roots, *(f"{role}-1.pem" for role in ONLINE)])
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.pem")} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    data = (folder / "roots/1.root.json").read_bytes()
    root = read_root(data, "it").signed
    assert (root.version, root.consistent_snapshot) == (1, True)
    assert root.expires == datetime(2027, 5, 4, 3, 2, 1, tzinfo=UTC)
    assert {role: (len(root.roles[role].keyids), root.roles[role].threshold) for role in ROLES} == {
        "root": (3, 2), "targets": (1, 1), "snapshot": (1, 1), "timestamp": (1, 1),
    }  # fmt: skip
    keys = load_keys(folder, {})
    assert keys.roots == (data,)
    for role in ROLES:
        assert [signer.public_key.keyid for signer in keys.signers[role]] == [
            signer.public_key.keyid for signer in keys.allowed(role, root)
        ]
    keys.require(root, ROLES)


def test_a_folder_of_keys_is_named_by_the_argument_or_the_environment(folder: Path, tmp_path: Path) -> None:
    assert set(load_keys(None, {"AOTFORGE_KEYS": str(folder)}).signers) == set(ROLES)
    assert load_keys(folder, {"AOTFORGE_KEYS": str(tmp_path / "nowhere")}).roots
    with pytest.raises(PublishError, match="there are no keys to sign the index with"):
        load_keys(None, {})
    with pytest.raises(PublishError, match="AOTFORGE_KEYS names no folder") as caught:
        load_keys(None, {"AOTFORGE_KEYS": (folder / "targets-1.pem").read_text()})
    assert "PRIVATE" not in str(caught.value)


@pytest.mark.parametrize(("keys", "threshold"), [(3, 0), (2, 3), (21, 2), (0, 0)])
def test_thresholds_that_are_not_possible(keys: int, threshold: int, tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=f"a threshold of {threshold} of {keys} root keys is not possible"):
        create_keys(tmp_path / "k", now=NOW, repository=tmp_path / "r", root_keys=keys, threshold=threshold)
    assert not (tmp_path / "k").exists()


@pytest.mark.parametrize("where", ["repository", "repository/keys", "repository/../repository/deep/keys"])
def test_keys_are_not_made_in_the_repository(where: str, tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    with pytest.raises(PublishError, match="is inside the repository"):
        create_keys(tmp_path / where, now=NOW, repository=tmp_path / "repository")
    assert list((tmp_path / "repository").iterdir()) == []


def test_keys_are_never_replaced(folder: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.pem")}
    (tmp_path / "file").touch()
    for place in (folder, tmp_path / "file"):
        with pytest.raises(PublishError, match="exists and is not empty"):
            create_keys(place, now=NOW, repository=tmp_path / "repository")
    assert {path: path.read_bytes() for path in folder.rglob("*.pem")} == before
    (tmp_path / "empty").mkdir()
    create_keys(tmp_path / "empty", now=NOW, repository=tmp_path / "repository")


@pytest.mark.parametrize("role", ROLES)
def test_a_rotated_key(folder: Path, role: str) -> None:
    """The new root follows from the old one; the role's newest key, of root the oldest, is not valid any
    more."""
    old = load_keys(folder, {})
    later = NOW + timedelta(days=30)
    path = rotate_keys(folder, role, now=later)
    assert path == folder / "roots/2.root.json"
    before = read_root(old.roots[0], "it")
    new = next_root(before, path.read_bytes(), "it").signed
    assert (new.version, new.expires) == (2, datetime(2027, 6, 3, 3, 2, 1, tzinfo=UTC))
    number = 4 if role == "root" else 2
    assert (folder / f"{role}-{number}.pem").is_file()
    keys = load_keys(folder, {})
    for each in ROLES:
        kept = before.signed.roles[each].keyids
        if each == role:
            revoked = old.signers[role][0].public_key.keyid
            kept = [*(keyid for keyid in kept if keyid != revoked), keys.signers[role][-1].public_key.keyid]
        assert sorted(new.roles[each].keyids) == sorted(kept), each
        assert new.roles[each].threshold == before.signed.roles[each].threshold
    keys.require(new, ROLES)
    if role != "root":
        with pytest.raises(PublishError, match=f"0 of our keys count for '{role}' by root 2, 1 are needed"):
            old.require(new, ROLES)


def test_a_lost_key_is_revoked(folder: Path) -> None:
    lost = load_keys(folder, {}).signers["snapshot"][0].public_key.keyid
    (folder / "snapshot-1.pem").unlink()
    root = read_root(rotate_keys(folder, "snapshot", now=NOW).read_bytes(), "it").signed
    assert len(root.roles["snapshot"].keyids) == 1 and lost not in root.roles["snapshot"].keyids


def test_two_rotations_at_once_make_two_roots(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, write = threading.Barrier(2), keys_module._write_key

    def write_together(path: Path, signer: CryptoSigner) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        write(path, signer)

    monkeypatch.setattr(keys_module, "_write_key", write_together)
    with ThreadPoolExecutor() as threads:
        made = [threads.submit(rotate_keys, folder, role, now=NOW) for role in ("targets", "snapshot")]
    assert {path.result().name for path in made} == {"2.root.json", "3.root.json"}


def test_rotation_needs_the_root_keys_and_a_role(folder: Path) -> None:
    with pytest.raises(PublishError, match="'mirror' is not a role"):
        rotate_keys(folder, "mirror", now=NOW)
    for number in (1, 3):
        (folder / f"root-{number}.pem").unlink()
    with pytest.raises(PublishError, match="1 of our keys count for 'root' by root 1, 2 are needed"):
        rotate_keys(folder, "targets", now=NOW)
    assert not (folder / "roots/2.root.json").exists()


def test_roots_and_keys_are_ordered_by_number(folder: Path) -> None:
    """Not by name: 10 follows 9. Other files are not taken for keys or roots."""
    for _ in range(10):
        rotate_keys(folder, "timestamp", now=NOW)
    for name in ("timestamp-x.pem", "timestamp-12.pem.old", "mirror-1.pem", "roots/latest.root.json"):
        (folder / name).write_text("no key")
    keys = load_keys(folder, {})
    assert [read_root(data, "it").signed.version for data in keys.roots] == list(range(1, 12))
    newest = read_root(keys.roots[-1], "it").signed
    assert [s.public_key.keyid for s in keys.signers["timestamp"]][-1:] == newest.roles["timestamp"].keyids
    assert len(keys.signers["timestamp"]) == 11


def test_folders_that_are_not_of_keys(folder: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(PublishError, match=r"has no roots/1\.root\.json"):
            load_keys(place, {})
    (folder / "targets-1.pem").chmod(0o640)
    with pytest.raises(PublishError, match=r"targets-1\.pem"):
        load_keys(folder, {})


def test_other_kinds_of_keys_are_refused(folder: Path) -> None:
    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content in (b"no key", other, b""):
        (folder / "targets-1.pem").write_bytes(content)
        with pytest.raises(PublishError, match=r"targets-1\.pem is not an Ed25519 private key") as caught:
            load_keys(folder, {})
        assert caught.value.__cause__ is None


def test_a_root_must_follow_by_one_and_be_signed_by_both(folder: Path, tmp_path: Path) -> None:
    for _ in range(2):
        rotate_keys(folder, "root", now=NOW)
    first, second, third = (read_root(data, "it") for data in load_keys(folder, {}).roots)
    assert next_root(first, second.to_bytes(), "it").signed == second.signed
    for old, new, reason in (
        (first, third, "its version is 3, not 2"),
        (second, second, "its version is 2, not 3"),
    ):
        with pytest.raises(TrustError, match=reason):
            next_root(old, new.to_bytes(), "it")
    create_keys(tmp_path / "other", now=NOW, repository=tmp_path / "repository")
    stranger = rotate_keys(tmp_path / "other", "root", now=NOW).read_bytes()
    with pytest.raises(TrustError, match="it does not follow from the root before it"):
        next_root(first, stranger, "it")
    unsigned = read_root(second.to_bytes(), "it")
    unsigned.signatures.clear()
    with pytest.raises(TrustError, match="it is not a valid root of trust"):
        next_root(first, unsigned.to_bytes(), "it")


def test_a_full_disk_leaves_no_part_of_a_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty key file made every later command refuse the folder."""
    before = sorted(folder.glob("[!.]*"))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OutputError, match="No space left"):
        patched.setattr(os, "fsync", full)
        rotate_keys(folder, "targets", now=NOW)
    assert sorted(folder.glob("[!.]*")) == before
    rotate_keys(folder, "targets", now=NOW)
    assert len(load_keys(folder, {}).signers["targets"]) == 2
