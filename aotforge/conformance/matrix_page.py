"""The matrix as static HTML: a fragment for other pages, and a page of its own. No scripts; light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from aotforge.conformance.matrix import Compatibility, Service
from aotforge.conformance.matrix_models import Row
from aotforge.conformance.matrix_text import note_numbers, prohibited

_STYLE = """
.compat { --ink: #1b1f24; --faint: #57606a; --line: #d0d7de; --band: #f3f5f7; --good: #11652b; --some: #7a5200; --bad: #a40e26; color: var(--ink); }
@media (prefers-color-scheme: dark) {
  .compat { --ink: #e6edf3; --faint: #9aa4af; --line: #3a424b; --band: #1c2229; --good: #56d364; --some: #e3b341; --bad: #ff7b72; }
}
.compat .scroll { overflow-x: auto; }
.compat table { border-collapse: collapse; font-size: 0.92em; width: 100%; }
.compat caption { text-align: left; font-weight: 600; padding: 0.6em 0; }
.compat th, .compat td { border: 1px solid var(--line); padding: 0.35em 0.55em; text-align: left; vertical-align: top; }
.compat thead th { background: var(--band); }
.compat td.good { color: var(--good); } .compat td.some { color: var(--some); } .compat td.bad { color: var(--bad); }
.compat td { min-width: 7.5em; }
.compat small { color: var(--faint); display: block; font-weight: normal; }
.compat small.inline { display: inline; }
.compat sup a { color: inherit; }
"""
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>AOTriton for PyTorch: compatibility</title>
<style>
body {{ font: 16px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 78em; padding: 0 1em; background: #fff; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #0f1419; color: #e6edf3; }} }}
</style>
</head>
<body>
<h1>AOTriton for PyTorch: compatibility</h1>
{body}
</body>
</html>
"""
_HEADS = (
    "PyTorch",
    "pins",
    "compiles with",
    "drop-in only",
    "must not be given",
    "how it is delivered",
    "ours",
)
_TITLES = (("upstream", "pytorch/pytorch"), ("rocm-fork", "ROCm/pytorch, release branches"))


def matrix_page(compat: Compatibility) -> str:
    """A whole page."""
    return _PAGE.format(body=matrix_html(compat))


def matrix_html(compat: Compatibility) -> str:
    """A `<section class="compat">` with its own style, to be put into any page."""
    parts = [f'<section class="compat" id="compat"><style>{_STYLE}</style>']
    parts.append(
        f"<p>“Ours” is API level {escape(compat.level)} ({escape(compat.api)}). <em>build</em>: that PyTorch's sources compile and link "
        "against it; <em>drop-in</em>: it can take the place of the library in installed wheels.</p>"
    )
    for project, title in _TITLES:
        rows = [row for row in compat.rows if row.project == project]
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in _HEADS)
        body = "\n".join(_row(compat, row) for row in rows)
        parts.append(
            f'<div class="scroll"><table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
        )
    numbers = note_numbers(compat)
    notes = "\n".join(
        f'<li id="compat-note-{numbers[name]}">{escape(note.text)} <small class="inline">(evidence: {escape(note.evidence)})</small></li>'
        for name, note in compat.matrix.notes.items()
    )
    evidence = "\n".join(
        f"<dt><strong>{escape(kind)}</strong></dt><dd>{escape(text)}</dd>"
        for kind, text in compat.matrix.evidence.items()
    )
    parts.append(f"<h3>Notes</h3><ol>\n{notes}\n</ol>\n<h3>Evidence</h3><dl>\n{evidence}\n</dl></section>")
    return "\n".join(parts)


def _row(compat: Compatibility, row: Row) -> str:
    numbers = note_numbers(compat)
    title = row.pytorch + (" and older" if row.and_older else "")
    links = "".join(f'<sup><a href="#compat-note-{numbers[n]}">{numbers[n]}</a></sup> ' for n in row.notes)
    lines = [row.period or "", *row.remarks]
    head = f'<th scope="row">{escape(title)} {links}{_small(lines)}</th>'
    service = compat.service(row)
    if row.status != "supported":
        return f'<tr>{head}<td colspan="5">{escape(row.status.replace("-", " "))}</td>{_ours(service)}</tr>'
    cells = [
        _stated(row, "pins") + _small(_readme(row)),
        _stated(row, "compiles"),
        _stated(row, "drop-in-only"),
        escape("; ".join(prohibited(row))) + _small(_evidence(row, "must-not")),
        _delivery(row),
    ]
    return f"<tr>{head}{''.join(f'<td>{cell}</td>' for cell in cells)}{_ours(service)}</tr>"


def _stated(row: Row, says: str) -> str:
    names = [name for s in row.statements if s.relation == says for name in s.releases]
    commits = [f"commit {s.commit}" for s in row.statements if s.relation == says and s.commit]
    return escape(", ".join(names)) + _small([*_evidence(row, says), *commits])


def _evidence(row: Row, says: str) -> list[str]:
    return [
        f"evidence: {kind}"
        for kind in dict.fromkeys(s.evidence for s in row.statements if s.relation == says)
    ]


def _readme(row: Row) -> list[str]:
    return [
        f"README: {', '.join(s.releases)}" + (f" ({s.as_of})" if s.as_of else "")
        for s in row.statements
        if s.relation == "documented"
    ]


def _delivery(row: Row) -> str:
    delivery = row.delivery
    if delivery is None:
        return "not read"
    parts = [f"{delivery.link}, {delivery.from_}", delivery.manylinux or ""]
    parts += [f"ROCm {' '.join(delivery.rocm)}" if delivery.rocm else ""]
    parts += [f"images {' '.join(delivery.images)}" if delivery.images else ""]
    return "<br>".join(escape(part) for part in parts if part) + _small([f"evidence: {delivery.evidence}"])


def _ours(service: Service) -> str:
    tone = "some" if service.word.startswith(("partly", "unknown")) else "good" if service.build else "bad"
    lines = [service.reason, *(f"as {name}" for name in service.links)]
    return f'<td class="{tone}">{escape(service.word)}{_small(lines)}</td>'


def _small(lines: Iterable[str]) -> str:
    return "".join(f"<small>{escape(line)}</small>" for line in lines if line)
