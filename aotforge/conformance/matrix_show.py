"""The compatibility matrix and recommendations as terminal texts, JSON and HTML."""

import io
import textwrap
from functools import partial
from itertools import chain

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aotforge.base.html import render
from aotforge.conformance.matrix import Compatibility, Recommendation
from aotforge.conformance.matrix_models import Row

WIDTH = 100
PROJECTS = {"upstream": "pytorch/pytorch", "rocm-fork": "ROCm/pytorch, release branches"}
NO_HARDWARE = "no report of a GPU's owner was imported yet (./dev hardware.check)"
_COLOURS = {"build": "green", "drop-in": "green", "partly": "yellow", "unknown": "yellow", "no": "red"}
_COLUMNS = ("PyTorch", "pins", "compiles with", "drop-in only", "must not be given", "ours")


def matrix_page(compat: Compatibility) -> str:
    """An HTML page of its own."""
    return _html("compat_page.html", compat)


def matrix_html(compat: Compatibility) -> str:
    """A `<section class="compat">` with its own style, for any HTML page."""
    return _html("compat_matrix.html", compat)


def _html(template: str, compat: Compatibility) -> str:
    numbers, hardware = _note_numbers(compat), hardware_lines(compat)
    return render(template, compat=compat, numbers=numbers, projects=PROJECTS, hardware=hardware)


def _note_numbers(compat: Compatibility) -> dict[str, int]:
    return {name: number for number, name in enumerate(compat.matrix.notes, 1)}


def hardware_lines(compat: Compatibility) -> tuple[str, ...]:
    """One line per imported report, or that there is none."""
    return tuple(run.line for run in compat.hardware) or (NO_HARDWARE,)


def matrix_text(compat: Compatibility, *, colour: bool = False) -> str:
    """A table of at most 100 columns for each project, and its footnotes; `explain_row` has the rest."""
    out, numbers = io.StringIO(), _note_numbers(compat)
    console = Console(
        file=out,
        width=WIDTH,
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
    )
    print(
        f"AOTriton for PyTorch; `ours`: this checkout's API level {compat.level}",
        f"({compat.release.api_level})",
        file=out,
    )
    for project, title in PROJECTS.items():
        table = Table(*_COLUMNS, title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for row in compat.rows:
            if row.project == project:
                table.add_row(*_cells(compat, row, numbers))
        console.print(table)
    sections = {
        "Run on hardware:": hardware_lines(compat),
        "Why ours does not serve a row:": [
            f"{service.row.name}: {service.reason}"
            for service in map(compat.service, compat.rows)
            if service.reason
        ],
        "Notes:": [
            f"[{numbers[name]}] {note.text} (evidence: {note.evidence})"
            for name, note in compat.matrix.notes.items()
        ],
        "Evidence:": [f"{kind}: {text}" for kind, text in compat.matrix.evidence.items()],
    }
    for title, texts in sections.items():
        print("", title, *(f"  {line}" for text in texts for line in _wrapped([text])), sep="\n", file=out)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _cells(compat: Compatibility, row: Row, numbers: dict[str, int]) -> list[str | Text]:
    word = compat.service(row).word
    colour = next((colour for start, colour in _COLOURS.items() if word.startswith(start)), "")
    title = " ".join(filter(None, (row.version, row.period)))
    notes = "".join(f"[{numbers[name]}]" for name in row.notes)
    relations = (row.releases("pins"), row.releases("compiles"), row.releases("drop-in-only"))
    cells = [", ".join(releases) or "-" for releases in relations]
    return [Text(f"{title} {notes}"), *cells, "; ".join(row.prohibitions()) or "-", Text(word, style=colour)]


def _wrapped(texts: list[str]) -> list[str]:
    """The first text, and below it the others."""
    wrap = partial(textwrap.wrap, width=WIDTH - 2, break_on_hyphens=False, break_long_words=False)
    lines = [wrap(text, initial_indent="  ", subsequent_indent="    ") for text in texts[1:]]
    return [*wrap(texts[0], subsequent_indent="  "), *chain.from_iterable(lines)]


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
    ours = {
        "build": service.build,
        "drop_in": service.links,
        "partly": service.partly,
        "reason": service.reason,
    }
    fields = row.model_dump(mode="json", by_alias=True)
    return fields | {"name": row.name, "library_names": row.library_names, "ours": ours}


def explain_row(compat: Compatibility, row: Row, release: str | None = None) -> str:
    """Everything known of a row, or of the row and one AOTriton release, with evidence."""
    statements, service = compat.about(row, release) if release else row.statements, compat.service(row)
    values = {"compat": compat, "row": row, "release": release, "statements": statements, "service": service}
    return "\n".join(
        _wrapped([line for line in render("compat_row.txt.jinja", **values).splitlines() if line])
    )


def explain_fields(compat: Compatibility, row: Row, release: str | None) -> dict[str, object]:
    """The same for `--json`."""
    if release is None:
        return row_fields(compat, row)
    return {
        "row": row.name,
        "aotriton": release,
        "verdict": compat.verdict(row, release),
        "statements": [s.model_dump(mode="json") for s in compat.about(row, release)],
        "notes": {name: compat.matrix.notes[name].text for name in row.notes},
    }


def recommendation_text(recommendation: Recommendation) -> str:
    """The recommendation for a terminal."""
    return render("recommendation.txt.jinja", recommendation=recommendation).rstrip()
