"""The table of operations in docs/cpu-backend.md is the one of the code.

    python -m tests.unit.ttcpu.test_operations_page

writes it.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict

from tests.support.families import PROJECT
from ttcpu.lowering import OPERATIONS

PAGE = PROJECT / "docs" / "cpu-backend.md"
_BEGIN, _END = "<!-- generated: operations -->\n", "<!-- end -->\n"
_CELL = 78


def table() -> str:
    """The operations by dialect."""
    dialects: dict[str, list[str]] = defaultdict(list)
    for operation in sorted(OPERATIONS):
        dialect, _, name = operation.partition(".")
        dialects[dialect].append(name)
    rows = ["| dialect | operations |", "|---|---|"]
    for dialect, names in sorted(dialects.items()):
        lines = textwrap.wrap(", ".join(names), _CELL, break_long_words=False)
        rows += [f"| {dialect if number == 0 else ''} | {line} |" for number, line in enumerate(lines)]
    return "\n".join(rows) + "\n"


def _parts() -> tuple[str, str, str]:
    head, _, rest = PAGE.read_text().partition(_BEGIN)
    found, _, tail = rest.partition(_END)
    return head, found, tail


def test_the_table_of_operations_is_current() -> None:
    assert _parts()[1] == table()


if __name__ == "__main__":
    before, _, after = _parts()
    PAGE.write_text(before + _BEGIN + table() + _END + after)
