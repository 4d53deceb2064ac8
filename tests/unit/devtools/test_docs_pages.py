"""Pages of the documentation site before mkdocs sees them: links, navigation, pages made from code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from invoke.parser import Parser

import tasks
from aotforge.base.architectures import load_architectures
from aotforge.base.hardware import load_hardware_runs
from aotforge.devtools.card_pages import CARDS, PROGRAM, card_page, first_page
from aotforge.devtools.docs_site import (
    MANIFESTS,
    ROOT_PAGES,
    headers_page,
    manifest_pages,
    moved_links,
    write_pages,
)
from tests.support.families import PROJECT

CARD = r'=== "(.+?)"\n\n(.+?)(?=\n===|\nThe first command)'
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
    assert moved_links("[x](nowhere.md)", "docs/a.md", PLACES) == "[x](nowhere.md)"  # which mkdocs refuses


def test_every_page_of_the_checkout_is_made(tmp_path: Path) -> None:
    write_pages(PROJECT, tmp_path)
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    assert {*ROOT_PAGES.values(), "reference/manifests.md", "reference/headers.md"} <= pages
    assert {
        path.relative_to(PROJECT / "docs").as_posix() for path in (PROJECT / "docs").rglob("*.md")
    } <= pages


def test_the_first_page_leads_to_every_card_by_three_commands() -> None:
    """And each card's page has the commands, valid tasks, and when not to use it."""
    tabs = dict(re.findall(CARD, first_page(PROJECT), re.DOTALL))
    assert list(tabs) == [card.label for card in CARDS.values()]
    for name, card in CARDS.items():
        (block,) = re.findall(r"```sh\n(.*?)```", tabs[card.label], re.DOTALL)
        build, drop_in, program = block.split("\n")[:3]
        assert card.arch in build and card.arch in drop_in and program.split()[1] == PROGRAM
        page = card_page(PROJECT, name)
        assert build.strip() in page and drop_in.strip() in page and "When not to use this" in page
        assert "When not to" in tabs[card.label] and f"({name})" in tabs[card.label]
        for words in (build.split()[1:], drop_in.split()[1:]):
            Parser(contexts=tasks.namespace.to_contexts()).parse_argv(words)


def test_the_evidence_of_every_arch_is_listed() -> None:
    """In docs/hardware.md; a row has none only as long as no report of its archs was imported."""
    text = (PROJECT / "docs" / "hardware.md").read_text(encoding="utf-8")
    known = list(load_architectures(PROJECT / "manifests").architectures)
    reported = {run.device.arch for run in load_hardware_runs(PROJECT / "manifests")}
    listed: list[str] = []
    for archs, virtual, _, reports in re.findall(r"^\|" + r" (.+?) \|" * 4 + "$", text, re.MULTILINE)[1:]:
        named = []
        for name, _, last in (one.partition(" to ") for one in archs.split(", ")):
            first = [arch for arch in known if arch == name or (name == "cpu-x86-64" and name in arch)]
            named += known[known.index(name) : known.index(last) + 1] if last else first
        listed += named
        assert (virtual == "every image") == all(arch.startswith("gfx") for arch in named), archs
        assert (reports == "none") == (not reported & set(named)), archs
        if len(listed) == len(known):
            break
    assert sorted(listed) == sorted(known)


def test_the_navigation_has_every_page(tmp_path: Path) -> None:
    write_pages(PROJECT, tmp_path)
    listed = set(re.findall(r"([\w/-]+\.md)$", (PROJECT / "docs" / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}


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


def test_every_public_header_has_its_text() -> None:
    page = headers_page(PROJECT)
    headers = list((PROJECT / "runtime" / "include").rglob("*.h"))
    assert headers and all(path.read_text(encoding="utf-8").strip() in page for path in headers)
    assert "aotforge_add(" in page
