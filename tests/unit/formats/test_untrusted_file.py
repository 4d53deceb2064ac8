"""Bounded reads, and JSON that is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.formats.untrusted_file import parse_json, read_regular


def test_bounds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, limit=5) == b"12345"
    with pytest.raises(OSError, match="it is larger than 4 bytes"):
        read_regular(path, limit=4)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "other")


@pytest.mark.parametrize("text", ["[" * 100_000, "{", b"\xff", "", "nan"])
def test_texts_that_are_not_json(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting|codec|column"):
        parse_json(text)


def test_values() -> None:
    assert parse_json(b'{"a": [1, null]}') == {"a": [1, None]}
