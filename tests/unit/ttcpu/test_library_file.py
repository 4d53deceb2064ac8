"""The file that a kernel's library is loaded from."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from ttcpu.launch import _library_file


def test_a_library_in_the_temporary_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with _library_file("kernel", b"code") as path:
        assert path.parent == tmp_path
    assert not path.exists()
