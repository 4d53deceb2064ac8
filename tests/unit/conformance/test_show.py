"""The matrix as table, page and JSON, and recommendations."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aotforge.conformance.matrix import load_matrix, pack_serves, recommend
from aotforge.conformance.matrix_models import Row
from aotforge.conformance.matrix_show import (
    explain_row,
    matrix_fields,
    matrix_html,
    matrix_page,
    matrix_text,
    recommendation_text,
)
from aotforge.errors import UnknownNameError, UnsupportedError

ROOT = Path(__file__).parents[3]
COMPAT = load_matrix(ROOT)


def test_the_table_fits_and_has_everything() -> None:
    text = matrix_text(COMPAT)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    flat = " ".join(text.split())
    for row in COMPAT.rows:
        assert row.pytorch in text
        assert all(name in text for s in row.statements if s.relation != "documented" for name in s.releases)
        about = " ".join(explain_row(COMPAT, row).split())
        assert all(remark in about for remark in row.remarks)
        assert all(name in about for s in row.statements for name in (*s.releases, s.commit or ""))
    for note in COMPAT.matrix.notes.values():
        assert " ".join(note.text.split()) in flat
    assert "\x1b[32mbuild" in matrix_text(COMPAT, colour=True)


class Page(HTMLParser):
    """Tags must close in order; text and tags are kept."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = dict(attrs)
        assert not any(name.startswith("on") for name in found)
        self.ids.add(found.get("id") or "")
        self.targets.add(found.get("href") or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def test_the_page_is_complete_and_needs_no_other_file() -> None:
    page = Page(matrix_page(COMPAT))
    assert page.open == [] and not page.tags & {"script", "link", "img", "iframe"}
    assert "prefers-color-scheme: dark" in matrix_page(COMPAT)
    for note in COMPAT.matrix.notes.values():
        assert note.text in page.text
    for row in COMPAT.rows:
        assert row.pytorch in page.text
        assert all(name in page.text for s in row.statements for name in s.releases)
        assert all(remark in page.text for remark in row.remarks)
    internal = {target.removeprefix("#") for target in page.targets if target.startswith("#")}
    assert internal and internal <= page.ids
    fragment = Page(matrix_html(COMPAT))
    assert fragment.open == [] and not fragment.tags & {"html", "body", "head"}


def test_json_has_every_row_with_our_place() -> None:
    fields = json.loads(json.dumps(matrix_fields(COMPAT)))
    rows = {row["name"]: row for row in fields["rows"]}
    assert set(rows) == {row.name for row in COMPAT.rows}
    assert rows["upstream 2.9"]["ours"] == {
        "build": True, "drop_in": ["libaotriton_v2.so.0.11.0"], "partly": False, "reason": "",
    }  # fmt: skip
    assert rows["upstream 2.7"]["ours"]["reason"]


@pytest.mark.parametrize(
    ("pytorch", "release", "words"),
    [
        ("2.7", "0.9.2b", "is what this PyTorch pins"),
        ("2.7", "0.9b", "must not be given: link trouble"),
        ("2.7", "0.10b", "only as a drop-in"),
        ("2.6", "0.7b", "run-time failure"),
        ("2.8", "0.9.2b", "lost feature"),
        ("2.9", "0.10b", "must not be given: run-time failure"),
        ("2.9", "0.11.2b", "compiles and links"),
        ("2.13", "0.12.2b", "a point release of what is pinned"),
        ("2.13", "0.11b", "no statement"),
        ("2.2", "0.4.1b", "no support"),
    ],
)
def test_pairs(pytorch: str, release: str, words: str) -> None:
    row = COMPAT.find(pytorch)
    assert words in COMPAT.verdict(row, release)
    text = explain_row(COMPAT, row, release)
    assert words in text and all(f"evidence: {s.evidence}" in text for s in COMPAT.about(row, release))


@pytest.mark.parametrize(
    "row", [row for row in COMPAT.rows if row.project == "upstream"], ids=lambda row: row.name
)
def test_no_official_release_serves_an_mi100_and_ours_does_where_it_can(row: Row) -> None:
    if row.period == "mid-2026":
        return
    recommendation = recommend(COMPAT, ROOT, pytorch=row.pytorch, arch="gfx908")
    assert recommendation.official is None
    served = row.pytorch in {"2.9", "2.10", "2.11", "2.12"}
    assert (recommendation.ours == "0.11.2b-r1") == served and bool(recommendation.reason) == (not served)
    text = recommendation_text(recommendation)
    if served:
        assert recommendation.pack == "amd-gfx908"
        assert "./dev build --arch gfx908" in text and "--from PLACE --root ROOT" in text
        assert "./dev dropin --pytorch-lib" in text
        assert "AOTRITON_INSTALLED_PREFIX=PREFIX" in text
    else:
        assert "ours: none" in text


def test_official_releases_are_recommended_where_they_serve() -> None:
    def official(pytorch: str, arch: str, **more: str) -> str | None:
        return recommend(COMPAT, ROOT, pytorch=pytorch, arch=arch, **more).official  # type: ignore[arg-type]

    assert official("2.9", "gfx90a:sramecc+:xnack-") == "0.11b"
    assert official("2.9", "gfx1103") is None  # comes with 0.11.1b
    assert official("2.10", "gfx1103") == "0.11.1b"
    assert official("2.7", "gfx950") is None
    assert official("2.13", "gfx1151") == "0.12b"
    assert official("2.9", "gfx942", platform="windows") is None
    assert official("2.9", "gfx1030") is None


def test_which_warns() -> None:
    rocm = recommend(COMPAT, ROOT, pytorch="2.9", arch="gfx908", rocm="7.1.1")
    assert any("lists ROCm 6.2 6.3 6.4 7.0, not 7.1" in text for text in rocm.warnings)
    odd = recommend(COMPAT, ROOT, pytorch="2.9", arch="gfx908", rocm="5.7")
    assert any("no tarball is named for ROCm 5.7" in text for text in odd.warnings)
    assert recommend(COMPAT, ROOT, pytorch="2.9", arch="gfx908", rocm="7.0").warnings == ()
    old = recommend(COMPAT, ROOT, pytorch="2.9", arch="gfx908", platform="manylinux_2_17")
    assert any("too old" in text for text in old.warnings)
    windows = recommend(COMPAT, ROOT, pytorch="2.9", arch="gfx908", platform="windows")
    assert any("win_amd64-shared.zip" in option.text for option in windows.options)
    fork = recommend(COMPAT, ROOT, pytorch="2.12", arch="gfx908", fork=True)
    assert "only commits that pin 0.11.2b" in fork.reason and fork.ours
    unknown = recommend(COMPAT, ROOT, pytorch="2.10", arch="gfx908", fork=True)
    assert unknown.ours is None and "not established" in unknown.reason


def test_which_refuses_nonsense() -> None:
    with pytest.raises(UnknownNameError, match="gfx9999"):
        recommend(COMPAT, ROOT, pytorch="2.9", arch="gfx9999")
    with pytest.raises(UnsupportedError, match="amiga"):
        recommend(COMPAT, ROOT, pytorch="2.9", arch="gfx908", platform="amiga")
    with pytest.raises(UnsupportedError, match="seven"):
        recommend(COMPAT, ROOT, pytorch="2.9", arch="gfx908", rocm="seven")


def test_the_rule_of_pytorchs_cmake() -> None:
    assert pack_serves("amd-gfx11xx", "gfx1151") and pack_serves("amd-gfx90a", "gfx90a")
    assert not pack_serves("amd-gfx90a", "gfx908") and not pack_serves("amd-gfx120x", "gfx1100")
