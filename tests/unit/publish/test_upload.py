"""Upload of one object, the plan of a dry run, and what an index accepts: against a store in memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from aotforge.errors import PublishError
from aotforge.publish import upload
from aotforge.publish.index import Index, IndexedFile, LocalRelease, UploadStats
from aotforge.publish.stores.store import ErrorKind, Store, StoreError
from aotforge.publish.upload import publish_errors, upload_object

NOW = datetime(2026, 5, 4, 3, 2, 1, 999, tzinfo=UTC)


class Memory:
    """Objects by name. `fault` is raised by the next put, after it was done if `done`."""

    url = "memory://it"

    def __init__(self, **objects: bytes) -> None:
        self.objects = objects
        self.fault: StoreError | None = None
        self.done = False
        self.spoil = False

    def size(self, name: str) -> int | None:
        return len(self.objects[name]) if name in self.objects else None

    def names(self, prefix: str) -> dict[str, int]:
        return {name: len(data) for name, data in self.objects.items() if name.startswith(prefix)}

    def put_if_absent(self, name: str, content: bytes) -> None:
        if self.fault is None or self.done:
            self.objects[name] = content[::-1] if self.spoil else content
        if self.fault:
            raise self.fault

    def read(self, name: str) -> Iterator[bytes]:
        data = self.objects[name]
        yield data[:2]
        yield data[2:]


def file(data: bytes, name: str = "a") -> IndexedFile:
    return IndexedFile(name=name, size=len(data), sha256=hashlib.sha256(data).hexdigest(), tar=None)


def sent(store: Memory, data: bytes = b"bytes") -> tuple[UploadStats, list[int]]:
    stats, counted = UploadStats(), list[int]()
    upload_object(cast(Store, store), "r/a", data, file(data), stats, on_bytes=counted.append)
    return stats, counted


def test_an_object_is_sent_and_read_back() -> None:
    store = Memory()
    stats, counted = sent(store)
    assert store.objects == {"r/a": b"bytes"}
    assert (stats.sent, stats.found, stats.bytes_sent, stats.bytes_read) == (["r/a"], [], 5, 5)
    assert counted == [5, 2, 3]
    assert stats.seconds_sending >= 0 and stats.seconds_reading >= 0


def test_time_is_counted_by_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 110.0, 135.0, 200.0, 201.0, 203.0])
    monkeypatch.setattr("aotforge.publish.upload.time.monotonic", lambda: next(clock))
    stats, store = UploadStats(), Memory()
    for _ in range(2):
        upload_object(cast(Store, store), "r/a", b"x", file(b"x"), stats, on_bytes=lambda count: None)
    assert (stats.seconds_sending, stats.seconds_reading) == (11, 27)


def test_an_object_that_is_there_is_only_read() -> None:
    store = Memory(**{"r/a": b"bytes"})
    stats, counted = sent(store)
    assert (stats.sent, stats.found, stats.bytes_sent, stats.bytes_read) == ([], ["r/a"], 0, 5)
    assert counted == [2, 3]


@pytest.mark.parametrize("kind", [ErrorKind.EXISTS, ErrorKind.MISSING])
def test_another_publisher_completes_the_object(kind: ErrorKind) -> None:
    store = Memory()
    store.fault, store.done = StoreError(kind, "it was there"), True
    stats, _ = sent(store)
    assert (stats.sent, stats.found, stats.bytes_sent) == ([], ["r/a"], 0)


@pytest.mark.parametrize(
    ("kind", "done"),
    [
        (ErrorKind.EXISTS, False),
        (ErrorKind.MISSING, False),
        (ErrorKind.FULL, True),
        (ErrorKind.DENIED, False),
    ],
)
def test_errors_of_the_store_are_passed_on(kind: ErrorKind, done: bool) -> None:
    store = Memory()
    store.fault, store.done = StoreError(kind, "no"), done
    with pytest.raises(StoreError, match="no"):
        sent(store)


@pytest.mark.parametrize("there", [b"other", b"byte", b"bytes and more"])
def test_other_bytes_that_are_there_are_not_replaced(there: bytes) -> None:
    store = Memory(**{"r/a": there})
    with pytest.raises(PublishError, match="memory://it/r/a exists with other bytes"):
        sent(store)
    assert store.objects == {"r/a": there}


def test_bytes_that_change_on_the_way() -> None:
    store = Memory()
    store.spoil = True
    with pytest.raises(PublishError, match="was read back with other bytes than were sent"):
        sent(store)


def test_a_stores_error_is_one_of_publishing() -> None:
    with pytest.raises(PublishError) as caught, publish_errors():
        raise StoreError(ErrorKind.FULL, "what", cause="why", hint="next")
    assert (caught.value.what, caught.value.cause, caught.value.hint) == ("what", "why", "next")


RELEASE = LocalRelease(
    name="r",
    folder=Path(),
    files=(file(b"two", "b"), file(b"bytes", "a")),
    verified=False,
    development=("why",),
)


def test_a_dry_run_plans_what_is_not_there() -> None:
    stats = UploadStats()
    upload._plan_upload(cast(Store, Memory(**{"r/b": b"two", "ra": b"of another release"})), RELEASE, stats)
    assert (stats.sent, stats.found, stats.bytes_sent) == (["r/a"], ["r/b"], 5)
    with pytest.raises(PublishError, match="memory://it/r/b exists with other bytes"):
        upload._plan_upload(cast(Store, Memory(**{"r/b": b"more"})), RELEASE, UploadStats())


def test_objects_of_another_build_below_the_releases_name() -> None:
    upload._check_unrelated(cast(Store, Memory(**{"r/a": b"", "r2/x": b""})), RELEASE)
    with pytest.raises(PublishError, match="memory://it/r/stray does not belong to this release"):
        upload._check_unrelated(cast(Store, Memory(**{"r/a": b"", "r/stray": b""})), RELEASE)


def test_an_index_with_the_release() -> None:
    """Files and releases are sorted by name; once it is in, it stays as it is."""
    before = Index(version=3, releases=())
    one = upload._add_release(before, replace(RELEASE, name="z"), NOW)
    two = upload._add_release(one, RELEASE, NOW)
    assert [release.name for release in two.releases] == ["r", "z"]
    (added, _) = two.releases
    assert [each.name for each in added.files] == ["a", "b"]
    assert (added.verified, added.development, added.published) == (
        False,
        ("why",),
        "2026-05-04T03:02:01+00:00",
    )
    assert upload._add_release(two, RELEASE, NOW.replace(year=2027)) == two


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ((file(b"two", "b"),), "other files: a$"),
        ((file(b"two", "b"), file(b"other", "a")), "other files: a$"),
        ((*RELEASE.files, file(b"", "c")), "other files: c$"),
        (tuple(file(b"", name) for name in "cde"), "other files: a, b, c and more$"),
        ((*RELEASE.files, *(file(b"", name) for name in "cde")), "other files: c, d, e$"),
    ],
)
def test_a_release_is_published_once(files: tuple[IndexedFile, ...], named: str) -> None:
    index = upload._add_release(Index(version=0, releases=()), RELEASE, NOW)
    with pytest.raises(PublishError) as caught:
        upload._add_release(index, replace(RELEASE, files=files), NOW)
    assert re.search(named, caught.value.what)


class Endless(Memory):
    """Sends an object's bytes again and again."""

    def read(self, name: str) -> Iterator[bytes]:
        for _ in range(1000):
            yield self.objects[name]
        pytest.fail("the reader takes bytes without end")


def test_an_object_without_end_is_refused() -> None:
    with pytest.raises(PublishError, match="was read back with other bytes"):
        sent(Endless())
    with pytest.raises(PublishError, match="other bytes"):
        sent(Endless(**{"r/a": b"bytes"}))
