"""Addresses and keys that cannot be used: one clear error, and nothing secret in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aotforge.errors import PublishError, SignatureError
from aotforge.publish.session import open_for_publishing, open_reader
from aotforge.publish.stores.http import HttpReader
from aotforge.publish.stores.store import StoreError
from aotforge.release.signing import load_private_key

SECRET = "MC4CAQAwBQYDK2VwBCIEIHsecret"


def read(address: str) -> object:
    return list(HttpReader(address, sleep=lambda seconds: None).read("0.11.2b-r1/SHA256SUMS"))


@pytest.mark.parametrize(
    "use",
    [
        lambda: read(f"http://127.0.0.1:9/x?X-Amz-Signature={SECRET} and a space"),
        lambda: read(f"http://user:{SECRET}@127.0.0.1:9 0/x"),
        lambda: open_reader(f"http://user:{SECRET}@[::1/x"),
        lambda: open_for_publishing(f"s3://[{SECRET}/x"),
        *(partial(read, f"http://user:{SECRET}{sign}1@127.0.0.1:9/x") for sign in "/?#"),
    ],
)
def test_addresses(use: Callable[[], object]) -> None:
    with pytest.raises((StoreError, PublishError)) as caught:
        use()
    assert SECRET not in f"{caught.value} {vars(caught.value)}"


def test_an_endpoint_that_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"user:{SECRET}@host")
    with pytest.raises(PublishError, match="the endpoint is not valid") as caught:
        open_for_publishing("s3://bucket/prefix")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", [SECRET, f"{SECRET}\nand more", f"{SECRET}\0", SECRET * 200])
def test_a_signing_key_without_its_frame(text: str) -> None:
    """A secret store that lost the BEGIN line; it is taken for a path, which must not be shown."""
    with pytest.raises(SignatureError, match="AOTFORGE_SIGNING_KEY") as caught:
        load_private_key(None, {"AOTFORGE_SIGNING_KEY": text})
    assert SECRET not in str(caught.value)


def test_a_key_may_come_from_a_pipe() -> None:
    """`--key <(pass show key)` of a shell: the key is in no file."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    reader, writer = os.pipe()
    os.write(writer, pem)
    os.close(writer)
    try:
        assert load_private_key(Path(f"/dev/fd/{reader}"), {}).public_key() == key.public_key()
    finally:
        os.close(reader)
