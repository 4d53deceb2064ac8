"""Answers of S3 that need a special moment or a special server: each once, without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ETree

import pytest
from botocore.exceptions import ConnectionClosedError

from aotforge.publish.keys import KeySet
from aotforge.publish.stores import s3_parts
from aotforge.publish.stores.reading import Pace
from aotforge.publish.stores.s3 import S3Store
from aotforge.publish.stores.store import ErrorKind, Guarantees, StoreError
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


@pytest.mark.parametrize("size", [10, 6 * MIB])
@pytest.mark.parametrize(("conflicts", "result"), [(1, None), (4, None), (5, ErrorKind.UNAVAILABLE)])
def test_a_conflicting_request_is_repeated(size: int, conflicts: int, result: ErrorKind | None) -> None:
    stub = S3Stub()
    operation = "PutObject" if size < MIB else "CompleteMultipartUpload"
    stub.faults[operation] = [answers(409, "ConditionalRequestConflict")] * conflicts
    data = b"x" * size
    if result:
        assert kind(lambda: stub.store().put_if_absent("a", data)) is result
        assert "a" not in stub.objects
    else:
        stub.store().put_if_absent("a", data)
        assert stub.objects["a"] == data and stub.calls[operation] == conflicts + 1


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


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("body", [b"", b"<Error><Code>PermanentRedirect</Code></Error>"])
def test_redirects_without_end(status: int, body: bytes) -> None:
    """botocore requests the bucket's region, and did so 80 times where that answer redirects as well."""
    stub = S3Stub()
    again: list[Fault] = [lambda usual: (status, {"location": "http://127.0.0.1:9/x"}, body)]
    stub.faults = {"GetObject": again * 100, "HeadBucket": again * 200, "HeadObject": again * 100}
    assert kind(lambda: stub.store().load("a", limit=1000)) is ErrorKind.REFUSED
    assert kind(lambda: list(stub.store().read("a"))) is ErrorKind.REFUSED
    assert kind(lambda: stub.store().size("a")) is ErrorKind.REFUSED
    assert sum(stub.calls.values()) <= 6, stub.calls


def test_a_bucket_of_another_region() -> None:
    """The answer names the region, and the request is repeated there."""
    stub = S3Stub()
    stub.objects["a"] = b"data"
    stub.faults["GetObject"] = [lambda usual: (301, {"x-amz-bucket-region": "eu-west-1"}, b"")]
    assert stub.store().load("a", limit=1000) == (b"data", tag(b"data"))
    stub.faults["GetObject"] = [lambda usual: (301, {}, b"")]
    stub.faults["HeadBucket"] = [lambda usual: (301, {"x-amz-bucket-region": "eu-west-1"}, b"")] * 2
    assert stub.store().load("a", limit=1000) == (b"data", tag(b"data"))


def test_a_length_below_zero() -> None:
    def less(usual: Callable[[], Answer]) -> Answer:
        return 200, {"content-length": "-5", "etag": tag(b"data")}, b""

    stub = S3Stub()
    stub.objects["a"] = b"data"
    stub.faults = {"HeadObject": [less], "GetObject": [less] * 6}
    assert kind(lambda: stub.store().size("a")) is ErrorKind.UNAVAILABLE
    assert kind(lambda: list(stub.store().read("a"))) is ErrorKind.UNAVAILABLE


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


@pytest.mark.parametrize("code", ["InvalidPart", "NoSuchUpload"])
def test_another_publisher_interferes_with_an_upload(code: str) -> None:
    """It replaced parts of the upload that both resumed, or aborted it: the upload begins anew."""
    stub = S3Stub()
    data = b"x" * 6 * MIB

    def gone(usual: Callable[[], Answer]) -> Answer:
        stub.uploads.clear()
        return failure(400 if code == "InvalidPart" else 404, code)

    stub.faults["CompleteMultipartUpload"] = [gone]
    stub.store().put_if_absent("a", data)
    assert stub.objects["a"] == data and stub.calls["CreateMultipartUpload"] == 2


