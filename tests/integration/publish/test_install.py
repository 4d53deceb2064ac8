"""Installing from folders, web servers and S3: what lands where, what resumes, what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotforge.deliver.install.choose import InstallRequest
from aotforge.deliver.install.install_release import install
from aotforge.deliver.install.prefix import uninstall
from aotforge.errors import InstallError, TrustError
from aotforge.formats.archive import sha256_file
from aotforge.publish.keys import KeySet
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.stores.http import HttpReader
from aotforge.publish.stores.store import StoreError
from aotforge.publish.trust import trusted_index
from aotforge.publish.upload import yank_release
from tests.support.publishing import MACHINE, NOW, PACKS, make_release, publish, try_install
from tests.support.web import Web, running_web

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
GFX90A = {"gfx90a": "amd-gfx90a"}


@pytest.fixture
def store(tmp_path: Path, keys: KeySet) -> DirectoryStore:
    made = DirectoryStore(tmp_path / "store")
    publish(make_release(tmp_path / "r1", size=300_000), made, keys)
    return made


@pytest.fixture
def web(store: DirectoryStore, tmp_path: Path) -> Iterator[Web]:
    with running_web(tmp_path / "store") as running:
        yield running


def reader(web: Web) -> HttpReader:
    return HttpReader(web.url, sleep=lambda seconds: None)


def tree(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file() and not path.name.startswith("."):
            found[name] = sha256_file(path)
    return found


def expected(release: Path, *archives: str) -> dict[str, str]:
    """What `tar` makes of the archives."""
    out = release.parent / f"expected-{len(archives)}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for archive in archives:
        (path,) = release.glob(f"*{archive}*.tar.gz")
        subprocess.run(["tar", "xzf", path, "--strip-components=1", "-C", out], check=True)
    return tree(out)


def test_a_prefix(store: DirectoryStore, keys: KeySet, tmp_path: Path) -> None:
    """The same tree that tar makes; again is nothing; another arch is added; another release takes its
    place; removed to the last file."""
    root, prefix = keys.roots[0], tmp_path / "prefix"
    done = try_install(store, root, tmp_path)
    assert done.fresh and done.release == "0.11.2b-r1" and done.archs == ("gfx908",)
    assert [name.split("-r1-")[1] for name in done.files] == [
        "manylinux_2_28_x86_64-rocm7.1-shared.tar.gz",
        "images-amd-gfx908.tar.gz",
    ]
    assert tree(prefix) == expected(tmp_path / "r1", "rocm7.1", "gfx908")
    assert (prefix / "lib/libaotriton_v2.so.0.11.2").stat().st_mode & 0o777 == 0o755
    before = prefix.stat().st_ino
    assert not try_install(store, root, tmp_path).fresh and prefix.stat().st_ino == before
    assert try_install(store, root, tmp_path, InstallRequest(packs=GFX90A)).archs == ("gfx908", "gfx90a")
    assert tree(prefix) == expected(tmp_path / "r1", "rocm7.1", "gfx908", "gfx90a")
    publish(make_release(tmp_path / "r2", "0.11.2b-r2"), store, keys)
    newer = try_install(store, root, tmp_path)
    assert (newer.release, newer.archs) == ("0.11.2b-r2", ("gfx908",))
    assert newer.notes == ("0.11.2b-r1 was replaced",)
    assert tree(prefix) == expected(tmp_path / "r2", "rocm7.1", "gfx908")
    older = try_install(store, root, tmp_path, InstallRequest(packs=PACKS, version="0.11.2b-r1"))
    assert older.release == "0.11.2b-r1"
    assert uninstall(prefix) == ("0.11.2b-r1", 6)
    assert not prefix.exists() and not list(tmp_path.glob(".prefix.staged*"))
    with pytest.raises(InstallError, match="nothing is installed"):
        uninstall(prefix)


def test_a_prefix_behind_a_link(store: DirectoryStore, keys: KeySet, tmp_path: Path) -> None:
    """/opt/aotriton -> /opt/aotriton-0.11: the tree behind the link is installed, changed and removed; the
    link is its owner's."""
    root, link = keys.roots[0], tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to("real")
    for packs in (PACKS, GFX90A):
        assert try_install(store, root, tmp_path, InstallRequest(packs=packs, prefix=link)).fresh
        assert link.readlink() == Path("real")
    assert tree(tmp_path / "real") == expected(tmp_path / "r1", "rocm7.1", "gfx908", "gfx90a")
    assert not list(tmp_path.glob(".*staged*"))
    uninstall(link)
    assert not (tmp_path / "real").exists() and link.is_symlink()
    link.unlink()
    link.symlink_to("link")
    with pytest.raises(InstallError, match="cannot be followed"):
        try_install(store, root, tmp_path, InstallRequest(packs=PACKS, prefix=link))


