"""Folders that are installed into: another user can exchange none of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.source_route.ready_images import IMAGES, release
from tests.integration.source_route.routes import PYTORCH, Route
from tests.support.acl import set_acl
from tests.support.other_user import USER
from tests.support.runtime import ROOT

SCRIPT = ROOT / "runtime" / "cmake" / "check_folders.sh"
FOLDERS = ("lib/aotriton.images", "include/aotriton")
BUILD = Path("/")
"""Of root, as the sources of this checkout in CI."""
Make = Callable[..., Route]


def check(prefix: Path, build: Path = BUILD, **environment: str) -> str:
    """The message of a refusal; empty where the folders are accepted."""
    done = subprocess.run(
        ["sh", SCRIPT, build, prefix, *FOLDERS], env=dict(os.environ) | environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert not done.stderr and bool(done.stdout) == bool(done.returncode), (done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    made = tmp_path / "a prefix *" / "opt"
    for folder in FOLDERS:
        (made / folder / "inner").mkdir(parents=True)
    assert not check(made)
    return made


@pytest.mark.compiler
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of another user")
@pytest.mark.parametrize("component", ["images", "runtime", "development", ""])
def test_nothing_is_installed_into_a_folder_of_another_user(
    route: Make, tmp_path: Path, component: str
) -> None:
    """Who can write `lib` exchanges folders in it for links while files are removed and copied."""
    made = route()
    given = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    made.configure(*[option for option in PYTORCH if "NOIMAGE" not in option], f"-DAOTRITON_IMAGES={given}")
    made.ninja("aotforge_images")
    lib = made.prefix / "lib"
    lib.mkdir(parents=True)
    os.chown(lib, USER, USER)
    command = ["cmake", "--install", ".", *(["--component", component] if component else [])]
    refused = made.run(*command, check=False)
    assert refused.returncode
    printed = made.output(refused)
    assert f"nothing was installed: {lib} belongs to user {USER}, who could exchange what is" in printed
    assert "or into another prefix (CMAKE_INSTALL_PREFIX, DESTDIR)" in printed
    assert not list(lib.iterdir())
    refused = made.run("cmake", "--install", "runtime", check=False)  # a target of ninja executes that, too
    assert "nothing was installed" in made.output(refused)
    home = made.run("cmake", "--install", ".", "--component", "images", check=False, DESTDIR="~/stage")
    assert home.returncode and "of DESTDIR or the prefix, would be another folder for CMake" in made.output(
        home
    )
    relative = made.run(*command, "--prefix", "usr", check=False, DESTDIR=str(tmp_path / "staged"))
    assert relative.returncode and "in DESTDIR, CMake would add the current folder" in made.output(relative)
    if component == "images":
        made.run(*command, DESTDIR=str(tmp_path / "staged"))
        assert [path.name for path in (tmp_path / "staged" / made.prefix.relative_to("/")).iterdir()] == [
            "lib"
        ]


@pytest.mark.compiler
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of another user")
def test_the_library_alone(route: Make, tmp_path: Path) -> None:
    """docs/runtime.md: cmake -S runtime."""
    zstd = tmp_path / "zstd"
    zstd.mkdir()
    for name in ("zstd.c", "zstd.h", "zstd_errors.h"):
        (zstd / name).write_text("")
    made = replace(route(), source=ROOT / "runtime")
    made.configure(f"-DAOTFORGE_ZSTD_DIR={zstd}")
    (made.prefix / "include").mkdir(parents=True)
    os.chown(made.prefix / "include", USER, USER)
    refused = made.run("cmake", "--install", ".", check=False)
    assert refused.returncode
    assert f"{made.prefix}/include belongs to user {USER}" in made.output(refused)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of another user")
@pytest.mark.parametrize("below", ["..", ".", "lib", IMAGES, f"{IMAGES}/inner", "include/aotriton/inner"])
def test_each_folder_on_the_way_belongs_to_this_user_or_root(prefix: Path, below: str) -> None:
    os.chown(prefix / below, USER, -1)
    assert f"belongs to user {USER}" in check(prefix)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of another user")
def test_who_can_exchange_the_build_is_trusted(prefix: Path, tmp_path: Path) -> None:
    """As where root builds PyTorch in a container, in a checkout of the user who started it: that user's files are executed anyway."""
    build = tmp_path / "of the user" / "build"
    build.mkdir(parents=True)
    os.chown(prefix / "lib", USER, USER)
    (prefix / "lib").chmod(0o775)
    assert f"belongs to user {USER}" in check(prefix, build=build)
    os.chown(build.parent, USER, -1)
    assert f"the group {USER}: other users can write it" in check(prefix, build=build)
    os.chown(build, -1, USER)
    build.chmod(0o1775)
    assert "other users can write it" in check(prefix, build=build), "the sticky bit protects what is in it"
    build.chmod(0o775)
    assert not check(prefix, build=build)
    os.chown(prefix / "include", USER + 1, -1)
    assert f"belongs to user {USER + 1}" in check(prefix, build=build)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of another user")
