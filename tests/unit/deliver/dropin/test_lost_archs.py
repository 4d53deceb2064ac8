"""Archs that lose their images by a drop-in are named, before and after it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import tasks
from aotforge.base.architectures import load_architectures
from aotforge.cli.program import main
from aotforge.deliver.dropin import install_dropin
from aotforge.deliver.dropin.apply import drop_in
from aotforge.deliver.dropin.inputs import TorchLib
from aotforge.deliver.dropin.install_dropin import (
    NO_HARDWARE,
    caution,
    install_dropin_prefix,
    lost_archs,
)
from tests.support.attention import spy_pack
from tests.support.families import PROJECT
from tests.support.small_pack import write
from tests.support.torch_lib import make_release, make_torch, tree

ARCHS = load_architectures(PROJECT / "manifests")


def test_archs_without_images_afterwards(tmp_path: Path) -> None:
    torch = make_torch(tmp_path)
    for pack in ("amd-gfx110x", "amd-gfx1250", "amd-gfx77xx"):
        (torch.folder / "aotriton.images" / pack).mkdir()
    for served, lost in (
        (("gfx908",), ["gfx90a", "gfx1100", "gfx1101", "gfx1102", "gfx1103"]),
        (("gfx90a", "gfx1100", "gfx1102"), ["gfx1101", "gfx1103"]),
    ):
        assert sorted(lost_archs(served, torch.folder, ARCHS)) == sorted([*lost, "gfx1250", "amd-gfx77xx"])


def test_a_repeated_drop_in_compares_with_the_originals(tmp_path: Path) -> None:
    torch = make_torch(tmp_path)
    drop_in(make_release(tmp_path), torch)
    assert lost_archs(("gfx908",), torch.folder, ARCHS) == ("gfx90a",)


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TorchLib:
    made = make_torch(tmp_path)
    monkeypatch.setattr(install_dropin, "read_torch_lib", lambda folder: made)
    monkeypatch.setattr(install_dropin, "read_prefix", lambda prefix, release: make_release(tmp_path))
    return made


def test_the_warning_comes_with_the_change_and_not_without(torch: TorchLib, tmp_path: Path) -> None:
    report = install_dropin_prefix(PROJECT, tmp_path, "0.11.2b-r1", torch.folder)
    first, last = report.warnings
    assert first.startswith("gfx90a had images in ") and "this release has none for them" in first
    assert last == caution(PROJECT) == NO_HARDWARE
    (tmp_path / "0.11.2b-r1").rename(tmp_path / "before")
    assert install_dropin_prefix(PROJECT, tmp_path, "0.11.2b-r1", torch.folder).warnings == ()


@pytest.mark.parametrize(("gates", "use"), [(("0.11", "0.12"), "yes"), (("0.12",), "no, because the images")])
def test_the_first_line_is_whether_pytorch_uses_the_images(
    gates: tuple[str, ...], use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, source = make_torch(tmp_path), make_release(tmp_path)
    pack = source.prefix / "lib" / "aotriton.images" / "amd-gfx908"
    shutil.rmtree(pack)
    write(replace(spy_pack(), gates=[(gate, "gfx908") for gate in gates]), pack)
    monkeypatch.setattr(install_dropin, "read_torch_lib", lambda folder: torch)
    monkeypatch.setattr(install_dropin, "read_prefix", lambda prefix, release: source)
    for _ in range(2):  # repeated: nothing to do, and the same first line
        report = install_dropin_prefix(PROJECT, tmp_path, "0.11.2b-r1", torch.folder)
        assert report.lines()[0].startswith(f"PyTorch will use these images: {use}")
    assert report.lines()[1:] == ["nothing to do"]


def test_a_pack_that_cannot_be_read_is_not_used(torch: TorchLib, tmp_path: Path) -> None:
    report = install_dropin_prefix(PROJECT, tmp_path, "0.11.2b-r1", torch.folder)
    assert report.pytorch_use.startswith("no, because a pack cannot be read: ")


def test_install_removes_what_it_put_into_a_pytorch(
    torch: TorchLib, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(torch.folder)
    install_dropin_prefix(PROJECT, tmp_path, "0.11.2b-r1", torch.folder)
    main(tasks.namespace, ["install", "--pytorch-lib", str(torch.folder), "--uninstall"])
    assert "libaotriton_v2.so.0.11.0: the original" in capsys.readouterr().out
    assert tree(torch.folder) == before
    main(tasks.namespace, ["install", "--pytorch-lib", str(torch.folder), "--uninstall", "--json"])
    assert json.loads(capsys.readouterr().out)["changes"] == []
