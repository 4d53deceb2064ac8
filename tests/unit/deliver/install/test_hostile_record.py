"""Install records and trees that another program wrote: named errors, and never a wait for a pipe."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from aotforge.deliver.install.prefix import (
    RECORD,
    InstallRecord,
    changed_files,
    check_other_files,
    read_record,
    uninstall,
    write_record,
)
from aotforge.errors import InstallError, OutputError
from aotforge.formats.archive import sha256_file

GOOD: dict[str, Any] = {"format": 2, "release": "0.11.2b-r1", "archs": {}, "archives": {}, "files": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"files": ["lib/x"]},
        {"files": {"lib/x": 1}},
        {"files": {"/etc/passwd": "0"}},
        {"files": {"../x": "0"}},
        {"files": {"lib//x": "0"}},
        {"files": {"x" * 256: "0"}},
        {"files": {"/".join("x" * 2000): "0"}},
        {"files": {"\ud800": "0"}},
        {"archs": []},
        {"archives": "x"},
        {"release": {}},
    ],
)
def test_a_hostile_record_is_a_named_error(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / RECORD).write_text(json.dumps(GOOD | change))
    with pytest.raises(InstallError, match="cannot be used"):
        read_record(tmp_path)


@pytest.mark.parametrize("text", ["[" * 200000, "{", "[]", "null", ""])
def test_other_texts_are_named_errors(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(InstallError, match="cannot be used"):
        read_record(tmp_path)


def test_pipes_are_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / RECORD)
    with pytest.raises(InstallError, match="not a regular file"):
        read_record(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    tmp_path.chmod(0o755)
    record = InstallRecord(release="r", archs={}, archives={}, files={"pipe": "0" * 64})
    assert changed_files(tmp_path, record) == ["pipe"]
    with pytest.raises(InstallError, match="was not installed"):
        check_other_files(tmp_path, InstallRecord(release="r", archs={}, archives={}, files={}))


def test_a_tree_that_others_cannot_read_is_restored(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "file").write_text("x")
    files = {"lib/file": sha256_file(tmp_path / "lib" / "file")}
    record = InstallRecord(release="r", archs={}, archives={}, files=files)
    tmp_path.chmod(0o755)
    (tmp_path / "lib").chmod(0o755)
    (tmp_path / "lib" / "file").chmod(0o644)
    write_record(tmp_path, record)
    assert changed_files(tmp_path, record) == [] and (tmp_path / RECORD).stat().st_mode & 0o777 == 0o644
    (tmp_path / "lib").chmod(0o700)
    assert changed_files(tmp_path, record) == ["lib"]
    (tmp_path / "lib").chmod(0o755)
    (tmp_path / "lib" / "file").chmod(0o600)
    assert changed_files(tmp_path, record) == ["lib/file"]


@pytest.mark.parametrize("name", [".", "lib", "lib/file", RECORD])
def test_a_tree_that_others_can_write_is_restored(name: str, tmp_path: Path) -> None:
    """As it was installed with umask 000 by earlier versions."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "file").write_text("x")
    (tmp_path / "lib" / "link").symlink_to("file")
    files = {"lib/file": sha256_file(tmp_path / "lib" / "file"), "lib/link": "-> file"}
    record = InstallRecord(release="r", archs={}, archives={}, files=files)
    write_record(tmp_path, record)
    for path, mode in ((tmp_path, 0o755), (tmp_path / "lib", 0o755), (tmp_path / "lib" / "file", 0o644)):
        path.chmod(mode)
    assert changed_files(tmp_path, record) == []
    mode = (tmp_path / name).stat().st_mode
    for more in (0o002, 0o020):
        (tmp_path / name).chmod(mode | more)
        assert changed_files(tmp_path, record) == [name]
    (tmp_path / name).chmod(mode)
    if os.geteuid() == 0 and name != ".":
        os.chown(tmp_path / name, 64042, 0)
        assert changed_files(tmp_path, record) == [name]


def test_deep_names_of_a_record_take_little_memory(tmp_path: Path) -> None:
    """Each of 2,047 bytes has a thousand folders: a record of 16 MB took gigabytes."""
    files = {f"{number}/" + "/".join("a" * 1000): "0" for number in range(20)}
    record = InstallRecord(release="r", archs={}, archives={}, files=files)
    write_record(tmp_path, record)
    tmp_path.chmod(0o755)
    tracemalloc.start()
    assert changed_files(tmp_path, record) == sorted(files)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a link of another user")
def test_a_link_of_another_user_on_the_way_is_not_followed(tmp_path: Path) -> None:
    """Another installation of this user was removed, or replaced."""
    mine, others = tmp_path / "mine", tmp_path / "others"
    (mine / "aotriton").mkdir(parents=True)
    write_record(mine / "aotriton", InstallRecord(release="r", archs={}, archives={}, files={}))
    others.mkdir()
    (others / "x").symlink_to(mine)
    os.chown(others / "x", 64042, 64042, follow_symlinks=False)
    with pytest.raises(OutputError, match="belongs to user 64042"):
        uninstall(others / "x" / "aotriton")
    assert (mine / "aotriton" / RECORD).exists()
    os.chown(others / "x", 0, 0, follow_symlinks=False)
    assert uninstall(others / "x" / "aotriton") == ("r", 0)
    for prefix in (mine / "aotriton", tmp_path / "none" / "aotriton"):
        with pytest.raises(InstallError, match="nothing is installed"):
            uninstall(prefix)
