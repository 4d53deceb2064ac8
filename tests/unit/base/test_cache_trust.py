"""Who can replace a cache: owners, modes and links of the folder and of everything above it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.base.cache_trust import DEFAULT_ACL, check_cache, replaceable
from aotforge.base.files import make_folders
from aotforge.cli.command import cache_folder
from aotforge.errors import CacheError
from tests.support.acl import set_acl

OTHER = 64042
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


def _give(path: Path) -> None:
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def _share_with_group(path: Path) -> None:
    os.chown(path, 0, OTHER)
    path.chmod(0o775)


@as_root
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda base: _give(base / "shared"), "shared belongs to user 64042"),
        (lambda base: (base / "shared").chmod(0o777), "shared has mode 777"),
        (lambda base: (base / "shared").chmod(0o1777), ""),
        (lambda base: _share_with_group(base / "shared"), "mode 775"),
        (lambda base: (base / "shared").chmod(0o775), ""),
        (lambda base: set_acl(base / "shared", OTHER), "mode 775"),
        (lambda base: set_acl(base / "shared", OTHER, 5), ""),
        (lambda base: set_acl(base / "shared", OTHER, attribute=DEFAULT_ACL), ""),
        (lambda base: None, ""),
    ],
)
def test_folders_above(tmp_path: Path, prepare: Callable[[Path], object], message: str) -> None:
    """The owner of a folder above could exchange the cache between its check and its use."""
    cache = tmp_path / "shared" / "inner" / "cache"
    cache.mkdir(parents=True)
    prepare(tmp_path)
    assert message in replaceable(cache) if message else replaceable(cache) == ""
    if message:
        with pytest.raises(CacheError, match=message):
            check_cache(cache)


@as_root
def test_a_link_of_another_user_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "link").symlink_to(tmp_path / "real")
    (tmp_path / "own").symlink_to("sticky/link")
    assert replaceable(tmp_path / "own" / "cache") == replaceable(sticky / "link") == ""
    _give(sticky / "link")
    for path in (tmp_path / "own" / "cache", sticky / "link"):
        assert f"{sticky / 'link'} belongs to user {OTHER}" in replaceable(path)


@as_root
def test_commands_refuse_a_cache_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command with a cache: `install` keeps downloads and the last seen indexes there."""
    monkeypatch.setenv("AOTFORGE_CACHE", str(tmp_path / "cache"))
    assert cache_folder(None) == tmp_path / "cache"
    (tmp_path / "cache").mkdir()
    _give(tmp_path / "cache")
    for given in (None, str(tmp_path / "cache")):
        with pytest.raises(CacheError, match="belongs to user 64042"):
            cache_folder(given)


def test_a_missing_cache_in_a_folder_of_all_is_made_at_once(tmp_path: Path) -> None:
    """Another user made it after the check; elsewhere a command that is refused leaves none behind."""
    cache_folder(str(tmp_path / "own"))
    assert not (tmp_path / "own").exists()
    tmp_path.chmod(0o1777)
    made = cache_folder(str(tmp_path / "shared/cache"))
    assert [path.stat().st_mode & 0o7777 for path in (made, made.parent)] == [0o755, 0o755]


def test_an_acl_for_new_entries(tmp_path: Path) -> None:
    """Folders that are made in a cache would get it, whatever the umask."""
    set_acl(tmp_path, OTHER, 5, attribute=DEFAULT_ACL)
    check_cache(tmp_path)
    set_acl(tmp_path, OTHER, attribute=DEFAULT_ACL)
    with pytest.raises(CacheError, match="has an ACL that lets other users write to new files in it"):
        check_cache(tmp_path)
    made = tmp_path / "a" / "cache"
    make_folders(made)
    (made / "entry").mkdir()
    assert [path.stat().st_mode & 0o022 for path in (made, made / "entry")] == [0, 0]
    check_cache(made)
