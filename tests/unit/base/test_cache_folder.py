"""Usage of a cache folder, and the removal of what was not used for longest."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from aotforge.base.cache_folder import evict, usage

DAY = 86_400


def make_object(cache: Path, kind: str, number: int, *, days: float, size: int = 100) -> Path:
    key = hashlib.sha256(str(number).encode()).hexdigest()
    stamp = {"runtime": "build.json", "check-2": "result.json"}.get(kind, "")
    path = cache / kind / key if stamp else cache / kind / key[:2] / key
    if stamp:
        (path / "prefix").mkdir(parents=True)
        (path / "prefix" / "library").write_bytes(bytes(size))
        file = path / stamp
        file.write_text("")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
        file = path
    then = time.time() - days * DAY
    os.utime(file, (then, then))
    return path


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    recent = make_object(tmp_path, "images-1", 1, days=2)
    library = make_object(tmp_path, "runtime", 2, days=3)
    old = make_object(tmp_path, "verdicts-3", 3, days=4)
    oldest = make_object(tmp_path, "runtime", 4, days=5)
    program = make_object(tmp_path, "check-2", 5, days=6)
    done = evict(tmp_path, 250)
    assert (done.removed, done.freed, done.left) == (3, 300, 200)
    assert recent.exists()
    assert library.exists()
    assert not old.exists()
    assert not oldest.exists()
    assert not program.exists()
    assert evict(tmp_path, 250).removed == 0


def test_what_was_used_today_stays_even_above_the_limit(tmp_path: Path) -> None:
    kept = make_object(tmp_path, "images-1", 1, days=0.5)
    assert evict(tmp_path, 0).left == 100
    assert kept.exists()


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    locks = tmp_path / "images-1" / "locks"
    make_object(tmp_path, "images-1", 1, days=5)
    locks.write_text("")
    (tmp_path / "images-1" / "tmp" / "session").mkdir(parents=True)
    (tmp_path / "emulator-1" / "ab").mkdir(parents=True)
    (tmp_path / "emulator-1" / "ab" / ("c" * 64)).write_text("text")
    (tmp_path / "runtime" / ".lock").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    assert evict(tmp_path, 0).removed == 1
    gone = set(before) - set(tmp_path.rglob("*"))
    assert [len(path.name) for path in gone] == [64]
    assert "emulator-1" not in str(gone)


def test_usage_by_kind(tmp_path: Path) -> None:
    make_object(tmp_path, "images-1", 1, days=2)
    make_object(tmp_path, "images-1", 2, days=1, size=50)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(bytes(1000))
    other, images = usage(tmp_path)
    assert (other.kind, other.objects, other.size, other.collected) == ("other", 1, 1000, False)
    assert (images.kind, images.objects, images.size, images.collected) == ("images-1", 2, 150, True)
    assert images.newest - images.oldest > DAY / 2
    assert usage(tmp_path / "missing") == ()
