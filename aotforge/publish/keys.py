"""Ed25519 signing keys of an index, and the roots that name them.

A folder of keys holds `ROLE-N.pem` (PKCS #8, mode 0600) and `roots/N.root.json`, the signed history of
valid keys. Private keys never enter a repository or a store; readers get the newest root.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Snapshot, Targets, Timestamp
from tuf.api.serialization import DeserializationError

from aotforge.base.files import output_errors, private_file_fault, waiting_lock, write_atomic
from aotforge.errors import PublishError, TrustError

ROLES = ("root", "targets", "snapshot", "timestamp")
ONLINE = ROLES[1:]
"""Roles that sign every publication; root's keys are needed for rotation only and belong offline."""

ROOT_DAYS = 365
FOLDER_VARIABLE = "AOTFORGE_KEYS"
ROOT_VARIABLE = "AOTFORGE_ROOT"
S = TypeVar("S", Root, Snapshot, Targets, Timestamp)
_KEY_FILE = re.compile(r"(root|targets|snapshot|timestamp)-([0-9]+)\.pem")


@dataclass(frozen=True, kw_only=True)
class KeySet:
    """Private keys by role, newest last, and the known roots, oldest first, as signed bytes."""

    roots: tuple[bytes, ...]
    signers: Mapping[str, tuple[CryptoSigner, ...]] = field(repr=False)

    def allowed(self, role: str, root: Root) -> list[CryptoSigner]:
        """Our keys that `root` names for a role."""
        return [s for s in self.signers.get(role, ()) if s.public_key.keyid in root.roles[role].keyids]

    def require(self, root: Root, roles: Sequence[str] = ONLINE) -> None:
        """Raises PublishError when our keys do not reach a role's threshold."""
        for role in roles:
            threshold = root.roles[role].threshold
            if (count := len(self.allowed(role, root))) < threshold:
                raise PublishError(
                    f"{count} of our keys count for {role!r} by root {root.version}, {threshold} are needed",
                    cause="the key is missing, or was replaced by a rotation",
                    hint=f"name the folder of keys (--keys, {FOLDER_VARIABLE})",
                )


def verify(kind: type[S], data: bytes, delegator: Root | None = None) -> Metadata[S]:
    """Metadata signed by the keys that `delegator` names for its role; a root may delegate to itself.

    Raises as python-tuf.
    """
    metadata: Metadata[Any] = Metadata.from_bytes(data)
    signed = metadata.signed
    if not isinstance(signed, kind):
        raise RepositoryError(f"it is {signed.type!r} metadata")
    (delegator or metadata.signed).verify_delegate(kind.type, metadata.signed_bytes, metadata.signatures)
    return metadata


@contextmanager
def metadata_errors(what: str, cause: str = "", hint: str = "") -> Iterator[None]:
    """python-tuf's errors of invalid metadata as TrustError."""
    try:
        yield
    except (DeserializationError, RepositoryError, ValueError) as error:
        raise TrustError(f"{what}: {error}", cause=cause, hint=hint) from None


def read_root(data: bytes, where: str) -> Metadata[Root]:
    """A root that is signed by its own keys. Raises TrustError."""
    hint = "get the root again from a source that you trust"
    with metadata_errors(f"{where} is not a valid root of trust", "it is damaged or was changed", hint):
        return verify(Root, data)


def next_root(old: Metadata[Root], data: bytes, where: str) -> Metadata[Root]:
    """The root that follows `old` by one version, signed by the keys of both. Raises TrustError."""
    new, expected = read_root(data, where), old.signed.version + 1
    with metadata_errors(f"{where} does not follow from the root before it"):
        if new.signed.version != expected:
            raise RepositoryError(f"its version is {new.signed.version}, not {expected}")
        return verify(Root, data, old.signed)


def load_keys(folder: Path | None, environment: Mapping[str, str]) -> KeySet:
    """Keys and roots of a folder: the argument, else AOTFORGE_KEYS. Raises PublishError, TrustError."""
    named = environment.get(FOLDER_VARIABLE, "")
    if "\n" in named:  # a key, which must not be shown
        hint = f"{FOLDER_VARIABLE}=FOLDER with the keys as files"
        raise PublishError(f"{FOLDER_VARIABLE} names no folder", hint=hint)
    if folder is None and not named:
        raise PublishError(
            "there are no keys to sign the index with",
            cause=f"neither --keys nor {FOLDER_VARIABLE} is set",
            hint="`./dev release.keys --create FOLDER` makes new ones",
        )
    return _from_folder(folder or Path(named))


