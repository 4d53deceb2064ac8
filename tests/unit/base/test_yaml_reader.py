"""YAML files: what a manifest must not hold is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.base.manifest_reader import parse_yaml, write_yaml
from aotforge.errors import ManifestError

FILE = Path("file.yaml")


@pytest.mark.parametrize("text", ["2026-01-01", "0.11.2b", "2.x", "gfx908", "n"])
def test_plain_words_are_strings(text: str) -> None:
    assert parse_yaml(f"key: {text}", FILE).values == {"key": text}


def test_what_is_written_is_read_as_the_same_values() -> None:
    values = {"date": "2026-01-01", "word": "on", "number": "12", "hex": "0x1f", "list": [1, None, True, 1.5]}
    assert parse_yaml(write_yaml(values), FILE).values == values


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3", 3, "duplicate key 'a'"),
        ("a:\n  b: 1\n  'b': 2", 3, "duplicate key 'b'"),
        ("1: a\n0x1: b", 2, "duplicate key 1"),
        ("a: !!python/name:os.system x", 1, "could not determine a constructor"),
        ("a: 1\n---\nb: 2", 2, "another document"),
    ],
)
def test_refused_documents_name_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ManifestError, match=message) as caught:
        parse_yaml(text, FILE)
    assert caught.value.what.startswith(f"file.yaml:{line}: ")
