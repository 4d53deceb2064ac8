"""Recorded fuzzing campaigns and their table in docs/fuzzing.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.campaigns.fuzzing.libfuzzer import FUZZERS
from tests.campaigns.fuzzing.target import ROOT, sources_digest
from tests.campaigns.fuzzing.targets import TARGETS

PAGE = ROOT / "docs" / "fuzzing.md"
RESULTS = Path(__file__).parent / "results.json"
NAMES = (*TARGETS, *FUZZERS)
_BEGIN, _END = "<!-- results -->\n", "<!-- end of results -->\n"
_COLUMNS = {
    "CPU minutes": "minutes",
    "runs": "runs",
    "corpus": "corpus",
    "lines": "lines",
    "findings": "findings",
}

Row = Mapping[str, Any]


def digest_of(name: str) -> str:
    """The digest of the sources that a target tests."""
    if name in FUZZERS:
        return sources_digest((*FUZZERS[name][1], f"runtime/fuzz/fuzz_{FUZZERS[name][0]}"))
    return sources_digest(TARGETS[name].modules, TARGETS[name].packages)


def added(before: Row | None, row: Row) -> Row:
    """A campaign's result and earlier ones of the same sources together; earlier ones of other sources do not count."""
    if before is None or before["sources"] != row["sources"]:
        return row
    total = {key: before[key] + row[key] for key in ("minutes", "runs", "findings")}
    return {**row, **total, "lines": max(before["lines"], row["lines"])}


def record(name: str, row: Row) -> None:
    """Adds one target's result to the recorded ones and updates the page."""
    rows = json.loads(RESULTS.read_text())
    rows[name] = added(rows.get(name), row)
    RESULTS.write_text(json.dumps({name: rows[name] for name in NAMES if name in rows}, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text()))


def page(text: str) -> str:
    """docs/fuzzing.md with the recorded results."""
    rows = json.loads(RESULTS.read_text())
    table = [f"| target | {' | '.join(_COLUMNS)} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for name, row in rows.items():
        shown = [f"{row[key]:.1f}" if key == "minutes" else f"{row[key]:,}" for key in _COLUMNS.values()]
        table.append(f"| {name} | {' | '.join(shown)} |")
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n" + "\n".join(table) + "\n\n" + _END + rest.partition(_END)[2]
