"""The HTML report: one self-contained page with the contents of the JSON."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

from aotforge.verify.report import VerifyReport
from aotforge.verify.verdict import Verdict
from tests.unit.verify.test_verdicts import FAILED, OUT, PASSED, UNVERIFIED, report
from vgpu.emulator.classes import InstructionClass

_VOID = {"meta", "br"}


class Page(HTMLParser):
    """Cells of the table as text; asserts that every element is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def rows(made: VerifyReport) -> list[dict[str, str]]:
    head, *found = Page(made.html()).rows
    return [dict(zip(head, row, strict=True)) for row in found]


def test_the_row_of_every_image() -> None:
    passed, failed, unverified = rows(report(PASSED, FAILED, UNVERIFIED))
    assert (passed["verdict"], passed["launches"], passed["worst"]) == ("passed", "2", "0.50")
    assert PASSED.label in passed["image"] and "ragged" in passed["cases"]
    assert passed["error / element / tile"] == "Out: 0.50 / 0.25 / 0.12"
    assert [
        passed[name] for name in ("registers", "accumulation registers", "scalar registers", "shared memory")
    ] == ["32", "0", "16", "64 B"]
    assert (passed["spills"], passed["waves per SIMD"], passed["wave-instructions"]) == ("0 / 0", "8", "7")
    assert (passed["execution"], unverified["execution"]) == ("approximated", "not executed")
    assert failed["verdict"] == "failed" and "ragged: out is wrong" in failed["image"]
    assert failed["worst"] == "∞" and failed["error / element / tile"].startswith("Out: ∞ /")
    assert unverified["verdict"] == "unverified" and "no case is dispatched" in unverified["image"]


def test_the_page_needs_nothing_from_elsewhere_and_no_script() -> None:
    text = report(PASSED, FAILED).html()
    page = Page(text)
    assert {name for name, _ in page.attributes} <= {"lang", "charset", "class", "style", "title"}
    for word in ("<script", "http:", "https:", "@import", "url("):
        assert word not in text
    assert "does not replace one run on the real GPU" in text


def test_the_mix_adds_up_and_shows_every_class() -> None:
    mix = tuple((str(kind), 10) for kind in InstructionClass)
    page = Page(report(replace(PASSED, mix=mix, instructions=80)).html())
    widths = [value for name, value in page.attributes if name == "style" and value and "width" in value]
    assert len(widths) == len(InstructionClass)
    assert all("width:12.50%" in width for width in widths)
    assert len({width.split("background:")[1] for width in widths}) == len(InstructionClass)


def test_names_from_outside_are_text() -> None:
    nasty: Verdict = replace(
        FAILED, label="<script>alert(1)</script>", failure="a < b & c",
            outputs=(replace(OUT, name="<i>", at='"><b>'),)
    )  # fmt: skip
    (row,) = rows(report(nasty))
    assert "<script>alert(1)</script>" in row["image"] and "a < b & c" in row["image"]
    assert row["error / element / tile"].startswith("<i>: ")


def test_an_empty_report_is_a_page() -> None:
    assert rows(report()) == []
