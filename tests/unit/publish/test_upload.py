"""Upload of one object, the plan of a dry run, and what an index accepts: against a store in memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from aotforge.errors import PublishError
from aotforge.publish import upload
from aotforge.publish.index import Index, IndexedFile, IndexedRelease, Publication
from aotforge.publish.stores.store import ExistsError, MissingError, ObjectStore, StoreError
from aotforge.publish.upload import upload_object

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


def publication() -> Publication:
    return Publication(release="r", url="", index_version=0)


def sent(store: Memory, data: bytes = b"bytes") -> tuple[Publication, list[int]]:
    stats, counted = publication(), list[int]()
    upload_object(cast(ObjectStore, store), "r/a", data, file(data), stats, on_bytes=counted.append)
    return stats, counted


@pytest.mark.parametrize("kind", [ExistsError, MissingError])
def test_another_publisher_completes_the_object(kind: type[StoreError]) -> None:
    store = Memory()
    store.fault, store.done = kind("it was there"), True
    stats, _ = sent(store)
    assert (stats.sent, stats.found, stats.bytes_sent) == ([], ["r/a"], 0)


RELEASE = IndexedRelease(
    name="r",
    published="",
    files=(file(b"two", "b"), file(b"bytes", "a")),
    verified=False,
    development=("why",),
)


def test_a_dry_run_plans_what_is_not_there() -> None:
    stats = publication()
    upload._plan_upload(
        cast(ObjectStore, Memory(**{"r/b": b"two", "ra": b"of another release"})), RELEASE, stats
    )
    assert (stats.sent, stats.found, stats.bytes_sent) == (["r/a"], ["r/b"], 5)
    with pytest.raises(PublishError, match="memory://it/r/b exists with other bytes"):
        upload._plan_upload(
            cast(ObjectStore, Memory(**{"r/b": b"more"})),
            RELEASE,
            publication(),
        )


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
