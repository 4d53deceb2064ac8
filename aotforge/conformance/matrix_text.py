"""The matrix for people on a terminal, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from aotforge.conformance.matrix import Compatibility
from aotforge.conformance.matrix_models import Row, Statement, feature_level, library_name

WIDTH = 100
_COLOURS = {"build": "32", "drop-in": "32", "partly": "33", "unknown": "33", "no": "31"}
_COLUMNS = (
    ("PyTorch", 15),
    ("pins", 15),
    ("compiles with", 17),
    ("drop-in only", 8),
    ("must not be given", 17),
    ("ours", 14),
)
_GAP = 2


def note_numbers(compat: Compatibility) -> dict[str, int]:
    """Footnotes by their number, in the file's order."""
    return {name: number for number, name in enumerate(compat.matrix.notes, 1)}


def prohibited(row: Row) -> list[str]:
    """E.g. `0.9b, 0.9.1b: link trouble`, one text per prohibition."""
    return [f"{', '.join(s.releases)}: {s.reason}" for s in row.statements if s.relation == "must-not"]


def matrix_text(compat: Compatibility, *, colour: bool = False) -> str:
    """The matrix as a table of at most 100 columns, with its footnotes."""
    numbers = note_numbers(compat)
    lines = [f"AOTriton for PyTorch; `ours`: this checkout's API level {compat.level} ({compat.api})", ""]
    for project, title in (
        ("upstream", "pytorch/pytorch"),
        ("rocm-fork", "ROCm/pytorch, release branches"),
    ):
        lines += [title, _line([name for name, _ in _COLUMNS]), "-" * WIDTH]
        for row in compat.rows:
            if row.project == project:
                lines += _row(compat, row, numbers, colour)
        lines.append("")
    lines += ["Why ours does not serve a row:"]
    for service in map(compat.service, compat.rows):
        if service.reason:
            lines += _wrapped(f"{service.row.name}: {service.reason}", "  ")
    lines += ["", "Notes:"]
    for name, note in compat.matrix.notes.items():
        lines += _wrapped(f"[{numbers[name]}] {note.text} (evidence: {note.evidence})", "  ")
    lines += ["", "Evidence:"]
    for kind, text in compat.matrix.evidence.items():
        lines += _wrapped(f"{kind}: {text}", "  ")
    return "\n".join(lines)


def _row(compat: Compatibility, row: Row, numbers: dict[str, int], colour: bool) -> list[str]:
    notes = "".join(f"[{numbers[name]}]" for name in row.notes)
    title = row.pytorch + (" and older" if row.and_older else "") + (f" {row.period}" if row.period else "")
    if row.status != "supported":
        cells = [title, "-", "-", "-", "-", compat.service(row).word]
        return _cells(cells, colour) + _wrapped(row.remarks[0], " " * 4)
    pins = ", ".join(row.releases("pins"))
    cells = [
        f"{title} {notes}",
        pins,
        ", ".join(row.releases("compiles")) or "-",
        ", ".join(row.releases("drop-in-only")) or "-",
        "; ".join(prohibited(row)) or "-",
        compat.service(row).word,
    ]
    found = _cells(cells, colour)
    for text in (*_delivered(row), *_documented(row), *row.remarks):
        found += _wrapped(text, " " * 4)
    return found


def _delivered(row: Row) -> list[str]:
    delivery = row.delivery
    if delivery is None:
        return []
    parts = [f"{delivery.link}, {delivery.from_}"]
    parts += [delivery.manylinux] if delivery.manylinux else []
    parts += [f"ROCm {' '.join(delivery.rocm)}"] if delivery.rocm else []
    parts += [f"images {' '.join(delivery.images)}"] if delivery.images else []
    return ["; ".join(parts)]


def _documented(row: Row) -> list[str]:
    found = [
        ", ".join(s.releases) + (f" ({s.as_of})" if s.as_of else "")
        for s in row.statements
        if s.relation == "documented"
    ]
    commits = [s.commit for s in row.statements if s.commit]
    return [*([f"README: {'; '.join(found)}"] if found else []), *(f"commit {c}" for c in commits)]


def _cells(cells: Sequence[str], colour: bool) -> list[str]:
    wrapped = [
        textwrap.wrap(text, width, break_on_hyphens=False) or [""]
        for text, (_, width) in zip(cells, _COLUMNS, strict=True)
    ]
    lines = []
    for number in range(max(map(len, wrapped))):
        parts = [column[number] if number < len(column) else "" for column in wrapped]
        lines.append(_line(parts, colour=colour))
    return lines


