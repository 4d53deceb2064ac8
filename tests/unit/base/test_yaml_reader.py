"""Scalars are those of YAML 1.2; what a manifest must not hold is refused with its line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from aotforge.base.yaml_reader import parse_yaml
from aotforge.errors import ManifestError

FILE = Path("file.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "off",
        "yes",
        "no",
        "y",
        "n",
        "1:30",
        "1_000",
        "0b11",
        "2026-01-01",
        "0.11.2b",
        "2.x",
        ".",
        "=",
        "+",
    ],
)
def test_plain_words_are_strings(text: str) -> None:
    assert parse_yaml(f"key: {text}", FILE).value() == {"key": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("[1, on, [no]]", [1, "on", ["no"]]),
        ("{on: off}", {"on": "off"}),
    ],
)
def test_scalars_of_the_core_schema(text: str, value: object) -> None:
    found = parse_yaml(f"key: {text}", FILE).value()["key"]
    assert found == value and type(found) is type(value)


def test_keys_are_scalars_of_the_core_schema() -> None:
    assert parse_yaml("on: 1\n2: 2\n<<: {a: 1}\n", FILE).value() == {"on": 1, 2: 2, "<<": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3", 3, "duplicate key 'a'"),
        ("a:\n  b: 1\n  'b': 2", 3, "duplicate key 'b'"),
        ("1: a\n0x1: b", 2, "duplicate key 1"),
        ("a: &x 1\nb: *x", 1, "an alias"),
        ("a: &x\n- *x", 1, "an alias"),
        ("a: 1\nb: !!int x", 2, "'x' is not a valid tag"),
        ("a: !!python/name:os.system x", 1, "is not a valid tag"),
        ("a: !!set {x}", 1, "unknown tag"),
        ("a: 1\n? [b]\n: 2", 2, "a key is not a scalar"),
        ("a: 1\n---\nb: 2", 2, "another document"),
        ("a: " + "[" * 300_000, 1, "nested deeper than"),
    ],
)
def test_refused_documents_name_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ManifestError, match=message) as caught:
        parse_yaml(text, FILE).value()
    assert caught.value.what.startswith(f"file.yaml:{line}: ")
