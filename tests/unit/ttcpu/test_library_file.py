"""The file that a kernel's library is loaded from."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from ttcpu.launch import load_library


def test_a_library_in_the_temporary_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match=f"{tmp_path}/kernel-.*too short"):
        load_library("kernel", b"code")
    assert list(tmp_path.iterdir()) == []
