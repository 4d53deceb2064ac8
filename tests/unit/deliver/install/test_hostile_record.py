"""Install records and trees that another program wrote: named errors, and never a wait for a pipe."""

from __future__ import annotations

import json
import os
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
)
from aotforge.errors import InstallError

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
    record = InstallRecord(release="r", archs={}, archives={}, files={"pipe": "0" * 64})
    assert changed_files(tmp_path, record) == ["pipe"]
    with pytest.raises(InstallError, match="was not installed"):
        check_other_files(tmp_path, InstallRecord(release="r", archs={}, archives={}, files={}))


@pytest.mark.parametrize("name", ["missing", "missing/prefix", "empty"])
def test_uninstalling_where_nothing_is_makes_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InstallError, match="nothing is installed"):
        uninstall(tmp_path / name)
    assert not (tmp_path / "missing").exists()
