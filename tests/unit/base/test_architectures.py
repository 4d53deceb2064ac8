"""Names of archs are split and checked in one place; the manifest is parsed once per process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aotforge.base import architectures, manifest_reader
from aotforge.base.architectures import find_arch, load_architectures, parse_archs
from aotforge.base.manifest_reader import Document, read_yaml
from aotforge.errors import UnknownNameError, UnsupportedError
from aotforge.pipeline.images import by_pack
from tests.support.families import PROJECT, plan_project
from vgpu.emulator.targets import simplified

ARCHS = load_architectures(PROJECT / "manifests")


def test_names_are_joined_by_commas_and_keep_their_order() -> None:
    assert [one.arch for one in parse_archs("gfx90a, gfx908 ", ARCHS)] == ["gfx90a", "gfx908"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown arch (empty)"),
        ("gfx908,", "unknown arch (empty)"),
        ("gfx908,,gfx90a", "unknown arch (empty)"),
        ("gfx908,gfx908", "arch gfx908 is named twice"),
        ("gfx908,MI100", "arch gfx908 is named twice"),
        ("gfx908,gfx999", "unknown arch gfx999"),
        ("gfx908:sramecc", "unknown arch gfx908:sramecc"),
    ],
)
def test_names_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=re.escape(message)):
        parse_archs(text, ARCHS)


@pytest.mark.parametrize(
    ("text", "arch", "note"),
    [
        ("gfx908", "gfx908", ""),
        ("GFX90A", "gfx90a", ""),
        ("MI100", "gfx908", "MI100 is gfx908"),
        ("AMD Instinct MI100", "gfx908", "AMD Instinct MI100 is gfx908"),
        ("mi210", "gfx90a", "mi210 is gfx90a"),
        ("MI250X", "gfx90a", "MI250X is gfx90a"),
        ("MI300X", "gfx942", "MI300X is gfx942"),
        ("AMD_Instinct_MI300A", "gfx942", "AMD_Instinct_MI300A is gfx942"),
        ("RX 7900 XTX", "gfx1100", "RX 7900 XTX is gfx1100"),
        ("rx7900xtx", "gfx1100", "rx7900xtx is gfx1100"),
        ("7900 XT", "gfx1100", "7900 XT is gfx1100"),
        ("AMD Radeon(TM) RX 7800 XT", "gfx1101", "AMD Radeon(TM) RX 7800 XT is gfx1101"),
        ("Radeon 780M", "gfx1103", "Radeon 780M is gfx1103"),
        ("gfx908:sramecc+:xnack-", "gfx908", "gfx908:sramecc+:xnack- is taken as gfx908"),
        ("gfx90a:xnack+", "gfx90a", "gfx90a:xnack+ is taken as gfx90a"),
    ],
)
def test_an_arch_is_written_in_many_ways(text: str, arch: str, note: str) -> None:
    found = find_arch(text, ARCHS)
    assert found.arch == arch and found.note.startswith(note) and bool(found.note) == bool(note)


def test_every_product_of_the_manifest_leads_to_its_own_arch() -> None:
    rows = {name: row.all_products for name, row in ARCHS.architectures.items()}
    products = [(arch, product) for arch, many in rows.items() for product in many]
    assert len(products) > 30
    assert all(find_arch(product, ARCHS).arch == arch for arch, product in products)
    names = [simplified(one) for many in (*rows.values(), *ARCHS.other_archs.values()) for one in many]
    assert len(set(names)) == len(names), "one product has two archs"
    assert not set(ARCHS.other_archs) & set(ARCHS.architectures)


@pytest.mark.parametrize(
    "text", ["gfx900", "MI25", "AMD Radeon RX Vega 64", "gfx1010", "RX 5700 XT", "gfx900:xnack-"]
)
def test_an_arch_without_kernels_is_no_misspelling(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"^no kernels for gfx(900|1010)( \(.*\))? yet") as caught:
        find_arch(text, ARCHS)
    assert caught.value.hint.startswith("known archs: gfx908, gfx906, gfx90a") and "perhaps" not in str(
        caught.value
    )


@pytest.mark.parametrize(
    "name", sorted({*ARCHS.other_archs, "gfx980", "gfx1155", "gfx1300", "MI200", "MI110", "RX 7950 XTX"})
)
def test_no_hint_leads_from_one_real_gpu_to_another(name: str) -> None:
    with pytest.raises((UnknownNameError, UnsupportedError)) as caught:
        find_arch(name, ARCHS)
    assert "perhaps" not in str(caught.value) and caught.value.hint.startswith("known archs: ")


@pytest.mark.parametrize("name", ["gx908", "gfx9o8", "gfx 908x"])
def test_a_misspelling_has_a_hint(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_arch(name, ARCHS)
    assert caught.value.hint == "perhaps you meant gfx908"


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


def test_the_plans_of_a_build_parse_the_manifest_once(parsed: list[Path]) -> None:
    groups = by_pack(ARCHS, ["gfx908", "gfx90a"])
    plans = [plan_project(PROJECT, archs=group, profile="quick") for group in groups]
    assert [plan.pack for plan in plans] == ["amd-gfx908", "amd-gfx90a"]
    assert parsed.count(PROJECT / "manifests" / "architectures.yaml") == 1
