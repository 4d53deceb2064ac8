"""The stamp of a release in the output folder: of whom, and of what."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aotforge.release.existing_release import check_replaceable

NAME = "0.11.2b-r1"
MANIFEST: Any = SimpleNamespace(name=NAME)
PLATFORM = {"measured": "m", "promised": "m", "tag": "m", "reaches": True, "reasons": []}


def output(folder: Path) -> Path:
    """A release folder with a file of the user, and a stamp that names it as made by a build. Returns the stamp."""
    (folder / NAME).mkdir()
    (folder / NAME / "notes.txt").write_text("of the user")
    release = {"name": NAME, "platform": PLATFORM, "development": [], "verified": True}
    release["files"] = [{"name": "notes.txt", "size": 11, "sha256": "0" * 64}]
    stamp = folder / f".{NAME}.stamp.json"
    stamp.write_text(json.dumps({"format": 2, "inputs": "0", "release": release}))
    return stamp


def test_files_of_a_stamp_are_replaced(tmp_path: Path) -> None:
    output(tmp_path)
    check_replaceable(MANIFEST, tmp_path, [])
