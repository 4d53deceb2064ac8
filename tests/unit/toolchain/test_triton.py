"""The toolchain digest over an installation made up for the test."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from aotforge.errors import ToolchainError
from aotforge.toolchain.triton import _files_digest


def _install(root: Path, files: dict[str, bytes]) -> str:
    lines = []
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join(
        [
            *lines,
            "../../../bin/tool,sha256=xyz,10",
            "triton/a.cpython-311.pyc,,",
            "triton-1.dist-info/RECORD,,",
        ]
    )


_FILES = {"triton/a.py": b"a = 1\n", "triton/b/lib.so": b"\x7fELF"}


def test_equal_installations_have_equal_digests_wherever_they_are(tmp_path: Path) -> None:
    record = _install(tmp_path / "x", _FILES)
    shuffled = "\n".join(reversed(record.splitlines()))
    _install(tmp_path / "y", _FILES)
    first = _files_digest(tmp_path / "x", record)
    assert _files_digest(tmp_path / "y", shuffled) == first
    assert (
        _files_digest(tmp_path / "z", _install(tmp_path / "z", {**_FILES, "triton/a.py": b"a = 2\n"}))
        != first
    )


@pytest.mark.parametrize(("name", "data"), [("triton/a.py", b"a = 3\n"), ("triton/b/lib.so", b"\x7fEL")])
def test_altered_files_are_named(tmp_path: Path, name: str, data: bytes) -> None:
    record = _install(tmp_path, _FILES)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ToolchainError, match=name):
        _files_digest(tmp_path, record)
    (tmp_path / name).unlink()
    with pytest.raises(ToolchainError, match=name):
        _files_digest(tmp_path, record)


def test_an_installation_without_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no RECORD"):
        _files_digest(tmp_path, "")
