"""Who can replace a cache: owners, modes and links of the folder and of everything above it."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.base.cache_trust import (
    ACCESS_ACL,
    DEFAULT_ACL,
    _is_private,
    _unknown_users,
    _way,
    acl_grants_write,
    changeable,
    check_cache,
    check_cache_folders,
    input_fault,
    is_own_file,
    is_own_tree,
    module_path_fault,
    owner_fault,
    read_own,
    replaceable,
)
from aotforge.base.files import make_folders
from aotforge.cli.command import cache_folder
from aotforge.errors import CacheError
from tests.support.acl import set_acl

OTHER = 64042
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


def _give(path: Path) -> None:
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def _accounts(
    monkeypatch: pytest.MonkeyPatch, *accounts: tuple[str, int, int], members: tuple[str, ...] = ()
) -> None:
    """Accounts of the system: names, numbers, numbers of their first groups. `members` of every group."""
    entries = [pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh")) for name, uid, gid in accounts]
    names = {gid: name for name, _, gid in reversed(accounts)}
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: next(one for one in entries if one.pw_uid == uid))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((names[gid], "x", gid, list(members))))
    _is_private.cache_clear()


ROOT, ALICE = ("root", 0, 0), ("alice", 1000, 1000)


@pytest.mark.parametrize("place", ["verdicts-4", "containers", "containers/roots", "containers/trees/a"])
@pytest.mark.parametrize("link", [False, True])
def test_folders_in_the_cache_that_others_can_write_are_refused(
    tmp_path: Path, place: str, link: bool
) -> None:
    folder = tmp_path / "cache" / place
    target = tmp_path / "disk" if link else folder
    target.mkdir(parents=True)
    if link:
        folder.parent.mkdir(parents=True)
        folder.symlink_to(target)
    assert cache_folder(str(tmp_path / "cache")) == tmp_path / "cache"
    target.chmod(0o777)
    with pytest.raises(CacheError, match=f"{folder} has mode 777"):
        cache_folder(str(tmp_path / "cache"))
    target.chmod(0o755)
    if os.geteuid() == 0:
        _give(target)
        with pytest.raises(CacheError, match=f"{folder} belongs to user {OTHER}"):
            cache_folder(str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("accounts", "members", "group", "private"),
    [
        ((ROOT, ALICE), (), 1000, True),
        ((ROOT, ALICE), ("alice",), 1000, True),
        ((ROOT, ALICE), ("bob",), 1000, False),
        ((ROOT, ALICE, ("bob", 1001, 1000)), (), 1000, False),
        ((ROOT, ALICE), (), 0, True),
        ((ROOT, ALICE, ("toor", 0, 0)), ("root",), 0, True),
        ((ROOT, ALICE, ("operator", 11, 0)), (), 0, False),
        ((ROOT, ALICE), ("alice",), 0, False),
        ((ROOT, ALICE, ("staff", 50, 50)), (), 50, False),
    ],
)
def test_a_group_is_private_while_no_other_account_is_in_it(
    monkeypatch: pytest.MonkeyPatch,
    accounts: tuple[tuple[str, int, int], ...],
    members: tuple[str, ...],
    group: int,
    private: bool,
) -> None:
    """An account's first group does not list the account."""
    _accounts(monkeypatch, *accounts, members=members)
    try:
        assert _is_private(group, 1000) == private
    finally:
        _is_private.cache_clear()


@pytest.mark.parametrize(
    ("group", "name", "first", "private"),
    [
        (1000, "alice", 1000, True),
        (1000, "alice", 100, False),
        (1000, "people", 1000, False),
        (0, "wheel", 1000, True),
        (1, "daemon", 1000, False),
    ],
)
def test_a_private_group_is_the_first_one_of_the_account_and_has_its_name(
    monkeypatch: pytest.MonkeyPatch, group: int, name: str, first: int, private: bool
) -> None:
    """Root's has any name. No account is in the others."""
    _accounts(monkeypatch, ROOT, ("alice", 1000, first))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((name, "x", gid, [])))
    try:
        assert _is_private(group, 1000) == private
    finally:
        _is_private.cache_clear()


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
        (lambda base: os.chown(base / "shared", 0, OTHER), ""),
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


