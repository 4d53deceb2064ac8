"""Rootfs images: the bytes of a lock, fetched, assembled, unpacked once, pruned."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.progress import SILENT, LineObserver
from aotforge.errors import ContainerError, UnknownNameError
from aotforge.run.pip_download import SOURCES
from aotforge.run.rootfs.assemble import assemble
from aotforge.run.rootfs.cache import find_rootfs, prune_rootfs
from aotforge.run.rootfs.definitions import read_lock, read_spec, rootfs_names
from aotforge.run.rootfs.fetch import receive
from aotforge.run.rootfs.lock import pinned_wheels
from aotforge.run.step import RootFS
from tests.support.debs import PACKAGES, deb, make_checkout

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def small(checkout: Path, mirror: Path, cache: Path, notes: list[str] | None = None) -> RootFS:
    observer = LineObserver(notes.append) if notes is not None else SILENT
    return find_rootfs(checkout, "small", cache=cache, environment={SOURCES: str(mirror)}, observer=observer)


def test_members_of_a_merged_usr_with_one_owner_and_time(tmp_path: Path, mirror: Path) -> None:
    rootfs = small(make_checkout(tmp_path, mirror), mirror, tmp_path / "cache")
    with rootfs.packed() as tar:
        assert hashlib.sha256(tar.read_bytes()).hexdigest() == rootfs.identity
        with tarfile.open(tar) as archive:
            members = {member.name: member for member in archive}
            library = archive.extractfile("usr/lib/y.so.1")
            assert library is not None and library.read() == b"library"
    assert not tar.exists()
    assert members["bin"].linkname == "usr/bin" and members["usr/bin/sh"].linkname == "dash"
    assert members["usr/bin/dash"].isreg() and members["usr/bin/dash"].mode == 0o755
    assert members["usr/lib/x.so.1"].mode == 0o644 and members["usr/lib/x.so"].linkname == "x.so.1"
    assert "usr/share/doc/one/copyright" in members and "usr/share/doc/one/README" not in members
    assert {(m.uid, m.gid, m.uname, m.mtime) for m in members.values()} == {(0, 0, "", 1767225600)}
    assert list(members) == sorted(members, key=str.encode)


def test_bytes_do_not_depend_on_times_and_owners_of_packages(tmp_path: Path, mirror: Path) -> None:
    digests = set()
    for number in (0, 1):
        checkout = make_checkout(tmp_path / str(number), mirror)
        spec = read_spec(checkout, "small")
        files = {
            entry.sha256: deb(entry.name, PACKAGES[entry.name], mtime=number * 10**9, owner=number)
            for entry in read_lock(spec).packages
        }
        for sha256, data in files.items():
            (tmp_path / sha256).write_bytes(data)
        lock = read_lock(spec)
        digests.add(assemble(spec.definition, lock, files=tmp_path.joinpath, tar=tmp_path / "root.tar"))
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["../x", "usr/../../x"])
def test_a_member_outside_the_rootfs_is_refused(tmp_path: Path, mirror: Path, name: str) -> None:
    with pytest.raises(ContainerError, match="outside the rootfs"):
        make_checkout(tmp_path, mirror, packages={"one": [(name, b"", 0o644)]})


def test_nothing_is_fetched_before_a_runner_needs_it_and_then_once(tmp_path: Path, mirror: Path) -> None:
    checkout, cache, notes = make_checkout(tmp_path, mirror), tmp_path / "cache", list[str]()
    rootfs = small(checkout, mirror, cache, notes)
    assert not cache.exists() and not notes
    tree = rootfs.unpacked()
    assert (tree / "usr/bin/dash").read_bytes() == b"#!ELF\n"
    assert [note.split(":")[0] for note in notes] == ["small", "small"]
    for path in mirror.iterdir():
        path.unlink()
    assert small(checkout, mirror, cache, notes).unpacked() == tree and len(notes) == 2
    assert sorted(path.name for path in (cache / "containers").iterdir() if path.is_dir()) == [
        "store",
        "trees",
    ]


def test_damaged_and_missing_files(tmp_path: Path, mirror: Path) -> None:
    checkout, cache = make_checkout(tmp_path, mirror), tmp_path / "cache"
    sha256 = read_lock(read_spec(checkout, "small")).packages[0].sha256
    data = (mirror / sha256).read_bytes()
    (mirror / sha256).write_bytes(data + b"x")
    with pytest.raises(ContainerError, match=r"one 1\.0 .* cannot be fetched") as caught:
        small(checkout, mirror, cache).unpacked()
    assert "instead of" in caught.value.cause and SOURCES in caught.value.hint
    (mirror / sha256).write_bytes(data)
    tree = small(checkout, mirror, cache).unpacked()
    stored = cache / "containers" / "store" / sha256
    stored.write_bytes(b"damaged")
    with pytest.raises(ContainerError, match="was damaged"), small(checkout, mirror, cache).packed():
        pass
    assert not stored.exists() and tree.is_dir()
    with small(checkout, mirror, cache).packed():
        pass


def test_a_place_that_fails_for_a_moment_is_tried_again(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = set[str]()

    def fails_once(url: str, path: Path, *, limit: int) -> None:
        if url not in failed:
            failed.add(url)
            raise OSError("Temporary failure in name resolution")
        receive(url, path, limit=limit)

    monkeypatch.setattr("aotforge.run.rootfs.fetch.receive", fails_once)
    checkout = make_checkout(tmp_path, mirror)
    assert small(checkout, mirror, tmp_path / "cache").unpacked().is_dir() and failed


def test_locks_that_do_not_fit(tmp_path: Path, mirror: Path) -> None:
    checkout, cache = make_checkout(tmp_path, mirror), tmp_path / "cache"
    lock, definition = checkout / "docker" / "small.lock.json", checkout / "docker" / "small.yaml"
    text, fields = lock.read_text(), json.loads(definition.read_text())
    with pytest.raises(UnknownNameError, match="unknown rootfs"):
        read_spec(checkout, "smal")
    lock.write_text(text.replace(json.loads(text)["digest"], "0" * 64))
    with pytest.raises(ContainerError, match="and its files give"):
        small(checkout, mirror, cache).unpacked()
    definition.write_text(json.dumps({**fields, "epoch": 1}))
    with pytest.raises(ContainerError, match="does not match its definition"):
        small(checkout, mirror, cache)
    for wrong in ("", "{}"):
        lock.write_text(wrong)
        with pytest.raises(ContainerError, match=r"small\.lock\.json"):
            small(checkout, mirror, cache)
    wheels: dict[str, Any] = {"requirements": "r.txt", "names": ["triton"], "python": "3.11", "folder": "x"}
    (checkout / "r.txt").write_text(f"triton==3.9.0 \\\n    --hash=sha256:{'a' * 64}\n")
    other = make_checkout(tmp_path / "other", mirror, wheels=wheels)
    (other / "r.txt").write_text((checkout / "r.txt").read_text())
    with pytest.raises(ContainerError, match=r"has another triton than the pinned 3\.9\.0"):
        small(other, mirror, cache)


def test_locks_of_the_checkout_fit_their_definitions_and_pins() -> None:
    for name in rootfs_names(ROOT):
        spec = read_spec(ROOT, name)
        lock = read_lock(spec)
        assert all(entry.url.startswith("http://deb.debian.org/debian") for entry in lock.packages)
        if spec.definition.wheels:
            assert pinned_wheels(spec.definition.wheels, ROOT).keys() == {wheel.name for wheel in lock.wheels}


def test_prune_keeps_what_locks_name(tmp_path: Path, mirror: Path) -> None:
    checkout, cache = make_checkout(tmp_path, mirror), tmp_path / "cache"
    tree = small(checkout, mirror, cache).unpacked()
    old = [cache / "containers" / name for name in ("store/x", "trees/y", "roots/z.tar")]
    for path in old:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"old")
        os.utime(path, (time.time() - 10**6,) * 2)
    (cache / "containers" / "store" / "new").write_bytes(b"")
    assert prune_rootfs(checkout, cache) == sorted(old)
    assert not any(path.exists() for path in old) and tree.is_dir()
    assert (cache / "containers" / "store" / "new").exists()


def test_several_processes_and_a_killed_one_make_one_tree(tmp_path: Path, mirror: Path) -> None:
    checkout, cache = make_checkout(tmp_path, mirror), tmp_path / "cache"
    program = (
        "import os, sys; from pathlib import Path\n"
        "from aotforge.base.progress import LineObserver\n"
        "from aotforge.run.rootfs.cache import find_rootfs\n"
        "def note(text):\n    if sys.argv[4] in text: os.kill(os.getpid(), 9)\n"
        "checkout, cache = map(Path, sys.argv[1:3])\n"
        "print(find_rootfs(checkout, 'small', cache=cache, observer=LineObserver(note),\n"
        f"    environment={{'{SOURCES}': sys.argv[3]}}).unpacked())"
    )
    command = [sys.executable, "-c", program, str(checkout), str(cache), str(mirror)]
    for moment in ("downloading", "unpacking"):
        assert subprocess.run([*command, moment], cwd=ROOT, check=False).returncode == -9
    running = [
        subprocess.Popen([*command, "never"], cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    trees = {process.communicate(timeout=600)[0].strip() for process in running}
    assert trees == {str(small(checkout, mirror, cache).unpacked())}
    left = [
        path.name for path in (cache / "containers").iterdir() if path.name.startswith((".rootfs", ".down"))
    ]
    assert left == []
