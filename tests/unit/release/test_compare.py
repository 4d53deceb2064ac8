"""Comparison of release documents and archives."""

from __future__ import annotations

import tracemalloc
import zipfile
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
