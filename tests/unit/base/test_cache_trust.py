"""Caches of other users, and caches that every user can write: one warning line, or an error with
AOTFORGE_STRICT."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aotforge.base.cache_folder import check_cache_name
from aotforge.cli.values import cache_folder, named_cache
from aotforge.errors import CacheError
from vgpu.cache import cache_fault, check_cache

OTHER = 64042
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("vgpu.cache._warned", set[Path]())
    monkeypatch.delenv("AOTFORGE_STRICT", raising=False)
    (folder := tmp_path / "cache folder").mkdir()
    return folder


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o775, 0o2775, 0o1777])
def test_modes_without_a_fault(cache: Path, mode: int) -> None:
    """A folder of a group is what ccache's manual recommends; /tmp has the sticky bit."""
    cache.chmod(mode)
    assert cache_fault(cache) == "" == cache_fault(cache / "missing")


@as_root
def test_nothing_but_the_folder_itself_counts(cache: Path) -> None:
    (cache / "images-1").mkdir()
    (cache / "images-1").chmod(0o777)
    os.chown(cache / "images-1", OTHER, OTHER)
    os.chown(cache.parent, OTHER, OTHER)
    os.chown(cache, 0, OTHER)
    cache.chmod(0o775)
    cache.parent.chmod(0o777)
    (link := cache.parent / "link").symlink_to(cache)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert cache_fault(cache) == "" == cache_fault(link)


@as_root
def test_a_cache_of_another_user(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(cache, OTHER, OTHER)
    assert cache_fault(cache) == f"belongs to user {OTHER}, not to user 0"
    monkeypatch.setenv("AOTFORGE_STRICT", "1")
    with pytest.raises(CacheError, match=f"cache folder {cache} belongs to user {OTHER}") as caught:
        check_cache(cache)
    assert caught.value.hint.startswith(f"chown -R 0 '{cache}'")
    os.chown(cache, 0, 0)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert cache_fault(cache) == "", "root's"


def test_one_warning_per_folder(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.chmod(0o777)
    for _ in range(2):
        assert cache_folder(str(cache)) == cache
        check_cache(cache)
    expected = f"warning: cache folder {cache} has mode 777: every user can write to it\n"
    assert capsys.readouterr() == ("", expected)
    (other := cache.parent / "other").mkdir()
    other.chmod(0o777)
    check_cache(other)
    assert capsys.readouterr().err == expected.replace(str(cache), str(other))


def test_strict_refuses(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.chmod(0o777)
    monkeypatch.setenv("AOTFORGE_STRICT", "1")
    for _ in range(2):
        with pytest.raises(CacheError, match=f"cache folder {cache} has mode 777") as caught:
            cache_folder(str(cache))
        assert caught.value.hint.startswith(f"chmod o-w '{cache}', or choose another one with --cache")
    assert named_cache(str(cache)) == cache
    cache.chmod(0o775)
    assert cache_folder(str(cache)) == cache


def test_a_missing_cache_is_not_made(cache: Path) -> None:
    assert cache_folder(str(cache / "new")) == cache / "new"
    assert not (cache / "new").exists()


@pytest.mark.parametrize("part", ["a;b", 'a"b', "a$b", "a\nb", "a\\b", "a\x1bb", "a:b"])
def test_paths_that_build_tools_interpret_are_refused_by_name(part: str) -> None:
    with pytest.raises(CacheError, match="in its path"):
        check_cache_name(Path("/tmp") / part)


@pytest.mark.parametrize("part", ["with space", "it's", "í", "[ab]*"])
def test_other_paths_are_not(part: str) -> None:
    check_cache_name(Path("/tmp") / part)
