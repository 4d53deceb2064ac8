"""The compatibility matrix as a terminal table, JSON and HTML."""

import itertools
import textwrap
from collections.abc import Iterable, Sequence

from aotforge.base.html import render
from aotforge.conformance.matrix import Compatibility
from aotforge.conformance.matrix_models import Row, Statement
from aotforge.formats.api_level import feature_level, library_name

WIDTH = 100
PROJECTS = {"upstream": "pytorch/pytorch", "rocm-fork": "ROCm/pytorch, release branches"}
NO_HARDWARE = "no report of a GPU's owner was imported yet (./dev hardware.check)"
_COLOURS = {"build": "32", "drop-in": "32", "partly": "33", "unknown": "33", "no": "31"}
_COLUMNS = {
    "PyTorch": 15,
    "pins": 15,
    "compiles with": 17,
    "drop-in only": 8,
    "must not be given": 17,
    "ours": 14,
}


def matrix_page(compat: Compatibility) -> str:
    """An HTML page of its own."""
    return _html("compat_page.html", compat)


def matrix_html(compat: Compatibility) -> str:
    """A `<section class="compat">` with its own style, for any HTML page."""
    return _html("compat_matrix.html", compat)


def _html(template: str, compat: Compatibility) -> str:
    return render(
        template,
        compat=compat,
        numbers=_note_numbers(compat),
        projects=PROJECTS,
        hardware=hardware_lines(compat),
    )


def _note_numbers(compat: Compatibility) -> dict[str, int]:
    return {name: number for number, name in enumerate(compat.matrix.notes, 1)}


def matrix_text(compat: Compatibility, *, colour: bool = False) -> str:
    """A table of at most 100 columns, with its footnotes."""
    numbers = _note_numbers(compat)
    lines = [
        f"AOTriton for PyTorch; `ours`: this checkout's API level {compat.level} ({compat.release.api_level})",
        "",
    ]
    for project, title in PROJECTS.items():
        lines += [title, _line(list(_COLUMNS)), "-" * WIDTH]
        lines += [
            line
            for row in compat.rows
            if row.project == project
            for line in _row(compat, row, numbers, colour)
        ]
        lines.append("")
    services = map(compat.service, compat.rows)
    sections = {
        "Run on hardware:": hardware_lines(compat),
        "Why ours does not serve a row:": (f"{s.row.name}: {s.reason}" for s in services if s.reason),
        "Notes:": (
            f"[{numbers[name]}] {note.text} (evidence: {note.evidence})"
            for name, note in compat.matrix.notes.items()
        ),
        "Evidence:": (f"{kind}: {text}" for kind, text in compat.matrix.evidence.items()),
    }
    for title, texts in sections.items():
        lines += [title, *(line for text in texts for line in _wrapped(text, "  ")), ""]
    return "\n".join(lines[:-1])


def hardware_lines(compat: Compatibility) -> tuple[str, ...]:
    """One line per imported report, or that there is none."""
    return tuple(run.line for run in compat.hardware) or (NO_HARDWARE,)


def _row(compat: Compatibility, row: Row, numbers: dict[str, int], colour: bool) -> list[str]:
    title = row.version + (f" {row.period}" if row.period else "")
    word = compat.service(row).word
    if row.status != "supported":
        return _cells([title, "-", "-", "-", "-", word], colour) + _wrapped(row.remarks[0], " " * 4)
    cells = [
        f"{title} {''.join(f'[{numbers[name]}]' for name in row.notes)}",
        ", ".join(row.releases("pins")),
        ", ".join(row.releases("compiles")) or "-",
        ", ".join(row.releases("drop-in-only")) or "-",
        "; ".join(row.prohibitions()) or "-",
        word,
    ]
    readme = [f"README: {'; '.join(row.documented())}"] if row.documented() else []
    commits = [f"commit {s.commit}" for s in row.statements if s.commit]
    seen = [f"{needed.wheel} needs {needed.name}" for needed in row.needs]
    below = (*_delivered(row), *seen, *readme, *commits, *row.remarks)
    return [*_cells(cells, colour), *(line for text in below for line in _wrapped(text, " " * 4))]


def _delivered(row: Row) -> list[str]:
    return ["; ".join(row.delivery.facts)] if row.delivery else []


def _cells(cells: Sequence[str], colour: bool) -> list[str]:
    wrapped = [
        textwrap.wrap(text, width, break_on_hyphens=False) or [""]
        for text, width in zip(cells, _COLUMNS.values(), strict=True)
    ]
    return [_line(parts, colour=colour) for parts in itertools.zip_longest(*wrapped, fillvalue="")]