def _line(parts: Sequence[str], *, colour: bool = False) -> str:
    padded = [part.ljust(width) for part, (_, width) in zip(parts, _COLUMNS, strict=True)]
    if colour and padded[-1].strip():
        padded[-1] = _paint(padded[-1].rstrip())
    return (" " * _GAP).join(padded).rstrip()


def _paint(text: str) -> str:
    code = next((code for word, code in _COLOURS.items() if text.startswith(word)), "")
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def matrix_fields(compat: Compatibility) -> dict[str, object]:
    """The matrix for `--json`: the file's content, our level, and our place in every row."""
    return {
        "level": compat.level,
        "api": compat.api,
        "library_names": compat.names,
        "evidence": compat.matrix.evidence,
        "notes": {name: note.model_dump(mode="json") for name, note in compat.matrix.notes.items()},
        "rows": [row_fields(compat, row) for row in compat.rows],
    }


def row_fields(compat: Compatibility, row: Row) -> dict[str, object]:
    """One row for `--json`."""
    service = compat.service(row)
    return row.model_dump(mode="json", by_alias=True) | {
        "name": row.name,
        "ours": {
            "build": service.build,
            "drop_in": service.links,
            "partly": service.partly,
            "reason": service.reason,
        },
    }


def explain_row(compat: Compatibility, row: Row, release: str | None = None) -> str:
    """All that is known of a row, or of the row and one AOTriton release, with the evidence of each statement."""
    statements: Iterable[Statement] = compat.about(row, release) if release else row.statements
    lines = [f"{row.name}" + (f" and AOTriton {release}" if release else "")]
    if release:
        lines.append(f"  {verdict(compat, row, release)}")
    for s in statements:
        what = f"{s.relation} {', '.join(s.releases)}" + (f": {s.reason}" if s.reason else "")
        extra = [f"evidence: {s.evidence}"]
        extra += [f"commit {s.commit}"] if s.commit else []
        extra += [f"as of {s.as_of}, withdrawn since"] if s.as_of else []
        lines += _wrapped(f"- {what} ({'; '.join(extra)})", "  ")
    for text in (*_delivered(row), *row.remarks, *([row.calls_of] if row.calls_of else [])):
        lines += _wrapped(text, "  ")
    for name in row.notes:
        lines += _wrapped(f"note: {compat.matrix.notes[name].text}", "  ")
    service = compat.service(row)
    lines += _wrapped(
        f"ours ({compat.api}): {service.word}" + (f"; {service.reason}" if service.reason else ""), "  "
    )
    if service.links:
        lines.append(f"  it takes the place of {', '.join(service.links)}")
    return "\n".join(lines)


def explain_fields(compat: Compatibility, row: Row, release: str | None) -> dict[str, object]:
    """The same for `--json`."""
    if release is None:
        return row_fields(compat, row)
    return {
        "row": row.name,
        "aotriton": release,
        "verdict": verdict(compat, row, release),
        "statements": [s.model_dump(mode="json", by_alias=True) for s in compat.about(row, release)],
        "notes": {name: compat.matrix.notes[name].text for name in row.notes},
    }


_WORDS = {
    "pins": "is what this PyTorch pins",
    "drop-in-only": "only as a drop-in for an installed PyTorch, not to build with",
    "compiles": "compiles and links; it is not what this PyTorch pins",
}


def verdict(compat: Compatibility, row: Row, release: str) -> str:
    """One sentence on a pair; the strongest statement wins: a prohibition, then the pin, then the rest."""
    if row.status != "supported":
        return row.remarks[0]
    said = {s.relation: s for s in reversed(compat.about(row, release)) if not s.as_of}
    if "must-not" in said:
        return f"must not be given: {said['must-not'].reason}"
    for says, words in _WORDS.items():
        if says in said:
            return words
    if _point_release_of_pin(row, release):
        pin = library_name(row.releases("pins")[0])
        return f"a point release of what is pinned: a drop-in replacement, by a link named {pin}"
    known = "documented" in said
    return "the README lists the two together" if known else "no statement: nothing says that the two fit"


def _point_release_of_pin(row: Row, release: str) -> bool:
    return any(feature_level(pin) == feature_level(release) for pin in row.releases("pins"))