def test_a_probe_whose_upload_is_gone() -> None:
    """The server removed it at the first request, whose answer was lost."""
    stub = S3Stub()
    stub.faults["AbortMultipartUpload"] = [lambda usual: failure(404, "NoSuchUpload")]
    assert stub.store().probe() == Guarantees(put=True, large=True, swap=True)
    stub.faults["AbortMultipartUpload"] = [lambda usual: failure(403, "AccessDenied")]
    assert kind(lambda: stub.store().probe()) is ErrorKind.DENIED


def test_another_publisher_completes_the_object_first() -> None:
    stub = S3Stub()

    def completed(usual: Callable[[], Answer]) -> Answer:
        stub.uploads.clear()
        stub.objects["a"] = b"theirs"
        return failure(404, "NoSuchUpload")

    stub.faults["CompleteMultipartUpload"] = [completed]
    assert kind(lambda: stub.store().put_if_absent("a", b"x" * 6 * MIB)) is ErrorKind.EXISTS
    assert stub.objects["a"] == b"theirs" and stub.calls["CompleteMultipartUpload"] == 1


@pytest.mark.parametrize(
    ("size", "parts", "call"),
    [(8 * MIB, False, "PutObject"), (8 * MIB + 1, True, "CompleteMultipartUpload")],
)
def test_one_put_where_parts_would_overwrite(
    size: int, parts: bool, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """radosgw: PUT honours conditions, the completion of an upload does not."""
    monkeypatch.setattr("aotforge.publish.stores.s3.ONE_PUT", 8 * MIB)
    stub = S3Stub()
    stub.ignored = {"CompleteMultipartUpload"}
    store = stub.store()
    found = store.probe()
    assert (found.put, found.large, found.swap) == (True, False, True)
    stub.calls.clear()
    store.put_if_absent("a", b"1" * size)
    assert stub.calls[call] == 1 and bool(stub.calls["UploadPart"]) == parts
    assert kind(lambda: store.put_if_absent("a", b"2" * size)) is ErrorKind.EXISTS
    assert stub.objects["a"] == b"1" * size


@pytest.mark.parametrize(
    ("size", "part"),
    [(160_000 * MIB, 16 * MIB), (160_000 * MIB + 1, 16 * MIB + 1), (2 << 40, (2 << 40) // 10_000 + 1)],
)
def test_a_file_has_at_most_ten_thousand_parts(
    size: int, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def put_parts(client: Any, at: Any, content: Any, *, part: int, **_: Any) -> None:
        seen.append(part)

    monkeypatch.setattr("aotforge.publish.stores.s3.put_parts", put_parts)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(size)
    S3Stub().store(part=16 * MIB).put_if_absent("large", tmp_path / "large")
    assert seen == [part] and -(-size // part) <= 10_000


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


def test_uploads_that_cannot_be_listed_when_the_object_is_complete() -> None:
    """They only take storage."""
    stub = S3Stub()
    stub.store().put_if_absent("a", b"1" * (6 * MIB))
    other = b"<R><Upload><UploadId>1</UploadId></Upload></R>"
    stub.faults["ListMultipartUploads"] = [lambda usual: usual(), lambda usual: (200, {}, other)]
    stub.store().put_if_absent("b", b"1" * (6 * MIB))
    assert len(stub.objects["b"]) == 6 * MIB and stub.calls["ListMultipartUploads"] == 4


@pytest.mark.parametrize("header", ["content-length", "etag"])
def test_an_answer_without_a_header_is_an_error_of_the_store(header: str) -> None:
    def without(usual: Callable[[], Answer]) -> Answer:
        status, headers, body = usual()
        return status, headers | {header: ""}, body

    stub = S3Stub()
    store = stub.store()
    store.put_if_absent("a", b"1")
    stub.faults["GetObject"] = [without] * 20
    assert kind(lambda: store.load("a", limit=MIB)) is ErrorKind.UNAVAILABLE


class _Endless(S3Stub):
    """Listings whose pages have `entries` and never end; a reader that takes too many of them fails."""

    def __init__(self, entries: str) -> None:
        super().__init__()
        self._entries = entries
        self.pages = 0

    def _page(self, *_: Any) -> Answer:
        self.pages += 1
        assert self.pages < 1000
        tokens = f"<NextContinuationToken>{self.pages}</NextContinuationToken><NextKeyMarker>{self.pages}</NextKeyMarker>"
        more = f"<IsTruncated>true</IsTruncated>{tokens}<NextPartNumberMarker>{self.pages}</NextPartNumberMarker>"
        return 200, {}, f"<R>{more}{self._entries}</R>".encode()

    _ListObjectsV2 = _ListMultipartUploads = _ListParts = _page  # type: ignore[assignment]


def test_names_of_a_listing_that_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_parts, "_MOST_LISTED", 100)
    stub = _Endless(f"<Contents><Key>a/{'b' * 8000}</Key><Size>1</Size></Contents>")
    with pytest.raises(StoreError, match="a listing has more than 100 entries, or names of 100 times"):
        stub.store().names("a/")
    assert stub.pages == 2


def _expanding() -> dict[str, bytes]:
    """Answers that take a parser much more memory or time than they have bytes."""
    entity = '<!DOCTYPE R [<!ENTITY a "<b/><b/>">]><R>&a;</R>'
    names = "".join(f"<a:n{number}/>" for number in range(50))
    texts = {
        "comment": "<!---->",
        "text": "x" * 9000,
        "elements": "<a/>" * 100_001,
        "depth": "<a>" * 20 + "</a>" * 20,
        "namespace": f'<b xmlns:a="{"u" * 300}">{names}</b>',
        "attributes": '<a b="" c="" d="" e="" f=""/>',
    }
    answers = {name: f"<R>{text}</R>".encode() for name, text in texts.items()}
    return answers | {"entity": entity.encode(), "utf-16": entity.encode("utf-16")}


@pytest.mark.parametrize("name", sorted(_expanding()))
def test_an_answer_that_fills_the_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's parser does not see it: where it is an error, the status counts."""
    parsed: list[bytes] = []
    parser = ETree.XMLParser

    class Parser(parser):  # type: ignore[misc, valid-type]
        def feed(self, data: bytes) -> None:
            parsed.append(data)
            super().feed(data)

    stub = S3Stub()
    store = stub.store()
    monkeypatch.setattr(ETree, "XMLParser", Parser)
    body = _expanding()[name]
    stub.faults["GetObject"] = [lambda usual: (404, {}, body)]
    assert kind(lambda: store.load("a", limit=MIB)) is ErrorKind.MISSING
    stub.faults["ListObjectsV2"] = [lambda usual: (503, {}, body)]
    assert store.names("") == {} and stub.calls["ListObjectsV2"] == 2
    parsed.clear()
    stub.faults["ListObjectsV2"] = [lambda usual: (200, {}, body), lambda usual: (300, {}, body)]
    assert kind(lambda: store.names("")) is ErrorKind.UNAVAILABLE
    assert kind(lambda: store.names("")) is ErrorKind.UNAVAILABLE
    stub.faults["PutObject"] = [lambda usual: (200, {}, body)]
    assert kind(lambda: store.put_if_absent("a", b"1")) is ErrorKind.UNAVAILABLE
    assert not parsed


def test_an_answer_that_is_longer_than_an_error() -> None:
    """A page of a listing may have 32 MiB."""
    rows = "".join(
        f"<Contents><Key>{'b' * 900}{number}</Key><Size>1</Size></Contents>" for number in range(1000)
    )
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><R xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{rows}</R>'
    )
    stub = S3Stub()
    stub.faults["ListObjectsV2"] = [lambda usual: (200, {}, body.encode())]
    assert len(stub.store().names("")) == 1000
    stub.faults["PutObject"] = [lambda usual: (200, {}, body.encode())]
    assert kind(lambda: stub.store().put_if_absent("a", b"1")) is ErrorKind.UNAVAILABLE
    stub.faults["ListObjectsV2"] = [
        lambda usual: (404, {}, f"<Error><Code>SlowDown</Code>{rows}</Error>".encode())
    ]
    assert kind(lambda: stub.store().names("")) is ErrorKind.MISSING


def test_a_listing_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_parts, "_MOST_LISTED", 100)
    stub = _Endless("<Contents><Key>a/b</Key><Size>1</Size></Contents>")
    with pytest.raises(StoreError, match="a listing has more than 100 entries"):
        stub.store().names("a/")
    stub = _Endless("<Upload><Key>other</Key><UploadId>u</UploadId></Upload>")
    with pytest.raises(StoreError, match="a listing has more than 100 entries"):
        stub.store().put_if_absent("a", b"x" * (6 * MIB))


def test_empty_pages_without_end() -> None:
    seconds = iter(range(0, 10**6, 2))
    store = S3Store(_Endless("").store()._client, "b", "", clock=lambda: float(next(seconds)))
    with pytest.raises(StoreError, match="is too slow"):
        store.names("a/")


@pytest.mark.parametrize("number", ["0", "-1", str(1 << 70)])
def test_parts_with_other_numbers_are_of_another_upload(number: str, tmp_path: Path) -> None:
    stub, data = S3Stub(), b"x" * (6 * MIB)
    (tmp_path / "file").write_bytes(data)
    rows = f"<Part><PartNumber>{number}</PartNumber><Size>0</Size><ETag>{tag(b'')}</ETag></Part>".encode()
    stub.uploads["a-9"] = {}
    stub._ListParts = lambda *_: (200, {}, b"<R>" + rows + b"</R>")  # type: ignore[method-assign]
    stub.store().put_if_absent("a", tmp_path / "file")
    assert stub.objects["a"] == data


def test_parts_that_are_listed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of the content is read once for its digest, whatever the server lists."""
    stub, data = S3Stub(), b"1" * (5 * MIB) + b"2"
    pages = 0

    def endless(usual: Callable[[], Answer]) -> Answer:
        nonlocal pages
        pages += 1
        row = f"<Part><PartNumber>1</PartNumber><Size>{5 * MIB}</Size><ETag>{tag(data[: 5 * MIB])}</ETag></Part>"
        more = f"<IsTruncated>true</IsTruncated><NextPartNumberMarker>{pages}</NextPartNumberMarker>"
        return 200, {}, f"<R>{more}{row * 10}</R>".encode()

    read: list[int] = []
    cut = s3_parts._slice

    def counted(content: Any, part: int, number: int) -> bytes:
        read.append(number)
        return cut(content, part, number)

    monkeypatch.setattr(s3_parts, "_slice", counted)
    stub.uploads = {f"a-{number}": {1: b"2" * (5 * MIB)} for number in range(20)}
    stub.uploads["a-7"] = {1: data[: 5 * MIB]}
    stub.store().put_if_absent("a", data)
    assert stub.calls["UploadPart"] == 1 and stub.calls["ListParts"] == 20 and read == [1, 2]
    stub.uploads = {f"b-{number}": {} for number in range(20)}
    stub.faults["ListParts"] = [endless] * 1000
    stub.store().put_if_absent("b", data)
    assert pages == 20 and stub.calls["UploadPart"] == 3


def test_parts_of_many_uploads_that_are_listed_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """All listings of an object's uploads have one least rate."""
    seconds = iter(range(0, 10**6, 3))
    monkeypatch.setattr(s3_parts, "Pace", lambda place: Pace(place, lambda: float(next(seconds))))
    stub = S3Stub()
    stub.uploads = {f"a-{number}": {} for number in range(90)}
    with pytest.raises(StoreError, match="a is too slow"):
        stub.store().put_if_absent("a", b"1" * (6 * MIB))
    assert stub.calls["ListParts"] < 60