@pytest.mark.parametrize(
    ("attribute", "others"), [(ACCESS_ACL, {0x02, 0x08}), (DEFAULT_ACL, {0x02, 0x04, 0x08, 0x20})]
)
def test_entries_of_an_acl(monkeypatch: pytest.MonkeyPatch, attribute: str, others: set[int]) -> None:
    """An ACL of a folder shows its group and all others in its mode; the mask is what the others may do at most."""
    for tag in (0x01, 0x02, 0x04, 0x08, 0x10, 0x20):
        for rights in range(8):
            acl = struct.pack("<I", 2) + struct.pack("<HHI", 0x01, 7, 0) + struct.pack("<HHI", tag, rights, 0)
            monkeypatch.setattr(os, "getxattr", lambda path, name, acl=acl: acl)
            assert acl_grants_write(Path("/"), attribute) == (tag in others and rights in {2, 3, 6, 7})


@pytest.mark.parametrize(
    ("number", "writes"), [(errno.ENODATA, False), (errno.ENOTSUP, False), (errno.EACCES, True)]
)
def test_an_acl_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, number: int, writes: bool) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(number, "refused")

    monkeypatch.setattr(os, "getxattr", refuse)
    assert acl_grants_write(Path("/"), ACCESS_ACL) == writes


@pytest.mark.parametrize(("mode", "refused"), [(0o755, False), (0o775, True), (0o757, True)])
def test_the_mode_of_the_cache_itself(tmp_path: Path, mode: int, refused: bool) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    assert replaceable(cache) == ""
    if refused:
        with pytest.raises(CacheError, match=f"has mode {mode:o}: other users can write to it"):
            check_cache(cache)
    else:
        check_cache(cache)