def _line(parts: Sequence[str], *, colour: bool = False) -> str:
    padded = [part.ljust(width) for part, width in zip(parts, _COLUMNS.values(), strict=True)]
    last = padded[-1].rstrip()
    code = next((code for word, code in _COLOURS.items() if last.startswith(word)), "") if colour else ""
    padded[-1] = f"\x1b[{code}m{last}\x1b[0m" if code else last
    return "  ".join(padded).rstrip()


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
    """The matrix for `--json`: the file's content, our level, and our use for every row."""
    return {
        "level": compat.level,
        "api": compat.release.api_level,
        "library_names": compat.names,
        "evidence": compat.matrix.evidence,
        "hardware": [run.model_dump(mode="json", by_alias=True) for run in compat.hardware],
        "notes": {name: note.model_dump(mode="json") for name, note in compat.matrix.notes.items()},
        "rows": [row_fields(compat, row) for row in compat.rows],
    }


def row_fields(compat: Compatibility, row: Row) -> dict[str, object]:
    """One row for `--json`."""
    service = compat.service(row)
    return row.model_dump(mode="json", by_alias=True) | {
        "name": row.name,
        "library_names": row.library_names,
        "ours": {
            "build": service.build,
            "drop_in": service.links,
            "partly": service.partly,
            "reason": service.reason,
        },
    }


def explain_row(compat: Compatibility, row: Row, release: str | None = None) -> str:
    """Everything known of a row, or of the row and one AOTriton release, with the evidence of each statement."""
    statements: Iterable[Statement] = compat.about(row, release) if release else row.statements
    lines = [f"{row.name}" + (f" and AOTriton {release}" if release else "")]
    if release:
        lines.append(f"  {verdict(compat, row, release)}")
    texts = []
    for s in statements:
        facts = [f"evidence: {s.evidence}"]
        facts += [f"commit {s.commit}"] if s.commit else []
        facts += [f"as of {s.as_of}, withdrawn since"] if s.as_of else []
        reason = f": {s.reason}" if s.reason else ""
        texts.append(f"- {s.relation} {', '.join(s.releases)}{reason} ({'; '.join(facts)})")
    texts += [
        f"- {needed.wheel} needs {needed.name} (evidence: {', '.join((needed.evidence, *needed.references))})"
        for needed in row.needs
    ]
    texts += [*_delivered(row), *row.remarks, *([row.calls_of] if row.calls_of else [])]
    texts += [f"note: {compat.matrix.notes[name].text}" for name in row.notes]
    service = compat.service(row)
    texts.append(
        f"ours ({compat.release.api_level}): {service.word}"
        + (f"; {service.reason}" if service.reason else "")
    )
    lines += [line for text in texts for line in _wrapped(text, "  ")]
    if service.links:
        lines.append(f"  it replaces {', '.join(service.links)}")
    return "\n".join(lines)


def explain_fields(compat: Compatibility, row: Row, release: str | None) -> dict[str, object]:
    """The same for `--json`."""
    if release is None:
        return row_fields(compat, row)
    return {
        "row": row.name,
        "aotriton": release,
        "verdict": verdict(compat, row, release),
        "statements": [s.model_dump(mode="json") for s in compat.about(row, release)],
        "notes": {name: compat.matrix.notes[name].text for name in row.notes},
    }


_BY_RELATION = {
    "pins": "is what this PyTorch pins",
    "drop-in-only": "only as a drop-in for an installed PyTorch, not to build with",
    "compiles": "compiles and links; it is not what this PyTorch pins",
}


def verdict(compat: Compatibility, row: Row, release: str) -> str:
    """One sentence on a pair; the strongest statement decides: a prohibition, then the pin, then the rest."""
    if row.status != "supported":
        return row.remarks[0]
    relations = {s.relation: s for s in reversed(compat.about(row, release)) if not s.as_of}
    if "must-not" in relations:
        return f"must not be given: {relations['must-not'].reason}"
    for relation, text in _BY_RELATION.items():
        if relation in relations:
            return text
    pins = row.releases("pins")
    if feature_level(release) in map(feature_level, pins):
        return f"a point release of what is pinned: a drop-in replacement, by a link named {library_name(pins[0])}"
    if "documented" in relations:
        return "the README lists the two together"
    return "no statement: there is no evidence that the two fit"