def test_files_of_others(store: DirectoryStore, keys: KeySet, tmp_path: Path) -> None:
    root, prefix = keys.roots[0], tmp_path / "prefix"
    prefix.mkdir()
    (prefix / "mine").write_text("x")
    with pytest.raises(InstallError, match="files that this program did not install"):
        try_install(store, root, tmp_path)
    (prefix / "mine").unlink()
    try_install(store, root, tmp_path)  # an empty folder will do
    (prefix / "lib/mine").symlink_to("libaotriton_v2.so")
    for act in (lambda: try_install(store, root, tmp_path), lambda: uninstall(prefix)):
        with pytest.raises(InstallError, match=r"lib/mine was not installed by 0\.11\.2b-r1"):
            act()
    (prefix / "lib/mine").unlink()
    (prefix / "lib/libaotriton_v2.so.0.11.2").write_text("changed")
    (prefix / "include/aotriton/config.h").unlink()
    repaired = try_install(store, root, tmp_path)
    assert repaired.fresh and len(repaired.notes) == 2 and "is restored" in repaired.notes[0]
    assert tree(prefix) == expected(tmp_path / "r1", "rocm7.1", "gfx908")
    (prefix / ".aotforge-install.json").write_text("{")
    with pytest.raises(InstallError, match=r"aotforge-install.json cannot be used"):
        try_install(store, root, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InstallError, match="file is a file"):
        try_install(store, root, tmp_path, InstallRequest(packs=PACKS, prefix=tmp_path / "file"))


def test_yanked(store: DirectoryStore, keys: KeySet, tmp_path: Path) -> None:
    publish(make_release(tmp_path / "r2", "0.11.2b-r2"), store, keys)
    yank_release(store, keys, "0.11.2b-r2", reason="wrong results", now=NOW)
    root = keys.roots[0]
    assert try_install(store, root, tmp_path).release == "0.11.2b-r1"
    wanted = InstallRequest(packs=PACKS, version="0.11.2b-r2")
    with pytest.raises(InstallError, match=r"0.11.2b-r2 was yanked: wrong results\n.*withdrew it on"):
        try_install(store, root, tmp_path, wanted)
    done = try_install(store, root, tmp_path, replace(wanted, allow_yanked=True))
    assert done.release == "0.11.2b-r2" and "0.11.2b-r2 was yanked: wrong results" in done.notes


def test_over_http(web: Web, keys: KeySet, tmp_path: Path) -> None:
    """Only what is needed is requested."""
    try_install(reader(web), keys.roots[0], tmp_path)
    assert tree(tmp_path / "prefix") == expected(tmp_path / "r1", "rocm7.1", "gfx908")
    archives = [path for path, _ in web.requests if path.endswith(".gz")]
    assert len(archives) == 2 and not any("rocm7.0" in path or "gfx90a" in path for path in archives)


@pytest.mark.parametrize("ranges", [True, False])
def test_broken_connections(web: Web, keys: KeySet, tmp_path: Path, ranges: bool) -> None:
    """A download resumes where it broke, in the same run; where there is no Range, from the beginning."""
    web.ranges, web.cuts, web.statuses = ranges, [100_000, 50_000, 0], [503, 0, 500]
    try_install(reader(web), keys.roots[0], tmp_path)
    assert tree(tmp_path / "prefix") == expected(tmp_path / "r1", "rocm7.1", "gfx908")
    ranges_sent = [where for path, where in web.requests if "rocm7.1" in path]
    assert (
        ranges_sent[:4] == ["", "bytes=100000-", "bytes=150000-", "bytes=150000-"]
        if ranges
        else len(ranges_sent) >= 3
    )


def test_the_next_run_resumes(web: Web, keys: KeySet, tmp_path: Path) -> None:
    web.cuts = [200_000] + [0] * 4
    with pytest.raises(
        InstallError,
        match=r"cannot be read: IncompleteRead.*\n.*failed 5 times\n.*continues where it stopped",
    ):
        try_install(reader(web), keys.roots[0], tmp_path)
    assert not (tmp_path / "prefix").exists()
    web.requests.clear()
    try_install(reader(web), keys.roots[0], tmp_path)
    assert [where for path, where in web.requests if "rocm7.1" in path] == ["bytes=200000-"]
    assert tree(tmp_path / "prefix") == expected(tmp_path / "r1", "rocm7.1", "gfx908")
    web.requests.clear()  # a complete download is not requested again
    uninstall(tmp_path / "prefix")
    try_install(reader(web), keys.roots[0], tmp_path)
    assert not [path for path, _ in web.requests if path.endswith(".gz")]


