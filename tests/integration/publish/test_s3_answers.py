"""Answers of S3 that need a special moment or a special server: each once, without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.publish.keys import KeySet
from aotforge.publish.stores.store import ErrorKind, StoreError
from tests.support.publishing import make_release, publish, try_install
from tests.support.s3_stub import Answer, Fault, S3Stub, failure

MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("no_pauses")


def kind(act: Callable[[], object]) -> ErrorKind:
    with pytest.raises(StoreError) as caught:
        act()
    return caught.value.kind


def answers(status: int, code: str) -> Fault:
    """An error without an effect."""
    return lambda usual: failure(status, code)


def cut(to: int) -> Fault:
    """The length of the complete body, and its first bytes only."""

    def answer(usual: Callable[[], Answer]) -> Answer:
        status, headers, body = usual()
        return status, {**headers, "content-length": str(len(body))}, body[:to]

    return answer


def test_a_bucket_that_answers_403_for_what_is_missing(keys: KeySet, tmp_path: Path) -> None:
    """The usual public bucket: objects may be read, not listed. The request for a newer root is answered
    with 403."""
    stub = S3Stub()
    publish(make_release(tmp_path / "r1"), stub.store(), keys)
    stub.missing_status = 403
    assert try_install(stub.store(), keys.roots[0], tmp_path).release == "0.11.2b-r1"
    del stub.objects["tuf/timestamp.json"]
    assert kind(lambda: try_install(stub.store(), keys.roots[0], tmp_path)) is ErrorKind.DENIED


@pytest.mark.parametrize(
    ("status", "code", "expected", "cause"),
    [
        (409, "ConditionalRequestConflict", ErrorKind.EXISTS, "another publisher writes"),
        (400, "EntityTooLarge", ErrorKind.REFUSED, "one PUT has at most 5 GiB"),
        (403, "SignatureDoesNotMatch", ErrorKind.DENIED, "refuses these credentials"),
        (501, "NotImplemented", ErrorKind.REFUSED, "no conditional writes"),
        (400, "QuotaExceeded", ErrorKind.FULL, "no space left"),
        (418, "X\nNext step: a command of theirs", ErrorKind.REFUSED, ""),
    ],
)
def test_answers_to_a_put(status: int, code: str, expected: ErrorKind, cause: str) -> None:
    stub = S3Stub()
    stub.faults["PutObject"] = [answers(status, code)]
    with pytest.raises(StoreError) as caught:
        stub.store().put_if_absent("a", b"x")
    assert caught.value.kind is expected and cause in caught.value.cause
    named = f" {code}" if code.isalpha() else ""
    assert caught.value.what == f"s3://b/a: PutObject was answered {status}{named}"
    assert "a" not in stub.objects


def test_a_truncated_body_is_continued() -> None:
    stub = S3Stub()
    data = bytes(range(256)) * 100
    stub.objects["a"] = data
    stub.faults["GetObject"] = [cut(1000), cut(0), cut(500)]
    assert b"".join(stub.store().read("a")) == data
    requests = [headers for operation, headers in stub.headers if operation == "GetObject"]
    assert [headers.get("range") for headers in requests] == [None, *["bytes=1000-"] * 2, "bytes=1500-"]


def test_a_body_that_is_always_truncated() -> None:
    stub = S3Stub()
    stub.objects["a"] = b"x" * 100
    stub.faults["GetObject"] = [cut(0)] * 20
    assert kind(lambda: list(stub.store().read("a"))) is ErrorKind.UNAVAILABLE
    assert stub.calls["GetObject"] == 5
    assert kind(lambda: stub.store().load("a", limit=1000)) is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize("body", ["<html>", ""])
def test_another_kind_of_server(body: str) -> None:
    stub = S3Stub()
    stub.faults["ListObjectsV2"] = [lambda usual: (400, {}, body.encode())] * 6
    assert kind(lambda: stub.store().names("")) in {ErrorKind.UNAVAILABLE, ErrorKind.REFUSED}
