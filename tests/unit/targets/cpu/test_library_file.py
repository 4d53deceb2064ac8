"""The file that a kernel's library is loaded from: no other user can exchange it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from aotforge.errors import CacheError
from aotforge.targets.cpu.launch import _library_file


def test_a_library_is_kept_where_the_user_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTFORGE_CPU_LIBRARIES", str(tmp_path / "new" / "kernels"))
    with _library_file("kernel", b"code") as path:
        assert path.parent == tmp_path / "new" / "kernels"
    assert path.read_bytes() == b"code"


def test_no_library_is_loaded_from_a_folder_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They exchange the file before it is loaded."""
    tmp_path.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for kept, named in ((None, "TMPDIR"), (str(tmp_path), "AOTFORGE_CPU_LIBRARIES")):
        monkeypatch.delenv("AOTFORGE_CPU_LIBRARIES", raising=False)
        if kept:
            monkeypatch.setenv("AOTFORGE_CPU_LIBRARIES", kept)
        with (
            pytest.raises(CacheError, match="mode 777: others can replace") as caught,
            _library_file("kernel", b"code"),
        ):
            pass
        assert named in caught.value.hint
    assert list(tmp_path.iterdir()) == []
    tmp_path.chmod(0o1777)
    monkeypatch.delenv("AOTFORGE_CPU_LIBRARIES")
    with _library_file("kernel", b"code") as path:  # as /tmp is
        assert path.parent == tmp_path
    assert not path.exists()