@pytest.mark.parametrize(
    "name", ["lib/libaotriton_v2.so.0.11.2", "lib/libaotforge_ops.a", "include/aotriton/inner/flash.h"]
)
def test_files_that_cmake_leaves_as_they_are(name: str, prefix: Path) -> None:
    """One with the time of its own is up to date, whatever it has: who could write the folder may have left it."""
    path = prefix / name
    path.write_text("of another user")
    assert not check(prefix)
    os.chown(path, USER, -1)
    assert f"{path} belongs to user {USER}" in check(prefix)
    os.chown(path, 0, -1)
    path.chmod(0o646)
    assert f"{path} has the mode -rw-r--rw-" in check(prefix)
    path.unlink()
    path.symlink_to("/etc/hosts")
    assert (f"{path} -> /etc/hosts is a link" in check(prefix)) == ("inner" in name)
    os.chown(path, USER, -1, follow_symlinks=False)
    assert f"belongs to user {USER}" in check(prefix)
    (prefix / "lib" / "libother.so").touch()
    os.chown(prefix / "lib" / "libother.so", USER, -1)
    path.unlink()
    assert not check(prefix)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of another user")
@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
@pytest.mark.parametrize("name", [f"{IMAGES}/aaa", f"{IMAGES}/inner/x.aoti", "lib/.aotriton.images.lock"])
def test_what_another_user_left_while_they_could_write(kind: str, name: str, prefix: Path) -> None:
    """The library reads every pack, in the order of names; the lock would be waited for."""
    path = prefix / name
    if kind == "link":
        path.symlink_to("/tmp")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
    os.chown(path, USER, USER, follow_symlinks=False)
    assert f"belongs to user {USER}" in (found := check(prefix)) or "is not a file of one name" in found


@pytest.mark.parametrize("kind", ["link", "another name", "pipe"])
def test_a_lock_that_is_another_file(kind: str, prefix: Path, tmp_path: Path) -> None:
    """CMake empties it."""
    lock, mine = prefix / "lib" / ".aotriton.images.lock", tmp_path / "mine"
    mine.write_text("mine")
    if kind == "link":
        lock.symlink_to(mine)
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.hardlink_to(mine)
    assert f"{lock} is not a file of one name" in check(prefix)
    lock.unlink()
    lock.touch()
    assert not check(prefix)


