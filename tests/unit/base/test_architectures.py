"""Names of archs are split and checked in one place; the manifest is parsed once per process."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from aotforge.base import architectures, manifest_reader
from aotforge.base.architectures import load_architectures, parse_archs
from aotforge.base.yaml_reader import Document, read_yaml
from aotforge.errors import ManifestError, UnknownNameError
from aotforge.pipeline.images import by_pack
from aotforge.plan.planner import plan_project
from tests.support.families import PROJECT

KNOWN = ("gfx908", "gfx90a", "gfx1100")


def test_names_are_joined_by_commas_and_keep_their_order() -> None:
    assert parse_archs("gfx90a, gfx908 ", KNOWN) == ("gfx90a", "gfx908")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an arch without a name in ''"),
        ("gfx908,", "an arch without a name in 'gfx908,'"),
        ("gfx908,,gfx90a", "an arch without a name"),
        ("gfx908,gfx908", "arch gfx908 is named twice"),
        ("gfx908,gfx909", "unknown arch gfx909"),
    ],
)
def test_names_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=re.escape(message)):
        parse_archs(text, KNOWN)


def test_no_hint_leads_from_one_real_arch_to_another() -> None:
    with pytest.raises(UnknownNameError) as caught:
        parse_archs("gfx906", KNOWN)
    assert caught.value.hint == "known archs: gfx908, gfx90a, gfx1100"
    with pytest.raises(UnknownNameError) as caught:
        parse_archs("gx908", KNOWN)
    assert caught.value.hint.startswith("perhaps you meant gfx908")


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every manifest that is parsed in a test."""
    paths: list[Path] = []

    def counted(path: Path) -> Document:
        paths.append(path)
        return read_yaml(path)

    monkeypatch.setattr(manifest_reader, "read_yaml", counted)
    architectures._architectures.cache_clear()
    return paths


def test_the_manifest_is_parsed_once_until_it_changes(tmp_path: Path, parsed: list[Path]) -> None:
    manifest = tmp_path / "architectures.yaml"
    shutil.copyfile(PROJECT / "manifests" / "architectures.yaml", manifest)
    first = load_architectures(tmp_path)
    assert load_architectures(tmp_path) is first and parsed == [manifest]
    text = manifest.read_text()
    manifest.write_text(text.replace("product_line: CDNA1", "product_line: CDNAX"))
    os.utime(manifest, ns=(1, 1))
    assert load_architectures(tmp_path).find("gfx908").product_line == "CDNAX"
    assert parsed == [manifest, manifest]
    manifest.unlink()
    with pytest.raises(ManifestError, match="cannot be read"):
        load_architectures(tmp_path)


def test_the_plans_of_a_build_parse_the_manifest_once(parsed: list[Path]) -> None:
    groups = by_pack(PROJECT, ["gfx908", "gfx90a"])
    plans = [plan_project(PROJECT, archs=group, profile="quick") for group in groups]
    assert [plan.pack for plan in plans] == ["amd-gfx908", "amd-gfx90a"]
    assert parsed.count(PROJECT / "manifests" / "architectures.yaml") == 1
