"""Comparison of documents that others made: what is named stays in proportion to what is read."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aotforge.errors import ReleaseError
from aotforge.release.compare import _RESOURCES, compare_archives, compare_documents


def document(**changes: Any) -> dict[str, Any]:
    return {
        "release": "0.11.2b-r1",
        "origin": {"commit": "c", "tools": {"compiler": "g++"}},
        "toolchain": {"triton_version": "3"},
        "packs": [pack(jobs=1)],
        "files": [],
        **changes,
    }


def pack(*, jobs: int, **image: Any) -> dict[str, Any]:
    row = {
        "digest": "d",
        "resources": dict.fromkeys(_RESOURCES, 1),
        "verdict": None,
        "jobs": [{"label": f"label {number}"} for number in range(jobs)],
        **image,
    }
    return {"name": "amd-a", "profile": "p", "archs": ["gfx908"], "images": [row]}


def labelled(label: str) -> dict[str, Any]:
    found = pack(jobs=1)
    found["images"][0]["jobs"] = [{"label": label}]
    return found


ODD: dict[str, Mapping[str, Any]] = {
    "a long key of many values": {"origin": {"k" * 1_000_000: {str(number): 0 for number in range(1500)}}},
    "deep keys": {"origin": json.loads('{"kkkk":' * 200 + "0" + "}" * 200)},
    "a long value": {"toolchain": {"triton_version": "9" * 2001}},
    "many values": {"toolchain": {str(number): 0 for number in range(1001)}},
    "a long label": {"packs": [labelled("x" * 301)]},
    "many jobs": {"packs": [pack(jobs=65_537)]},
    "a long number of many jobs": {"packs": [pack(jobs=1000, resources=dict.fromkeys(_RESOURCES, [0] * 100_000))]},
    "a long outcome": {"packs": [pack(jobs=1000, verdict={"outcome": "x" * 301})]},
    "a long digest": {"packs": [pack(jobs=1000, digest="x" * 301)]},
    "long archs": {"packs": [pack(jobs=1) | {"archs": ["gfx908"] * 1000}]},
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_values_that_would_be_repeated_are_short(what: str) -> None:
    """A key of a megabyte above 1500 values took 1.5 GB."""
    odd = document(**ODD[what])
    tracemalloc.start()
    with pytest.raises(ReleaseError, match=r"cannot be compared: ValueError: .* allowed|more than"):
        compare_documents(document(), odd)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_what_a_build_writes_is_compared() -> None:
    other = document(toolchain={"triton_version": "9", "environment": [["a", "b"]]}, packs=[pack(jobs=2)])
    found = [(one.kind, one.name, one.before, one.after) for one in compare_documents(document(), other)]
    assert found == [
        ("toolchain", "environment", "", "[['a', 'b']]"),
        ("toolchain", "triton_version", "3", "9"),
        ("image", "label 1", "", "d"),
    ]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_of_another_compression_is_not_unpacked(method: int, tmp_path: Path) -> None:
    """Python unpacks these in pieces without a limit: 2 kB took 6 GB."""
    path = tmp_path / "aotriton-0.11.2b-r1-windows.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("member", bytes(64 << 20))
    data = bytearray(path.read_bytes())
    for at in (22, data.rindex(b"PK\1\2") + 24):  # the size in both headers
        data[at : at + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(ReleaseError, match="neither stored nor deflated"):
        compare_archives(path, path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
