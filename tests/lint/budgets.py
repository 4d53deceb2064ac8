"""The table of budgets (budgets.yaml): sizes of packages, documentation and surfaces with their limits.

python -m tests.lint.budgets     # prints the table; exits with 1 above a limit
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from aotforge.errors import INTERRUPTED, AotforgeError
from tests.support.project_files import project_files

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One budget and what it measures now."""

    name: str
    now: int
    limit: int

    def text(self) -> str:
        """A line of the table."""
        above = "  above its limit" if self.now > self.limit else ""
        return f"{self.name:<28} {self.now:>7} {self.limit:>7}{above}"


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def _kinds(base: type[AotforgeError]) -> Iterator[type[AotforgeError]]:
    yield base
    for kind in base.__subclasses__():
        yield from _kinds(kind)


def _surfaces() -> dict[str, int]:
    from aotforge.cli.settings import VARIABLES
    from tasks import namespace

    return {
        "tasks": len(namespace.task_names),
        "flags of build": len(namespace["build"].get_arguments()),
        "exit codes": len({0, INTERRUPTED, *(kind.exit_code for kind in _kinds(AotforgeError))}),
        "environment variables": len(VARIABLES),
    }


def rows() -> list[Row]:
    """Every budget of budgets.yaml, measured on the tracked files."""
    limits = yaml.safe_load((ROOT / "budgets.yaml").read_text(encoding="utf-8"))
    files = [ROOT / name for name in project_files(ROOT)]
    files = [path for path in files if path.is_file()]
    python = [path for path in files if path.suffix == ".py"]
    pages = [path for path in files if path.suffix == ".md"]
    found = [
        Row(
            name=f"{folder}/",
            now=_lines(path for path in python if (ROOT / folder) in path.parents),
            limit=limit,
        )
        for folder, limit in limits["python_lines"].items()
    ]
    found += [
        Row(name=name, now=_lines([ROOT / name]), limit=limit) for name, limit in limits["lines"].items()
    ]
    words = sum(len(re.findall(r"\S+", path.read_text(encoding="utf-8"))) for path in pages)
    measured = {"pages": len(pages), "words": words, **_surfaces()}
    for group in ("documentation", "surfaces"):
        found += [Row(name=name, now=measured[name], limit=limit) for name, limit in limits[group].items()]
    return found


def main() -> None:
    """Prints the table."""
    table = rows()
    sys.stdout.write(
        f"{'budget':<28} {'now':>7} {'limit':>7}\n" + "".join(f"{row.text()}\n" for row in table)
    )
    if any(row.now > row.limit for row in table):
        sys.exit(
            "budgets: above a limit; shorten, or raise its row in budgets.yaml and say who gets what for it"
        )


if __name__ == "__main__":
    main()
