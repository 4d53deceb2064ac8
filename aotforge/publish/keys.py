"""Signing keys, Ed25519, one folder: `ROLE-N.pem` (PKCS #8, readable by their owner alone) and `roots/N.root.json`, the signed history of which
keys count. They never enter a repository or a store; what everyone gets is the newest root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root
from tuf.api.serialization import DeserializationError

from aotforge.base.files import output_errors, write_atomic
from aotforge.errors import PublishError, TrustError

ROLES = ("root", "targets", "snapshot", "timestamp")
ONLINE = ROLES[1:]
"""Roles that every publication signs with; root's keys are needed for rotation alone and belong offline."""

ROOT_DAYS = 365
FOLDER_VARIABLE = "AOTFORGE_KEYS"
ROOT_VARIABLE = "AOTFORGE_ROOT"
_KEY_VARIABLE = "AOTFORGE_KEY_{}"
_KEY_FILE = re.compile(r"(root|targets|snapshot|timestamp)-([0-9]+)\.pem")


@dataclass(frozen=True, kw_only=True)
class KeySet:
    """Private keys by role, newest last, and the roots that are known, oldest first, as signed bytes."""

    roots: tuple[bytes, ...]
    signers: Mapping[str, tuple[CryptoSigner, ...]] = field(repr=False)

    def allowed(self, role: str, root: Root) -> list[CryptoSigner]:
        """Our keys that count for a role by this root."""
        return [s for s in self.signers.get(role, ()) if s.public_key.keyid in root.roles[role].keyids]

    def require(self, root: Root, roles: Sequence[str] = ONLINE) -> None:
        """Raises PublishError when our keys do not reach a role's threshold."""
        for role in roles:
            wanted = root.roles[role].threshold
            if (have := len(self.allowed(role, root))) < wanted:
                raise PublishError(
                    f"{have} of our keys count for {role!r} by root {root.version}, {wanted} are needed",
                    cause="the key is missing, or another one has taken its place since",
                    hint=f"name the folder with the keys (--keys, {FOLDER_VARIABLE}) or set {_KEY_VARIABLE.format(role.upper())}",
                )


def read_root(data: bytes, where: str) -> Metadata[Root]:
    """A root that is signed by its own keys. Raises TrustError."""
    try:
        metadata = Metadata[Root].from_bytes(data)
        if not isinstance(metadata.signed, Root):
            raise RepositoryError(f"it is {metadata.signed.type!r} metadata")
        metadata.signed.verify_delegate("root", metadata.signed_bytes, metadata.signatures)
    except (DeserializationError, RepositoryError, ValueError) as error:
        raise TrustError(
            f"{where} is no root of trust: {error}",
            cause="it is damaged or was changed",
            hint="get the root again, by a way that you trust",
        ) from None
    return metadata


def next_root(old: Metadata[Root], data: bytes, where: str) -> Metadata[Root]:
    """The root that follows `old` by one version, signed by both's keys. Raises TrustError."""
    new = read_root(data, where)
    try:
        if new.signed.version != old.signed.version + 1:
            raise RepositoryError(f"its version is {new.signed.version}, not {old.signed.version + 1}")
        old.signed.verify_delegate("root", new.signed_bytes, new.signatures)
    except RepositoryError as error:
        raise TrustError(f"{where} does not follow from the root before it: {error}") from None
    return new


def load_keys(folder: Path | None, environment: Mapping[str, str]) -> KeySet:
    """Keys from a folder (the argument, else AOTFORGE_KEYS), or else from AOTFORGE_KEY_<ROLE> (PEM text) with the root that
    AOTFORGE_ROOT names. Raises PublishError, TrustError.
    """
    if folder is None and FOLDER_VARIABLE in environment:
        if "\n" in environment[FOLDER_VARIABLE]:  # a key, which must not be shown
            raise PublishError(
                f"{FOLDER_VARIABLE} names no folder", hint=f"PEM text belongs in {_KEY_VARIABLE.format('TARGETS')} and its like"
            )  # fmt: skip
        folder = Path(environment[FOLDER_VARIABLE])
    if folder is not None:
        return _from_folder(folder)
    texts = {role: environment.get(_KEY_VARIABLE.format(role.upper()), "") for role in ROLES}
    if not any(texts.values()) or ROOT_VARIABLE not in environment:
        raise PublishError(
            "there are no keys to sign the index with",
            hint=f"--keys FOLDER or {FOLDER_VARIABLE}; or AOTFORGE_KEY_TARGETS, _SNAPSHOT and _TIMESTAMP with {ROOT_VARIABLE}; "
            "`invoke release.keys --create FOLDER` makes new ones",
        )
    signers = {
        role: (_signer(text.encode(), _KEY_VARIABLE.format(role.upper())),)
        for role, text in texts.items()
        if text
    }
    return KeySet(roots=(_read(Path(environment[ROOT_VARIABLE])),), signers=signers)


