"""Assembly of a rootfs: its tar depends on paths, contents and execute permission of its packages' files, and on nothing else."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.assemble import Assembled, assemble, merged
from aotforge.sandbox.rootfs.definitions import Definition, Lock
from aotforge.sandbox.rootfs.members import first_difference
from tests.support.debs import DEFINITION, PACKAGES, File, deb, locked


def build(tmp: Path, debs: dict[str, bytes], **changes: Any) -> tuple[Assembled, dict[str, tarfile.TarInfo]]:
    definition = Definition.model_validate_json(json.dumps({**DEFINITION, **changes}))
    entries = [locked(name, data) for name, data in debs.items()]
    for entry, data in zip(entries, debs.values(), strict=True):
        (tmp / entry.sha256).write_bytes(data)
    lock = Lock(
        schema=1, definition="0" * 64, packages=tuple(entries), parts=(), wheels=(), digest="0" * 64, size=0
    )
    made = assemble(
        definition,
        lock,
        files=lambda digest: tmp / digest,
        tar=tmp / "root.tar",
        on_file=lambda done, total: None,
    )
    with tarfile.open(tmp / "root.tar") as archive:
        return made, {info.name: info for info in archive}


def test_members_are_normalised(tmp_path: Path) -> None:
    _, members = build(tmp_path, {name: deb(name, files) for name, files in PACKAGES.items()})
    assert {(info.uid, info.gid, info.mtime, info.uname) for info in members.values()} == {
        (0, 0, 1767225600, "")
    }
    assert members["bin"].linkname == "usr/bin"
    assert members["usr/bin/dash"].mode == 0o755  # no set-user-ID; and the file, not the link to itself
    assert members["usr/bin/dash"].isreg()
    assert members["usr/lib/x.so.1"].mode == 0o644  # readable for any user
    assert members["usr/lib/y.so.1"].islnk()
    assert members["usr/bin/sh"].linkname == "dash"
    assert members["work"].isdir()
    assert members["tmp"].mode == 0o1777
    assert "usr/share/doc/one/copyright" in members
    assert "usr/share/doc/one/README" not in members
    assert list(members) == sorted(members)


names = st.lists(st.sampled_from(["a", "b", "ü", "c d", "é"]), min_size=1, max_size=3, unique=True).map(
    lambda parts: "usr/share/x/" + "-".join(parts)
)


@settings(max_examples=20)
@given(
    files=st.dictionaries(names, st.binary(max_size=600), min_size=1, max_size=6),
    mtime=st.integers(0, 2**31),
    owner=st.integers(0, 60000),
)
def test_neither_order_nor_time_nor_owner_of_packages_matters(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], mtime: int, owner: int
) -> None:
    tmp = tmp_path_factory.mktemp("roots")
    members: list[File] = [(name, content, 0o644) for name, content in files.items()]
    half = len(members) // 2
    plain = {"one": deb("one", members[:half]), "two": deb("two", members[half:])}
    other = {
        "two": deb("two", members[half:][::-1], mtime=mtime, owner=owner),
        "one": deb("one", members[:half][::-1], mtime=mtime, owner=owner),
    }
    first, second = build(tmp, plain)[0], build(tmp, other)[0]
    assert first == second
    changed = {**plain, "two": deb("two", [*members[half:], ("usr/share/x/z", b"new", 0o644)])}
    third = build(tmp, changed)[0]
    assert third.digest != first.digest
    assert first_difference(first.members, third.members) == "/usr/share/x/z was built and is not locked"


def test_a_difference_is_named_by_its_first_member(tmp_path: Path) -> None:
    before = build(tmp_path, {"one": deb("one", [("usr/a", b"1", 0o644), ("usr/b", b"1", 0o644)])})[0].members
    after = build(tmp_path, {"one": deb("one", [("usr/a", b"1", 0o755), ("usr/b", b"2", 0o644)])})[0].members
    assert "/usr/a is 'file 0755" in first_difference(before, after)
    assert first_difference(before, before) == ""


def test_two_packages_with_different_files_of_one_name(tmp_path: Path) -> None:
    debs = {name: deb(name, [("usr/x", name.encode(), 0o644)]) for name in ("one", "two")}
    with pytest.raises(ContainerError, match="/usr/x is in one and in two, with different contents"):
        build(tmp_path, debs)


def test_a_hard_link_to_an_excluded_file(tmp_path: Path) -> None:
    debs = {"one": deb("one", [("usr/share/doc/x", b"x", 0o644), ("usr/y", b"usr/share/doc/x", 0o100644)])}
    with pytest.raises(ContainerError, match="hard link to /usr/share/doc/x, which is excluded"):
        build(tmp_path, debs)


@pytest.mark.parametrize("name", ["../etc/passwd", "./../../x", "usr/../../x"])
def test_members_outside_the_rootfs(name: str) -> None:
    with pytest.raises(ContainerError, match="outside the rootfs"):
        merged(name)


@pytest.mark.parametrize("cut", [0, 7, 60, 200, -40])
def test_a_cut_package(tmp_path: Path, cut: int) -> None:
    package = deb("one", [("usr/x", bytes(range(256)) * 40, 0o644)])
    with pytest.raises(ContainerError, match="not a valid Debian package"):
        build(tmp_path, {"one": package[:cut]})


def test_dpkg_sees_the_packages(tmp_path: Path) -> None:
    build(tmp_path, {name: deb(name, files) for name, files in PACKAGES.items()})
    with tarfile.open(tmp_path / "root.tar") as archive:
        status = archive.extractfile("var/lib/dpkg/status")
        assert status is not None
        text = status.read().decode()
    assert text.count("Status: install ok installed\n") == 2
    assert text.startswith("Package: one\nStatus")


def test_a_member_below_a_link(tmp_path: Path) -> None:
    files: list[File] = [("usr/share/x", str(tmp_path).encode(), 0o120777), ("usr/share/x/file", b"1", 0o644)]
    with pytest.raises(
        ContainerError, match="/usr/share/x/file is below /usr/share/x, which is not a folder"
    ):
        build(tmp_path, {"one": deb("one", files)})
