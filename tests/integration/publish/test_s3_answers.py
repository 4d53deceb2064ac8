"""Answers of S3 that need a special moment or a special server: each once, without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ConnectionClosedError

from aotforge.publish.keys import KeySet
from aotforge.publish.stores.s3 import S3Store
from aotforge.publish.stores.store import ErrorKind, StoreError
from tests.support.publishing import make_release, publish, released_names, try_install
from tests.support.s3_stub import Answer, Fault, S3Stub, failure, tag

MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("no_pauses")


def kind(act: Callable[[], object]) -> ErrorKind:
    with pytest.raises(StoreError) as caught:
        act()
    return caught.value.kind


def answers(status: int, code: str) -> Fault:
    """An error without an effect."""
    return lambda usual: failure(status, code)


def lost(usual: Callable[[], Answer]) -> Answer:
    """The effect, and no answer."""
    usual()
    raise ConnectionClosedError(endpoint_url="http://127.0.0.1:9")


def cut(to: int) -> Fault:
    """The length of the complete body, and its first bytes only."""

    def answer(usual: Callable[[], Answer]) -> Answer:
        status, headers, body = usual()
        return status, {**headers, "content-length": str(len(body))}, body[:to]

    return answer


def test_the_stub_is_a_store(keys: KeySet, tmp_path: Path) -> None:
    stub = S3Stub()
    publish(make_release(tmp_path / "r1"), stub.store(), keys)
    assert released_names(stub.store(), keys.roots[0], tmp_path / "trust") == ("0.11.2b-r1",)


def test_a_bucket_that_answers_403_for_what_is_missing(keys: KeySet, tmp_path: Path) -> None:
    """The usual public bucket: objects may be read, not listed. The request for a newer root is answered with 403."""
    stub = S3Stub()
    publish(make_release(tmp_path / "r1"), stub.store(), keys)
    stub.missing_status = 403
    assert try_install(stub.store(), keys.roots[0], tmp_path).release == "0.11.2b-r1"
    del stub.objects["tuf/timestamp.json"]
    assert kind(lambda: try_install(stub.store(), keys.roots[0], tmp_path)) is ErrorKind.DENIED


@pytest.mark.parametrize(("conflicts", "result"), [(1, None), (4, None), (5, ErrorKind.UNAVAILABLE)])
def test_a_conflicting_request_is_repeated(conflicts: int, result: ErrorKind | None) -> None:
    stub = S3Stub()
    stub.faults["PutObject"] = [answers(409, "ConditionalRequestConflict")] * conflicts
    if result:
        assert kind(lambda: stub.store().put_if_absent("a", b"x")) is result
        assert "a" not in stub.objects
    else:
        stub.store().put_if_absent("a", b"x")
        assert stub.objects["a"] == b"x" and stub.calls["PutObject"] == conflicts + 1


def test_a_file_that_is_too_large_for_one_put() -> None:
    stub = S3Stub()
    stub.faults["PutObject"] = [answers(400, "EntityTooLarge")]
    with pytest.raises(StoreError, match="400 EntityTooLarge") as caught:
        stub.store().put_if_absent("a", b"x")
    assert caught.value.cause == "one PUT has at most 5 GiB" and caught.value.hint


def test_a_swap_whose_answer_is_lost() -> None:
    """The repeated request meets its own bytes and must not report that another publisher was quicker."""
    stub = S3Stub()
    store = stub.store()
    store.compare_and_swap("t", b"1", token=None)
    stub.faults["PutObject"] = [lost]
    store.compare_and_swap("t", b"2", token=tag(b"1"))
    assert stub.objects["t"] == b"2" and stub.calls["PutObject"] == 3
    stub.faults["PutObject"] = [lost]
    stub.objects["t"] = b"3"
    assert kind(lambda: store.compare_and_swap("t", b"4", token=tag(b"2"))) is ErrorKind.EXISTS
    assert stub.objects["t"] == b"3"


def test_a_truncated_body_is_continued() -> None:
    stub = S3Stub()
    data = bytes(range(256)) * 100
    stub.objects["a"] = data
    stub.faults["GetObject"] = [cut(1000), cut(0), cut(500)]
    assert b"".join(stub.store().read("a")) == data
    requests = [headers for operation, headers in stub.headers if operation == "GetObject"]
    assert [headers.get("range") for headers in requests] == [None, *["bytes=1000-"] * 2, "bytes=1500-"]
    assert [headers.get("if-match") for headers in requests] == [None, *[tag(data)] * 3]


def test_a_bucket_of_another_region() -> None:
    """The answer names the region, and the request is repeated there."""
    stub = S3Stub()
    stub.objects["a"] = b"data"
    stub.faults["GetObject"] = [lambda usual: (301, {"x-amz-bucket-region": "eu-west-1"}, b"")]
    assert stub.store().load("a", limit=1000) == (b"data", tag(b"data"))
    stub.faults["GetObject"] = [lambda usual: (301, {}, b"")]
    stub.faults["HeadBucket"] = [lambda usual: (301, {"x-amz-bucket-region": "eu-west-1"}, b"")] * 2
    assert stub.store().load("a", limit=1000) == (b"data", tag(b"data"))


def test_a_body_that_is_always_truncated() -> None:
    stub = S3Stub()
    stub.objects["a"] = b"x" * 100
    stub.faults["GetObject"] = [cut(0)] * 20
    assert kind(lambda: list(stub.store().read("a"))) is ErrorKind.UNAVAILABLE
    assert stub.calls["GetObject"] == 5
    assert kind(lambda: stub.store().load("a", limit=1000)) is ErrorKind.UNAVAILABLE


def test_an_object_that_is_replaced_while_it_is_read() -> None:
    """The bytes of two objects are never mixed."""
    stub = S3Stub()
    stub.objects["a"] = b"1" * 100

    def replaced(usual: Callable[[], Answer]) -> Answer:
        stub.objects["a"] = b"2" * 100
        return usual()

    stub.faults["GetObject"] = [cut(50), replaced]
    assert kind(lambda: list(stub.store().read("a"))) is ErrorKind.EXISTS


ACTIONS: dict[str, tuple[str, Callable[[S3Store], object]]] = {
    "size": ("HeadObject", lambda store: store.size("file")),
    "read": ("GetObject", lambda store: list(store.read("file"))),
    "load": ("GetObject", lambda store: store.load("file", limit=10**6)),
    "names": ("ListObjectsV2", lambda store: store.names("")),
}


@pytest.mark.parametrize(
    "answer", [(200, {}, b"<html>"), (200, {"etag": "x", "content-length": "none"}, b""), (500, {}, b"{}")]
)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_server_of_another_protocol(action: str, answer: Answer) -> None:
    """A named error, whatever its answers lack."""
    stub = S3Stub()
    operation, act = ACTIONS[action]
    stub.faults[operation] = [lambda usual: answer for _ in range(20)]
    try:
        found = act(stub.store())
    except StoreError as error:
        assert error.kind in {ErrorKind.UNAVAILABLE, ErrorKind.REFUSED} and error.cause
    else:
        assert found in (6, [b"<html>"], {})


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "body",
    [
        "<R><Error>x</Error></R>",
        "<R><ResponseMetadata>x</ResponseMetadata></R>",
        "<Error><Code>a</Code><Code>b</Code></Error>",
        "<R><EncodingType>url</EncodingType><Prefix/></R>",
        "<R><Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents></R>",
    ],
)
def test_elements_in_another_order(body: str, status: int) -> None:
    """No error of Python, wherever botocore expects text, or elements."""
    stub = S3Stub()
    stub.faults["ListObjectsV2"] = [lambda usual: (status, {}, body.encode())] * 6
    try:
        assert stub.store().names("") == {}
    except StoreError as error:
        assert error.kind in {ErrorKind.UNAVAILABLE, ErrorKind.REFUSED} and error.what


def test_a_date_of_another_century() -> None:
    stub = S3Stub()
    dates = {"last-modified": "9" * 23, "etag": "x", "content-length": "1"}
    stub.faults = {name: [lambda usual: (200, dates, b"")] for name in ("GetObject", "HeadObject")}
    assert kind(lambda: stub.store().load("a", limit=10)) is ErrorKind.UNAVAILABLE
    assert kind(lambda: stub.store().size("a")) is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize("code", ["X\nNext step: a command of theirs", "X" * 60_000, "\x85", ""])
def test_error_codes_that_are_not_words(code: str) -> None:
    stub = S3Stub()
    stub.faults["GetObject"] = [answers(400, "NoSuchThing"), answers(400, code)]
    with pytest.raises(StoreError, match=r"GetObject was answered 400 NoSuchThing$"):
        stub.store().load("a", limit=10)
    with pytest.raises(StoreError) as caught:
        stub.store().load("a", limit=10)
    assert caught.value.what == "s3://b/a: GetObject was answered 400"


def test_an_answer_without_an_etag_is_an_error_of_the_store() -> None:
    def without(usual: Callable[[], Answer]) -> Answer:
        status, headers, body = usual()
        return status, headers | {"etag": ""}, body

    stub = S3Stub()
    store = stub.store()
    store.put_if_absent("a", b"1")
    stub.faults["GetObject"] = [without] * 20
    assert kind(lambda: store.load("a", limit=MIB)) is ErrorKind.UNAVAILABLE