def test_begun_downloads_that_are_wrong(web: Web, keys: KeySet, tmp_path: Path) -> None:
    """What an earlier run or another program left in the downloads is believed in nothing."""
    root = keys.roots[0]
    index = trusted_index(reader(web), root, tmp_path / "trust").index
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    for file in index.releases[0].files:
        (downloads / f"{file.sha256}.part").write_bytes(b"x" * 1000)
    try_install(reader(web), root, tmp_path)
    uninstall(tmp_path / "prefix")
    for path in downloads.iterdir():
        path.write_bytes(b"x" * path.stat().st_size)
    try_install(reader(web), root, tmp_path)
    assert tree(tmp_path / "prefix") == expected(tmp_path / "r1", "rocm7.1", "gfx908")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (403, "answered 403 Forbidden\n.*other credentials"),
        (404, "answered 404"),
        (418, "answered 418"),
        (500, "answered 500 .*\n.*failed 5 times"),
    ],
)
def test_servers_that_refuse(web: Web, keys: KeySet, tmp_path: Path, answer: int, message: str) -> None:
    try_install(reader(web), keys.roots[0], tmp_path)
    before = tree(tmp_path / "prefix")
    requests = len(web.requests)
    for position in range(0, requests, 2):
        shutil.rmtree(tmp_path / "downloads", ignore_errors=True)
        web.statuses = [0] * position + [answer] * 99
        wanted = InstallRequest(packs=GFX90A)
        # trusted_index raises StoreError, which the command line turns into InstallError
        with pytest.raises((InstallError, StoreError)) as caught:
            try_install(reader(web), keys.roots[0], tmp_path, wanted)
        error: Any = caught.value
        shown = "\n".join((error.what, error.cause, error.hint))
        assert re.search(message, shown), (position, shown)
        web.statuses = []
        assert tree(tmp_path / "prefix") == before


def test_tampered_on_the_way(web: Web, keys: KeySet, tmp_path: Path) -> None:
    (path,) = (tmp_path / "store/0.11.2b-r1").glob("*gfx908*")
    complete = path.read_bytes()
    for data in (complete[:-1], complete + b"x", complete[:-9] + b"x" + complete[-8:]):
        path.write_bytes(data)
        with pytest.raises(TrustError, match=r"does not match the index"):
            try_install(reader(web), keys.roots[0], tmp_path)
        assert not (tmp_path / "prefix").exists()
        assert not [p for p in (tmp_path / "downloads").iterdir() if "gfx908" in p.name]
    path.write_bytes(complete)
    try_install(reader(web), keys.roots[0], tmp_path)


def test_into_a_pytorch(store: DirectoryStore, keys: KeySet, tmp_path: Path) -> None:
    """The drop-in gets an unpacked, checked release and its name; the unpacked copy does not stay."""
    got: list[tuple[str, Path]] = []

    def drop_in(prefix: Path, release: str, torch_lib: Path) -> None:
        assert tree(prefix) == expected(tmp_path / "r1", "rocm7.1", "gfx908")
        got.append((release, torch_lib))

    index = trusted_index(store, keys.roots[0], tmp_path / "trust").index
    request = InstallRequest(packs=PACKS, torch_lib=tmp_path / "torch/lib")
    done = install(store, index, request, MACHINE, downloads=tmp_path / "downloads", drop_in=drop_in)
    assert got == [("0.11.2b-r1", tmp_path / "torch/lib")] and done.place == tmp_path / "torch/lib"
    assert not list((tmp_path / "downloads").iterdir())
    for path in (tmp_path / "store/0.11.2b-r1").glob("*gfx908*"):
        path.write_bytes(b"")
    with pytest.raises(TrustError):
        install(store, index, request, MACHINE, downloads=tmp_path / "downloads", drop_in=drop_in)
    assert len(got) == 1


def test_killed_installations(store: DirectoryStore, keys: KeySet, tmp_path: Path) -> None:
    """At every file that is made: the prefix is absent or complete, and the next run completes it and
    removes partial files."""
    root = keys.roots[0]
    complete = expected(tmp_path / "r1", "rocm7.1", "gfx908")
    killed = 0
    for number in range(1, 40, 3):
        child = os.fork()
        if not child:
            count = iter(range(1, 10**6))

            def hook(
                event: str, arguments: tuple[object, ...], count: Iterator[int] = count, number: int = number
            ) -> None:
                if (
                    event in {"open", "os.mkdir", "os.rename", "os.symlink"}
                    and "prefix" in str(arguments)
                    and next(count) == number
                ):
                    os.kill(os.getpid(), 9)

            sys.addaudithook(hook)
            try_install(store, root, tmp_path)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        prefix = tmp_path / "prefix"
        killed += status == -9
        assert status in {0, -9}
        assert not prefix.exists() or tree(prefix) == complete
    assert killed >= 3
    try_install(store, root, tmp_path)
    assert tree(tmp_path / "prefix") == complete
    record = json.loads((tmp_path / "prefix/.aotforge-install.json").read_text())
    assert record["release"] == "0.11.2b-r1" and set(record["files"]) == set(complete)
