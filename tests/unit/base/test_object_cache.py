"""Objects of a local cache folder and of shared places behind it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aotforge.base.files import write_atomic
from aotforge.base.object_cache import DamagedObjectError, ObjectCache, SharedObjects

KEY, OTHER = "ab" * 32, "cd" * 32
DAY = 86400


@dataclass
class Shared(SharedObjects):
    """Shared places that have `objects`, and remember the calls."""

    objects: dict[str, bytes] = field(default_factory=dict)
    expected: list[str] = field(default_factory=list)
    rejected: list[tuple[str, str, str]] = field(default_factory=list)
    offered: dict[str, bytes] = field(default_factory=dict)

    def expect(self, kind: str, keys: Iterable[str]) -> None:
        self.expected += keys

    def load(self, kind: str, key: str) -> bytes | None:
        return self.objects.get(key)

    def reject(self, kind: str, key: str, reason: str) -> None:
        self.rejected.append((kind, key, reason))

    def wants(self, kind: str, key: str) -> bool:
        return True

    def offer(self, kind: str, key: str, data: bytes) -> None:
        self.offered[key] = data


def parse(data: bytes, key: str) -> str:
    if not data.startswith(key.encode()):
        raise DamagedObjectError("is of another key")
    return data.decode()


def opened(folder: Path, shared: Shared) -> ObjectCache[str]:
    return ObjectCache(cache=folder, kind="texts-1", parse=parse, write=write_atomic, shared=shared)


def test_what_a_shared_place_has_is_kept(tmp_path: Path) -> None:
    shared = Shared(objects={KEY: KEY.encode()})
    assert opened(tmp_path, shared).load(KEY) == KEY
    assert opened(tmp_path, Shared()).load(KEY) == KEY
    assert opened(tmp_path, shared).load(OTHER) is None


def test_only_what_is_not_here_is_expected(tmp_path: Path) -> None:
    shared = Shared()
    opened(tmp_path, shared).store(KEY, KEY.encode())
    opened(tmp_path, shared).expect([KEY, OTHER])
    assert shared.expected == [OTHER]


def test_a_wrong_shared_object_is_rejected_and_not_kept(tmp_path: Path) -> None:
    shared = Shared(objects={KEY: b"of another key"})
    assert opened(tmp_path, shared).load(KEY) is None
    assert shared.rejected == [("texts-1", KEY, "is of another key")]
    assert not list(tmp_path.rglob(KEY))


def test_a_damaged_object_is_replaced_by_the_shared_one(tmp_path: Path) -> None:
    opened(tmp_path, Shared()).store(KEY, b"damaged")
    with pytest.raises(DamagedObjectError):
        opened(tmp_path, Shared()).load(KEY)
    assert opened(tmp_path, Shared(objects={KEY: KEY.encode()})).load(KEY) == KEY
    assert opened(tmp_path, Shared()).load(KEY) == KEY


def test_only_intact_objects_are_offered(tmp_path: Path) -> None:
    write_atomic(tmp_path / "texts-1" / "ab" / KEY, b"damaged")
    write_atomic(tmp_path / "texts-1" / "cd" / OTHER, OTHER.encode())
    shared = Shared()
    with pytest.raises(DamagedObjectError):
        opened(tmp_path, shared).load(KEY)
    opened(tmp_path, shared).load(OTHER)
    assert shared.offered == {OTHER: OTHER.encode()}


def test_a_use_is_recorded(tmp_path: Path) -> None:
    cache = opened(tmp_path, Shared())
    cache.store(KEY, KEY.encode())
    before = cache.path(KEY).stat().st_mtime - DAY
    os.utime(cache.path(KEY), (before, before))
    cache.load(KEY)
    assert cache.path(KEY).stat().st_mtime > before + DAY / 2
