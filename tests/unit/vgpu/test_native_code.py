"""Native code in the cache is used with the bytes that were made, from folders that only this user can
write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vgpu.native_code import NativeCode, is_intact

CODE = NativeCode("a test library", "test-1", "C")


def build(made: Path) -> None:
    made.write_bytes(b"library")


def build_folder(made: Path) -> None:
    made.mkdir()
    (made / "library.so").write_bytes(b"library")
    (made / "link.so").symlink_to("library.so")


def refuse(made: Path) -> None:
    pytest.fail("it was made again")


def test_it_is_made_once(tmp_path: Path) -> None:
    path = CODE.store(tmp_path, ["a"], build, suffix=".so")
    assert path.read_bytes() == b"library" and is_intact(path)
    assert CODE.store(tmp_path, ["a"], refuse, suffix=".so") == path
    folder = CODE.store(tmp_path, ["b"], build_folder)
    assert CODE.store(tmp_path, ["b"], refuse) == folder


@pytest.mark.parametrize("content", [b"", b"libra", b"another library"])
def test_a_truncated_or_replaced_library_is_made_again(tmp_path: Path, content: bytes) -> None:
    path = CODE.store(tmp_path, ["a"], build, suffix=".so")
    path.write_bytes(content)
    assert CODE.store(tmp_path, ["a"], build, suffix=".so").read_bytes() == b"library"
    path.with_name(f"{path.name}.sha256").write_text("")
    assert not is_intact(path) and is_intact(CODE.store(tmp_path, ["a"], build, suffix=".so"))


def _change(path: Path) -> None:
    (path / "library.so").write_bytes(b"")


def _relink(path: Path) -> None:
    (path / "link.so").unlink()
    (path / "link.so").symlink_to("/tmp/evil.so")


def _add(path: Path) -> None:
    (path / "evil.so").write_bytes(b"")


@pytest.mark.parametrize("change", [_change, _relink, _add])
def test_a_changed_folder_is_made_again(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = CODE.store(tmp_path, ["b"], build_folder)
    change(path)
    assert not is_intact(path)
    assert is_intact(CODE.store(tmp_path, ["b"], build_folder))
    assert not (path / "evil.so").exists() and (path / "link.so").read_bytes() == b"library"


def test_writers_that_end_together_leave_one_folder(tmp_path: Path) -> None:
    code, together = NativeCode("the library", "kept", "C"), threading.Barrier(8)

    def build(made: Path) -> None:
        made.mkdir()
        (made / "file").write_text("the same")
        together.wait()

    with ThreadPoolExecutor(8) as threads:
        for number in range(20):
            stored = [threads.submit(code.store, tmp_path, [str(number)], build) for _ in range(8)]
            assert len({one.result() for one in stored}) == 1
