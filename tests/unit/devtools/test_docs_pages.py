"""Pages of the documentation site before mkdocs sees them: links, navigation, pages made from code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from aotforge.devtools.docs_pages import (
    MANIFESTS,
    ROOT_PAGES,
    headers_page,
    manifest_pages,
    moved_links,
    write_pages,
)
from aotforge.devtools.header_reference import declarations, header_section
from aotforge.devtools.site_links import site_faults
from aotforge.errors import UnsupportedError
from tests.support.families import PROJECT

PLACES = {"README.md": "index.md", "docs/a.md": "a.md", "docs/deep/b.md": "deep/b.md"}


def test_links_follow_the_pages() -> None:
    assert moved_links("[x](docs/a.md#part)", "README.md", PLACES) == "[x](a.md#part)"
    assert (
        moved_links("[x](../README.md) [y](deep/b.md)", "docs/a.md", PLACES) == "[x](index.md) [y](deep/b.md)"
    )
    assert moved_links("[x](../../README.md)", "docs/deep/b.md", PLACES) == "[x](../index.md)"
    assert (
        moved_links("[x](https://e.org/a.md) [y](#here)", "docs/a.md", PLACES)
        == "[x](https://e.org/a.md) [y](#here)"
    )
    code = "```\n[x](nowhere.md)\n```\n"
    assert moved_links(code, "docs/a.md", PLACES) == code


@pytest.mark.parametrize("target", ["nowhere.md", "../tasks.py", "../../outside.md"])
def test_a_link_out_of_the_site_is_refused(target: str) -> None:
    with pytest.raises(UnsupportedError, match="which is not a page of the site"):
        moved_links(f"[x]({target})", "docs/a.md", PLACES)


def test_every_page_of_the_checkout_is_made(tmp_path: Path) -> None:
    write_pages(PROJECT, tmp_path)
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    assert {*ROOT_PAGES.values(), "reference/manifests.md", "reference/headers.md"} <= pages
    assert {
        path.relative_to(PROJECT / "docs").as_posix() for path in (PROJECT / "docs").rglob("*.md")
    } <= pages


def test_every_key_of_a_manifest_is_described() -> None:
    pages = manifest_pages()
    for file, model in MANIFESTS.items():
        paths = sorted(PROJECT.glob(re.sub(r"[A-Z]{4,}", "*", file)))
        assert paths or file == "releases/RELEASE.json", file
        schema = json.loads(pages[f"reference/schemas/{file.replace('/', '-').rpartition('.')[0]}.json"])
        assert schema["title"] == model.__name__
        for path in paths:
            if path.suffix == ".yaml":
                assert set(yaml.safe_load(path.read_text(encoding="utf-8"))) <= set(schema["properties"]), (
                    path
                )
    described = {file.rpartition("/")[0] for file in MANIFESTS}
    known = {
        path.relative_to(PROJECT).as_posix()
        for folder in ("manifests", "compat")
        for path in (PROJECT / folder).glob("*.yaml")
    }
    assert known - set(MANIFESTS) == set() and "manifests" in described


def test_every_public_declaration_has_an_entry() -> None:
    page = headers_page(PROJECT)
    headings = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    for path in (PROJECT / "runtime" / "include").rglob("*.h"):
        text = path.read_text(encoding="utf-8")
        exported = re.findall(r"^(?:AOTRITON|AOTFORGE|AOTFORGE_OPS)_API [^(]*?(\w+)\(", text, re.MULTILINE)
        types = re.findall(r"^(?:typedef )?(?:struct|class|enum) (?:[A-Z_]+ )?(\w+) [{:]", text, re.MULTILINE)
        assert {*exported, *types} <= headings, path
    assert {"aotforge_add", "aotforge_launch", "attn_fwd", "TensorView"} <= headings
    assert page.count("{") == page.count("}")


def test_a_declaration_has_its_comment_its_condition_and_all_of_its_lines() -> None:
    text = """// About the file.
#pragma once
#if AOTRITON_VERSION_MINOR < 13
// Fills `r` and *x*
// for reasons that fill this line to its end, which is why the sentence continues in the next.
AOTRITON_API int fill(int r,
                      int x);
#else
struct Kept {
  int a;  // };
};
#endif
using T = int;
/* Of C. */
int last(void);
"""
    found = [(one.name, one.comment, one.condition) for one in declarations(text)]
    assert found == [
        (
            "fill",
            "Fills `r` and \\*x\\*  \nfor reasons that fill this line to its end, which is why the sentence continues in the next.",
            "AOTRITON_VERSION_MINOR < 13",
        ),
        ("Kept", "", "!(AOTRITON_VERSION_MINOR < 13)"),
        ("last", "Of C.", ""),
    ]
    assert [one.code.count("\n") for one in declarations(text)] == [1, 2, 0]
    assert header_section("a.h", text)[:2] == ["## a.h\n", "About the file.\n"]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="b.html">x</a>', ""),
        ('<a href="b.html#part">x</a><a href="#own">y</a><h1 id="own">z</h1>', ""),
        ('<a href="folder/">x</a>', ""),
        ('<a href="https://e.org/">x</a>', ""),
        ('<a href="c.html">x</a>', "a.html: c.html does not exist"),
        ('<a href="b.html#none">x</a>', "a.html: b.html#none has no such anchor"),
        ('<a href="#none">x</a>', "a.html: #none has no such anchor"),
        ('<img src="none.png">', "a.html: none.png does not exist"),
        ('<script src="https://e.org/x.js"></script>', "a.html loads https://e.org/x.js"),
        ('<link rel="stylesheet" href="//e.org/x.css">', "a.html loads //e.org/x.css"),
    ],
)
def test_faults_of_a_site(body: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").touch()
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<h2 id="part">x</h2>')
    assert list(site_faults(tmp_path)) == ([fault] if fault else [])