def create_keys(
    folder: Path, *, now: datetime, repository: Path, root_keys: int = 3, threshold: int = 2
) -> Path:
    """Makes the keys of a new index; returns the path of its first root.

    Raises PublishError for a folder with content, and inside of `repository`, where keys could be committed.
    """
    if not 1 <= threshold <= root_keys <= 20:
        raise PublishError(f"a threshold of {threshold} of {root_keys} root keys is not possible")
    if folder.resolve().is_relative_to(repository.resolve()):
        what = f"{folder} is inside the repository, where private keys must never be"
        raise PublishError(what, hint="choose a folder elsewhere")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hint = "choose another folder; keys are never replaced"
        raise PublishError(f"{folder} exists and is not empty", hint=hint)
    root = Root(version=1, expires=_expiry(now), consistent_snapshot=True)
    signers: dict[str, list[CryptoSigner]] = {}
    for role in ROLES:
        signers[role] = [CryptoSigner.generate_ed25519() for _ in range(root_keys if role == "root" else 1)]
        for number, signer in enumerate(signers[role], 1):
            root.add_key(signer.public_key, role)
            _write_key(folder / f"{role}-{number}.pem", signer)
    root.roles["root"].threshold = threshold
    return _write_root(folder, root, signers["root"])


def rotate_keys(folder: Path, role: str, *, now: datetime) -> Path:
    """Replaces a role's newest key; returns the path of the new root, signed by the old root keys and the
    new one.

    The old key stays in the folder: until readers have the new root, the index is signed with both.
    Raises PublishError.
    """
    if role not in ROLES:
        raise PublishError(f"{role!r} is not a role", hint=f"one of {', '.join(ROLES)}")
    _from_folder(folder)  # it is one
    with waiting_lock(folder / "roots"):  # two rotations at once would make one root
        keys = _from_folder(folder)
        old = read_root(keys.roots[-1], str(folder))
        keys.require(old.signed, ("root",))
        root = Root.from_dict(old.signed.to_dict())
        root.version += 1
        root.expires = _expiry(now)
        current = [signer.public_key.keyid for signer in keys.allowed(role, old.signed)]
        # without a current key (lost) all valid ones are revoked
        revoked = [current[0 if role == "root" else -1]] if current else list(root.roles[role].keyids)
        for keyid in revoked:
            root.revoke_key(keyid, role)
        signer = CryptoSigner.generate_ed25519()
        root.add_key(signer.public_key, role)
        number = max((number for of, number, _ in _key_files(folder) if of == role), default=0) + 1
        _write_key(folder / f"{role}-{number}.pem", signer)
        return _write_root(folder, root, [*keys.signers["root"], *([signer] if role == "root" else [])])


def _expiry(now: datetime) -> datetime:
    return (now + timedelta(days=ROOT_DAYS)).replace(microsecond=0)


def _write_root(folder: Path, root: Root, signers: Sequence[CryptoSigner]) -> Path:
    metadata = Metadata(root)
    for signer in signers:
        metadata.sign(signer, append=True)
    path = folder / "roots" / f"{root.version}.root.json"
    write_atomic(path, metadata.to_bytes())
    return path


def _write_key(path: Path, signer: CryptoSigner) -> None:
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(signer.private_bytes)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink()  # a part of a key makes the folder unusable
            raise


def _key_files(folder: Path) -> list[tuple[str, int, Path]]:
    """Role, number and path of every key file, sorted."""
    return sorted((m[1], int(m[2]), p) for p in folder.iterdir() if (m := _KEY_FILE.fullmatch(p.name)))


def _from_folder(folder: Path) -> KeySet:
    numbered = [p for p in (folder / "roots").glob("*.root.json") if p.name.split(".")[0].isdecimal()]
    roots = sorted(numbered, key=lambda path: int(path.name.split(".")[0]))
    if not roots:
        raise PublishError(
            f"{folder} has no roots/1.root.json",
            cause="it is not a folder of keys",
            hint="`./dev release.keys --create FOLDER` makes one",
        )
    signers: dict[str, tuple[CryptoSigner, ...]] = {}
    for role, _, path in _key_files(folder):
        if fault := private_file_fault(path):
            hint = f"chmod 600 {quote(str(path))}, and make a new key if others could read it"
            raise PublishError(f"{path} {fault}", hint=hint)
        signers[role] = (*signers.get(role, ()), _signer(path))
    return KeySet(roots=tuple(map(_read, roots)), signers=signers)


def _signer(path: Path) -> CryptoSigner:
    try:
        key = load_pem_private_key(_read(path), None)
    except (ValueError, TypeError):  # their texts might quote the key
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        what = f"{path} is not an Ed25519 private key in PEM without a password"
        raise PublishError(what, hint="PKCS #8, as release.keys makes them")
    return CryptoSigner(key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PublishError(f"{path}: {error.strerror}", hint="check the folder of keys") from None
