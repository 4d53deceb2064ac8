"""Answers of S3 that need a special moment or a special server: each once, most without a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aotforge.publish.keys import KeySet
from aotforge.publish.stores.reading import TransientError
from aotforge.publish.stores.s3 import S3Store
from aotforge.publish.stores.store import DeniedError, ExistsError, StoreError
from tests.support.publishing import make_release, publish, try_install
from tests.support.s3 import Server, Trouble, answer, failure, start_of

pytestmark = pytest.mark.usefixtures("no_pauses")


def kind(act: Callable[[], object]) -> type[StoreError]:
    with pytest.raises(StoreError) as caught:
        act()
    return type(caught.value)


def without_server(act: Callable[[int, Any], Any]) -> tuple[S3Store, Trouble]:
    """A store whose requests are answered by `act`, from their numbers."""
    store = Server(url="http://127.0.0.1:9").store("b", prefix="")
    return store, Trouble(store, act)


def cut(data: bytes, lengths: Sequence[int]) -> Callable[[int, Any], Any]:
    """Answers with the length of the complete body and these many of its bytes, at last with all."""

    def act(number: int, request: Any) -> Any:
        start = start_of(request)
        body = data[start:]
        sent = body[: lengths[number - 1]] if number <= len(lengths) else body
        return answer(206 if start else 200, sent, content_length=str(len(body)), etag='"data"')

    return act


def test_a_bucket_that_answers_403_for_what_is_missing(keys: KeySet, server: Server, tmp_path: Path) -> None:
    """The usual public bucket: objects may be read, not listed. The request for a newer root is answered
    with 403."""
    bucket = server.bucket()
    store = server.store(bucket)
    publish(make_release(tmp_path / "r1"), store, keys)

    def act(number: int, request: Any) -> Any:
        found = store._client._endpoint.http_session.send(request)
        return failure(403, "AccessDenied") if found.status_code == 404 else found

    Trouble(store, act)
    assert try_install(store, keys.roots[0], tmp_path).release == "0.11.2b-r1"
    server.client().delete_object(Bucket=bucket, Key="aot/tuf/timestamp.json")
    assert kind(lambda: try_install(store, keys.roots[0], tmp_path)) is DeniedError


@pytest.mark.parametrize(
    ("status", "code", "expected", "cause"),
    [
        (409, "ConditionalRequestConflict", ExistsError, "another publisher writes"),
        (400, "EntityTooLarge", StoreError, "one PUT has at most 5 GiB"),
        (403, "SignatureDoesNotMatch", DeniedError, "refuses these credentials"),
        (501, "NotImplemented", StoreError, "no conditional writes"),
        (400, "QuotaExceeded", StoreError, "no space left"),
        (418, "X\nNext step: a command of theirs", StoreError, ""),
    ],
)
def test_answers_to_a_put(status: int, code: str, expected: type[StoreError], cause: str) -> None:
    store, _ = without_server(lambda number, request: failure(status, code))
    with pytest.raises(StoreError) as caught:
        store.put_if_absent("a", b"x")
    assert type(caught.value) is expected and cause in caught.value.cause
    named = f" {code}" if code.isalpha() else ""
    assert caught.value.what == f"s3://b/a: PutObject was answered {status}{named}"


def test_a_truncated_body_is_continued() -> None:
    data = bytes(range(256)) * 100
    store, seen = without_server(cut(data, [1000, 0, 500]))
    assert b"".join(store.read("a")) == data
    assert seen.starts == [0, 1000, 1000, 1500]


def test_a_body_that_is_always_truncated() -> None:
    store, seen = without_server(cut(b"x" * 100, [0] * 20))
    assert kind(lambda: list(store.read("a"))) is TransientError
    assert seen.names == ["GetObject"] * 5
    assert kind(lambda: store.load("a", limit=1000)) is TransientError


@pytest.mark.parametrize("body", ["<html>", ""])
def test_another_kind_of_server(body: str) -> None:
    store, _ = without_server(lambda number, request: answer(400, body.encode()))
    assert kind(lambda: store.names("")) is StoreError