def test_a_lock_that_another_installation_removes_meanwhile(prefix: Path, tmp_path: Path) -> None:
    lock = prefix / "lib" / ".aotriton.images.lock"
    lock.touch()
    program = tmp_path / "ls"
    program.write_text(f'#!/bin/sh\ncase $2 in *.lock) rm -f "$2" ;; esac\nexec {shutil.which("ls")} "$@"\n')
    program.chmod(0o755)
    assert not check(prefix, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert not lock.exists()


def test_a_prefix_behind_a_link_of_this_user(prefix: Path, tmp_path: Path) -> None:
    """/opt/rocm is a link; in what it leads to, folders may be missing."""
    (tmp_path / "rocm").symlink_to(prefix)
    shutil.rmtree(prefix / "include")
    assert not check(tmp_path / "rocm")
    assert not check(tmp_path / "rocm" / "new" / "one")
    assert (prefix / "new" / "one").is_dir()


def test_a_prefix_that_leads_to_a_name_with_a_backslash(prefix: Path, tmp_path: Path) -> None:
    """CMake's lock was in another folder."""
    (tmp_path / "x\\y").mkdir()
    (tmp_path / "link").symlink_to("x\\y")
    assert "where CMake takes the backslash for a slash" in check(tmp_path / "link")
    assert "where CMake takes the backslash for a slash" in check(tmp_path / "link" / "below")


def test_a_link_among_headers(prefix: Path, tmp_path: Path) -> None:
    """It may have been made while others could write the folder; CMake writes headers to where it leads."""
    (prefix / "include" / "aotriton" / "v2").symlink_to(tmp_path)
    assert f"v2 -> {tmp_path} is a link, and no installation makes one there" in check(prefix)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of another user")
def test_a_group_that_an_acl_keeps_from_writing_is_not_trusted(prefix: Path, tmp_path: Path) -> None:
    """The mode shows the most that the ACL gives to anyone, and not what the group has."""
    build = tmp_path / "build"
    build.mkdir()
    os.chown(build, 0, USER)
    build.chmod(0o775)
    os.chown(prefix / "lib", 0, USER)
    (prefix / "lib").chmod(0o775)
    assert not check(prefix, build=build)
    set_acl(build, USER)
    assert "other users can write it" in check(prefix, build=build)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for files of another user")
def test_unknown_groups_of_a_user_namespace_are_several(prefix: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    build.mkdir()
    for folder, group in ((build, USER + 1), (prefix / "lib", USER)):
        os.chown(folder, 0, group)
        folder.chmod(0o775)
    command = ["unshare", "-Ur", "sh", str(SCRIPT), str(build), str(prefix), *FOLDERS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("this machine permits no user namespaces")
    assert done.returncode == 1 and "the group 65534: other users can write it" in done.stdout


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
@pytest.mark.parametrize("below", ["..", ".", "lib", f"{IMAGES}/inner"])
def test_folders_that_others_can_write(prefix: Path, below: str, mode: int) -> None:
    """The sticky bit protects what there is in a folder, not what will be made there."""
    (prefix / below).chmod(mode)
    assert ("users can write" in check(prefix)) == (mode != 0o1777 or below != "..")
    (prefix / below).chmod(0o755)


@pytest.mark.parametrize(("name", "mode"), [("", 0o777), ("cmake_install.cmake", 0o666)])
def test_a_build_that_any_user_can_change_is_not_executed(
    prefix: Path, tmp_path: Path, name: str, mode: int
) -> None:
    """With umask 000 CMake makes such folders and files."""
    build = tmp_path / "build"
    build.mkdir()
    (build / "cmake_install.cmake").touch()
    assert not check(prefix, build)
    (build / name).chmod(mode)
    assert "can be changed by any user" in check(prefix, build)


def test_a_prefix_is_made(tmp_path: Path) -> None:
    """In /tmp another user could be the first to make it."""
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    made = tmp_path / "sticky" / "opt" / "aotriton"
    done = subprocess.run(["sh", "-c", f'umask 000; exec sh "{SCRIPT}" / "{made}"'], check=False)
    assert done.returncode == 0
    assert {path.stat().st_mode & 0o777 for path in (made, made.parent)} == {0o755}


@pytest.mark.parametrize(
    ("groups", "accounts", "accepted"),
    [
        ("staff:x:{}:", "a:x:5:77::/:/bin/sh", True),
        ("staff:x:{}:root,{me}", "root:x:0:{}::/:/bin/sh\n{me}:x:{user}:{}::/:/bin/sh", True),
        ("staff:x:{}:other", "", False),
        ("staff:x:{}:", "a:x:5:{}::/:/bin/sh", False),
        ("", "", False),
    ],
)
def test_a_group_without_others_may_write(
    prefix: Path, tmp_path: Path, groups: str, accounts: str, accepted: bool
) -> None:
    lib = prefix / "lib"
    lib.chmod(0o2775)
    me = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    lists = [text.format(*[lib.stat().st_gid] * 2, me=me, user=os.geteuid()) for text in (groups, accounts)]
    program = tmp_path / "bin" / "getent"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\n[ $1 = group ] && echo '{lists[0]}'\n[ $1 != passwd ] || echo '{lists[1]}'\n"
    )
    program.chmod(0o755)
    found = check(prefix, PATH=f"{program.parent}:{os.environ['PATH']}")
    assert ("has the mode drwxrwsr-x" in found) != accepted and bool(found) != accepted
    if accepted:
        set_acl(lib, USER)
        assert "has the mode drwxrws" in check(prefix, PATH=f"{program.parent}:{os.environ['PATH']}")


def test_folders_behind_links(prefix: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    (others / "images").mkdir(parents=True)
    images = prefix / IMAGES
    (images / "inner").rmdir()
    images.rmdir()
    images.symlink_to(tmp_path / "others" / ".." / "others" / "images")
    assert not check(prefix)
    others.chmod(0o777)
    assert f"{others} has the mode drwxrwxrwx" in check(prefix), "its end could be exchanged"
    others.chmod(0o755)
    (others / "images").chmod(0o777)
    assert "aotriton.images has the mode" in check(prefix)
    (others / "images").rmdir()
    assert "which is not there" in check(prefix), "another user could make it"
    (others / "images").symlink_to("images")
    assert "link to itself" in check(prefix)
    (others / "images").unlink()
    (others / "images").touch()
    assert "is neither a file nor a folder" in check(prefix)
    if os.geteuid() == 0:
        (others / "images").unlink()
        (others / "images").symlink_to(prefix)
        os.chown(others / "images", USER, -1, follow_symlinks=False)
        assert f"belongs to user {USER}" in check(prefix)
