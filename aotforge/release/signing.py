"""Ed25519 signatures (RFC 8032): of SHA256SUMS, and of the provenance in DSSE and for Sigstore."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from aotforge.base.files import private_file_fault
from aotforge.errors import SignatureError
from aotforge.formats.untrusted_file import parse_json

KEY_VARIABLE = "AOTFORGE_SIGNING_KEY"
"""Environment variable: the private key as PEM text, or the path of a file with it."""

_KEY_BYTES = 65536
_ALTERED = "it was altered, or another key signed it"
_DO_NOT_USE = "compare the key with the one that the publisher announces; do not use these files"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_MAKE = "make one with `openssl genpkey -algorithm ed25519 -out key.pem`"


def load_private_key(path: Path | None, environment: Mapping[str, str]) -> Ed25519PrivateKey:
    """The key in `path`, else the one that AOTFORGE_SIGNING_KEY holds or names. Raises SignatureError."""
    text = environment.get(KEY_VARIABLE, "")
    if path is None and "-----BEGIN" in text:
        where, data = f"the environment variable {KEY_VARIABLE}", text.encode("utf-8")
    elif path is not None:
        where, data = str(path), _read_private(path, str(path))
    elif text:
        where = f"the file that {KEY_VARIABLE} names"
        data = _read_private(Path(text), where)  # the text is not shown: it may be a key in an unknown form
    else:
        raise SignatureError(
            "no signing key was given",
            cause=f"neither --key nor {KEY_VARIABLE} names one",
            hint=f"{_MAKE} and keep it outside of the repository; "
            "--unsigned makes a release that cannot be verified",
        )
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        cause = "not PEM, damaged, or protected by a password"
        raise SignatureError(f"{where} holds no valid private key", cause=cause, hint=_MAKE) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(f"the key in {where} is not an Ed25519 key", hint=_MAKE)
    return key


def load_public_key(path: Path) -> Ed25519PublicKey:
    """A public key in PEM. Raises SignatureError."""
    try:
        key = serialization.load_pem_public_key(_read(path))
    except (ValueError, UnsupportedAlgorithm) as error:
        hint = "openssl pkey -in key.pem -pubout -out key.pub writes one"
        raise SignatureError(f"{path} holds no valid public key", hint=hint) from error
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureError(f"the key in {path} is not an Ed25519 key", hint=_MAKE)
    return key


def sign_sums(sums: bytes, key: Ed25519PrivateKey) -> bytes:
    """The detached signature over the bytes of SHA256SUMS: 64 bytes in base64, one line."""
    return base64.b64encode(key.sign(sums)) + b"\n"


def check_sums(sums: bytes, signature: bytes, key: Ed25519PublicKey) -> None:
    """Raises SignatureError when the signature is not this key's over exactly these bytes."""
    try:
        key.verify(base64.b64decode(signature.strip(), validate=True), sums)
    except (InvalidSignature, binascii.Error, ValueError) as error:
        what = "SHA256SUMS.sig is not this key's signature of SHA256SUMS"
        raise SignatureError(what, cause=_ALTERED, hint=_DO_NOT_USE) from error


def sign_statement(statement: bytes, key: Ed25519PrivateKey) -> bytes:
    """The DSSE envelope around an in-toto statement."""
    envelope = Envelope(payload=statement, payload_type=PAYLOAD_TYPE, signatures={})
    envelope.sign(CryptoSigner(key))
    return (json.dumps(envelope.to_dict(), indent=1, sort_keys=True) + "\n").encode("utf-8")


def sigstore_bundle(envelope: bytes, key: Ed25519PublicKey) -> bytes:
    """The envelope as a Sigstore bundle without certificate; its verifier has the publisher's key."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    hint = base64.b64encode(hashlib.sha256(der).digest()).decode("ascii")
    bundle = {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        "dsseEnvelope": parse_json(envelope),
    }
    return (json.dumps(bundle, indent=1, sort_keys=True) + "\n").encode("utf-8")


def open_statement(envelope: bytes, key: Ed25519PublicKey) -> bytes:
    """The statement inside an envelope that `key` signed. Raises SignatureError."""
    try:
        opened = Envelope.from_dict(parse_json(envelope))
        if opened.payload_type != PAYLOAD_TYPE:
            raise ValueError(f"payload type {opened.payload_type}")
        opened.verify([SSlibKey.from_crypto(key)], 1)
    except (VerificationError, ValueError, KeyError, TypeError) as error:
        what = f"the provenance statement is not signed by this key: {error}"
        raise SignatureError(what, cause=_ALTERED, hint=_DO_NOT_USE) from error
    payload: bytes = opened.payload
    return payload


def _read_private(path: Path, named: str) -> bytes:
    data = _read(path, named)
    if fault := private_file_fault(path):
        raise SignatureError(
            f"the signing key in {named} {fault}",
            cause="a signature by a key that others can read proves nothing",
            hint="chmod 600 the file, and make a new key if others could read it",
        )
    return data


def _read(path: Path, named: str = "") -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_KEY_BYTES)  # a larger one is not valid
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a valid path"
        hint = "name the key's file with --key"
        raise SignatureError(f"{named or path} cannot be read: {reason}", hint=hint) from None
