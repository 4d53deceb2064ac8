"""Recorded fuzzing campaigns and their table in docs/fuzzing.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.campaigns.fuzzing.targets import TARGETS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "fuzzing.md"
_FILE = Path(__file__).parent / "results.json"
_BEGIN, _END = "<!-- results -->\n", "<!-- end of results -->\n"
_COLUMNS = ("minutes", "runs", "corpus", "lines", "findings")


def record(name: str, row: Mapping[str, float]) -> None:
    """Stores one target's result and updates the page."""
    rows = json.loads(_FILE.read_text()) | {name: row}
    _FILE.write_text(json.dumps({name: rows[name] for name in TARGETS if name in rows}, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text()))


def page(text: str) -> str:
    """docs/fuzzing.md with the recorded results."""
    rows = json.loads(_FILE.read_text())
    table = [f"| target | {' | '.join(_COLUMNS)} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for name, row in rows.items():
        shown = [f"{row[column]:g}" if column == "minutes" else f"{row[column]:,}" for column in _COLUMNS]
        table.append(f"| {name} | {' | '.join(shown)} |")
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n" + "\n".join(table) + "\n\n" + _END + rest.partition(_END)[2]