def test_links_without_an_end(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert replaceable(tmp_path / "one" / "cache") == ""


@pytest.mark.parametrize(
    ("uid_map", "unknown"),
    [("0 0 4294967295", frozenset[int]()), ("0 1000 1", frozenset({64000})), (None, frozenset[int]())],
)
def test_users_of_a_namespace(
    monkeypatch: pytest.MonkeyPatch, uid_map: str | None, unknown: frozenset[int]
) -> None:
    """Users that the namespace has no number for are shown with one of them all, which may be host's root: it is trusted as the owner of
    folders above, and not of what is used. Root and this user are trusted in each."""
    files = {"/proc/self/uid_map": uid_map, "/proc/sys/kernel/overflowuid": "64000\n"}

    def read(path: Path, encoding: str) -> str:
        if (text := files[str(path)]) is None:
            raise FileNotFoundError
        return text

    folder = Path("/folder")
    _unknown_users.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_text", read)
            assert _unknown_users() == unknown
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        for user in (0, 1, 1000, 64000):
            found = os.stat_result((0o40755, 0, 0, 1, user, 0, 0, 0, 0, 0))
            monkeypatch.setattr(Path, "lstat", lambda path, found=found: found)
            monkeypatch.setattr(Path, "stat", lambda path, found=found, **_: found)
            fault = "" if user in {0, 1000} else f"belongs to user {user}, not to user 1000"
            assert owner_fault(folder) == fault and bool(changeable(folder)) == bool(fault)
            assert bool(replaceable(folder / "cache")) == (user not in {0, 1000} | unknown)
            monkeypatch.setattr(os, "geteuid", lambda: 64000)
            assert (owner_fault(folder) == "") == (user == 0 or (user == 64000 and not unknown))
            monkeypatch.setattr(os, "geteuid", lambda: 1000)
            if fault:
                with pytest.raises(CacheError, match=f"belongs to user {user}, "):
                    check_cache(folder)
    finally:
        _unknown_users.cache_clear()


@pytest.mark.parametrize("below", ["", "containers"])
def test_links_to_what_others_make_later(tmp_path: Path, below: str) -> None:
    """A folder of verdicts or root filesystems that another user takes away for the check, and a link without an end before another one."""
    cache, theirs = tmp_path / "cache" / below, tmp_path / "theirs"
    for folder in (cache, theirs, cache / "open"):
        folder.mkdir(parents=True)
    (cache / "loop").symlink_to("loop")
    check_cache_folders(tmp_path / "cache")
    (cache / "open").chmod(0o777)
    with pytest.raises(CacheError, match="open has mode 777"):
        check_cache_folders(tmp_path / "cache")
    (cache / "open").rmdir()
    theirs.chmod(0o777)
    (cache / "verdicts-4").symlink_to(theirs / "verdicts")
    with pytest.raises(CacheError, match="theirs has mode 777: others can replace what is in it"):
        check_cache_folders(tmp_path / "cache")


@pytest.mark.parametrize("name", ["images-1", "verdicts-4", "trust", "sources", "tune-2", "downloads"])
def test_folders_of_objects_by_their_first_digits(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "0a"
    folder.mkdir(parents=True)
    check_cache_folders(tmp_path)
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="0a has mode 777"):
        check_cache_folders(tmp_path)
    folder.chmod(0o755)
    (tmp_path / "theirs").mkdir()
    folder.rename(tmp_path / "theirs" / "0a")
    folder.symlink_to(tmp_path / "theirs" / "0a")
    (tmp_path / "theirs").chmod(0o777)
    with pytest.raises(CacheError, match="theirs has mode 777"):
        check_cache_folders(tmp_path)


@as_root
def test_downloads_that_were_restored_with_their_owner(tmp_path: Path) -> None:
    download = tmp_path / "downloads" / ("0a" * 32)
    download.parent.mkdir()
    download.touch()
    check_cache_folders(tmp_path)
    _give(download)
    with pytest.raises(CacheError, match=f"{download} belongs to user {OTHER}"):
        check_cache_folders(tmp_path)


@as_root
def test_files_that_were_copied_into_a_cache_with_their_owner(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    assert read_own(file) == b"content" and is_own_file(file)
    file.chmod(0o664)
    with pytest.raises(PermissionError, match="has mode 664"):
        read_own(file)
    file.chmod(0o644)
    _give(file)
    with pytest.raises(PermissionError, match="belongs to user 64042, not to user 0"):
        read_own(file)
    assert not is_own_file(file)


@pytest.mark.parametrize("owner", [False, pytest.param(True, marks=as_root)])
def test_trees_with_files_of_others(tmp_path: Path, owner: bool) -> None:
    tree, file = tmp_path / "tree", tmp_path / "tree" / "a" / "b" / "file"
    file.parent.mkdir(parents=True)
    file.touch()
    (tree / "link").symlink_to("/etc/passwd")
    assert is_own_tree(tree) and not is_own_tree(tmp_path / "missing")
    for path in (file, file.parent, tree):
        before = path.stat()
        if owner:
            _give(path)
        else:
            path.chmod(0o1666 if path == file else 0o775)
        assert not is_own_tree(tree)
        os.chown(path, before.st_uid, before.st_gid)
        path.chmod(before.st_mode)
    assert is_own_tree(tree)


def test_bytecode_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPYCACHEPREFIX=/tmp/pycache, which another user was the first to make."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    assert module_path_fault() == ""
    tmp_path.chmod(0o777)
    assert "mode 777: others can replace" in module_path_fault()


@pytest.mark.parametrize("mode", [0o1777, 0o1775])
def test_modules_in_a_folder_of_all(mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that was started in /tmp imported zict.py from there, which another user had put in."""
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "file").touch()
    (own / "link").symlink_to(tmp_path)
    tmp_path.chmod(mode)
    if mode & 0o002 == 0:
        _share_with_group(tmp_path)
        tmp_path.chmod(mode)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    for path in (own, own / "none", tmp_path / "file", own / "none" / "none.zip"):
        monkeypatch.setattr(sys, "path", [str(path)])
        assert module_path_fault() == ""
    for path in (tmp_path, own / "..", own / "link", tmp_path / "none", tmp_path / "none" / "none.zip"):
        monkeypatch.setattr(sys, "path", [str(own), str(path)])
        assert module_path_fault() == f"{tmp_path} has mode {mode:o}: others can replace what is in it"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [""])
    assert module_path_fault() and input_fault(Path())


@as_root
def test_a_module_path_that_is_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner can remove it and make it again between two looks; then neither found a fault."""
    folder, lstat = tmp_path / "folder", Path.lstat
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(sys, "pycache_prefix", None)
    looks: list[int] = []

    def look(path: Path) -> os.stat_result:
        if path == folder and folder.exists():
            looks[0] -= 1
            if looks[0] < 0:
                folder.rmdir()
        return lstat(path)

    for there in range(4):
        folder.mkdir(exist_ok=True)
        _give(folder)
        looks[:] = [there]
        with monkeypatch.context() as patch:
            patch.setattr(Path, "lstat", look)
            assert module_path_fault()


def test_what_is_not_there_may_be_made_by_others(tmp_path: Path) -> None:
    """A link in a folder such as /tmp can be removed for the time of this look."""
    assert not input_fault(tmp_path) and not replaceable(tmp_path / "file", needed=True)
    assert input_fault(tmp_path / "none") == f"{tmp_path}/none is not there"
    assert changeable(tmp_path / "none") == "" == replaceable(tmp_path / "none" / "file")
    assert replaceable(tmp_path / "none" / "file", needed=True) == f"{tmp_path}/none is not there"
    (tmp_path / "link").symlink_to(tmp_path / "none")
    assert replaceable(tmp_path / "link" / "file", needed=True) == f"{tmp_path}/none is not there"


def test_names_in_a_folder_do_not_exempt_it(tmp_path: Path) -> None:
    """A link to the folder itself was taken for its end, which is another check's."""
    folder = tmp_path / "open"
    folder.mkdir()
    (folder / "entry").symlink_to(".")
    assert not changeable(folder) and not replaceable(folder / "entry")
    folder.chmod(0o777)
    for found in (changeable(folder), replaceable(folder / "entry"), replaceable(folder / "entry" / "entry")):
        assert found == f"{folder} has mode 777: others can replace what is in it"


def test_the_way_to_a_file(tmp_path: Path) -> None:
    """Each step once, as the system reads them: `..` behind a link is above what the link leads to."""
    (tmp_path / "mine" / "below").mkdir(parents=True)
    (tmp_path / "mine" / "file").touch()
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "link").symlink_to("mine/below")
    way = [(step, status is not None, last) for step, status, last in _way(tmp_path / "link" / ".." / "file")]
    parents = [*tmp_path.parents][::-1]
    steps = [
        *parents,
        tmp_path,
        tmp_path / "link",
        tmp_path / "mine",
        tmp_path / "mine/below",
        tmp_path / "mine/file",
    ]
    assert way == [(step, True, step == steps[-1]) for step in steps]
    ends = [step for step, _, last in _way(tmp_path / "link") if last]
    assert ends == [tmp_path / "mine" / "below"], "a link is not the end"
    assert [*_way(tmp_path / "none" / "file")][-1] == (tmp_path / "none", None, False)
    assert [*_way(tmp_path / "none")][-1] == (tmp_path / "none", None, True)
    (tmp_path / "circle").symlink_to("circle")
    assert len([*_way(tmp_path / "circle")]) == len(parents) + 1 + 41


def test_a_link_that_is_exchanged_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner is a fault whether or not it can be read: another user exchanged it for a folder, and it passed for one that is not
    there."""
    link, folder = tmp_path / "link", tmp_path / "folder"
    folder.mkdir()
    link.symlink_to(folder)

    def refused(path: Path) -> Path:
        raise OSError(errno.EINVAL, "exchanged", str(path))

    monkeypatch.setattr(Path, "readlink", refused)
    assert input_fault(link) == f"{link} is not there"
    look = Path.lstat

    def of_another(path: Path) -> os.stat_result:
        found = look(path)
        return os.stat_result((*found[:4], 64042, *found[5:])) if path == link else found

    monkeypatch.setattr(Path, "lstat", of_another)
    for fault in (changeable(link), replaceable(link), replaceable(link / "below" / "file")):
        assert fault == f"{link} belongs to user 64042, who can replace it"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a folder of another user")
def test_a_cache_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user let its name lead to a folder of this user for one look, and to theirs for the other."""
    cache = tmp_path / "cache"
    cache.mkdir()
    mine = tmp_path.stat()
    monkeypatch.setattr(
        Path, "stat", lambda path, *, follow_symlinks=True: mine if follow_symlinks else os.lstat(path)
    )
    check_cache(cache)
    os.chown(cache, 64042, 64042)
    with pytest.raises(CacheError, match="belongs to user 64042, not to user 0"):
        check_cache(cache)


@pytest.mark.parametrize("path", ["mine/..", "dot", "up", "mine/../mine/.."])
def test_every_way_has_an_end(path: str, tmp_path: Path) -> None:
    """A cache that is named by `..`, or by a link to `.`, was not looked at."""
    cache = tmp_path / "cache"
    (cache / "mine").mkdir(parents=True)
    (cache / "dot").symlink_to(".")
    (cache / "up").symlink_to("mine/..")
    assert [step for step, _, last in _way(cache / path) if last] == [cache]
    assert not changeable(cache / path)
    check_cache(cache / path)
    cache.chmod(0o1777)
    with pytest.raises(CacheError, match="has mode 1777"):
        check_cache(cache / path)
    (cache / "root").symlink_to("/")
    assert [step for step, _, last in _way(cache / "root") if last] == [Path("/")]