def create_keys(
    folder: Path, *, now: datetime, repository: Path, root_keys: int = 3, threshold: int = 2
) -> Path:
    """Makes the keys of a new index and returns the path of its first root. Raises PublishError when there are keys already, and inside
    of `repository`: one `git add` too many would give them away.
    """
    if not 1 <= threshold <= root_keys <= 20:
        raise PublishError(f"a threshold of {threshold} of {root_keys} root keys is not possible")
    if folder.resolve().is_relative_to(repository.resolve()):
        raise PublishError(
            f"{folder} is inside the repository, where private keys must never be",
            hint="choose a folder elsewhere",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PublishError(
            f"{folder} exists and is not empty", hint="choose another folder; keys are never replaced"
        )
    signers = {
        role: [CryptoSigner.generate_ed25519() for _ in range(root_keys if role == "root" else 1)]
        for role in ROLES
    }
    root = Root(version=1, expires=now + timedelta(days=ROOT_DAYS), consistent_snapshot=True)
    for role, made in signers.items():
        for signer in made:
            root.add_key(signer.public_key, role)
    root.roles["root"].threshold = threshold
    for role, made in signers.items():
        for number, signer in enumerate(made, 1):
            _write_key(folder / f"{role}-{number}.pem", signer)
    return _write_root(folder, root, signers["root"])


def rotate_keys(folder: Path, role: str, *, now: datetime) -> Path:
    """A new key in the place of a role's newest one and a root that says so, signed by the old root keys and the new; returns its path.

    The old key stays in the folder: until every reader has the new root, the index is signed with both. Raises PublishError.
    """
    if role not in ROLES:
        raise PublishError(f"{role!r} is no role", hint=f"one of {', '.join(ROLES)}")
    keys = _from_folder(folder)
    old = read_root(keys.roots[-1], str(folder))
    keys.require(old.signed, ("root",))
    root = Root.from_dict(old.signed.to_dict())
    root.version += 1
    root.expires = (now + timedelta(days=ROOT_DAYS)).replace(microsecond=0)
    current = keys.allowed(role, old.signed)
    if current:
        root.revoke_key(current[0 if role == "root" else -1].public_key.keyid, role)
    else:  # lost: all that counted before goes
        for keyid in list(root.roles[role].keyids):
            root.revoke_key(keyid, role)
    signer = CryptoSigner.generate_ed25519()
    root.add_key(signer.public_key, role)
    numbers = [int(m[2]) for p in folder.iterdir() if (m := _KEY_FILE.fullmatch(p.name)) and m[1] == role]
    _write_key(folder / f"{role}-{max(numbers, default=0) + 1}.pem", signer)
    return _write_root(folder, root, [*keys.signers["root"], *([signer] if role == "root" else [])])


def _write_root(folder: Path, root: Root, signers: Sequence[CryptoSigner]) -> Path:
    root.expires = root.expires.replace(microsecond=0)
    metadata = Metadata(root)
    for signer in signers:
        metadata.sign(signer, append=True)
    path = folder / "roots" / f"{root.version}.root.json"
    write_atomic(path, metadata.to_bytes())
    return path


def _write_key(path: Path, signer: CryptoSigner) -> None:
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(signer.private_bytes)
            file.flush()
            os.fsync(file.fileno())


def _from_folder(folder: Path) -> KeySet:
    numbered = [p for p in (folder / "roots").glob("*.root.json") if p.name.split(".")[0].isdecimal()]
    roots = sorted(numbered, key=lambda path: int(path.name.split(".")[0]))
    if not roots:
        raise PublishError(
            f"{folder} has no roots/1.root.json",
            cause="it is no folder of keys",
            hint="`invoke release.keys --create FOLDER` makes one",
        )
    signers: dict[str, list[CryptoSigner]] = {}
    files = [(m[1], int(m[2]), path) for path in folder.iterdir() if (m := _KEY_FILE.fullmatch(path.name))]
    for role, _, path in sorted(files):
        if path.stat().st_mode & 0o077:
            raise PublishError(
                f"{path} can be read by others than its owner",
                hint=f"chmod 600 {path}, and think of a new key",
            )
        signers.setdefault(role, []).append(_signer(_read(path), str(path)))
    return KeySet(
        roots=tuple(map(_read, roots)), signers={role: tuple(made) for role, made in signers.items()}
    )


def _signer(pem: bytes, where: str) -> CryptoSigner:
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):  # their texts might quote the key
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise PublishError(
            f"{where} is no Ed25519 private key in PEM without a password",
            hint="PKCS #8, as release.keys makes them",
        )
    return CryptoSigner(key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PublishError(f"{path}: {error.strerror}", hint="check the folder of keys") from None
