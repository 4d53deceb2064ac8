"""The variables of a virtual HIP: devices that exist, texts that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import OutputError, UnknownNameError, UnsupportedError
from aotforge.formats.archive import Member, write_tar_gz
from aotforge.virtual_gpu.hip import prepare as prepare_module
from aotforge.virtual_gpu.hip.build_hip import VirtualHip, environment
from aotforge.virtual_gpu.hip.prepare import (
    MissingAssemblyError,
    _in_archive,
    find_assembly,
)

FAKE = VirtualHip(folder=Path("/some folder/hip"), major=7)


def test_devices_are_named_with_compute_units_and_features(tmp_path: Path) -> None:
    found = environment(FAKE, devices=["gfx908@40", "gfx90a:xnack+"], texts=[tmp_path], cache=tmp_path)
    assert found["AOTFORGE_VIRTUAL_DEVICES"] == "gfx908@40,gfx90a:xnack+"
    found = environment(
        FAKE, devices=["MI100@40", "MI250X:xnack+", "GFX942", "gfx1100:"], texts=[tmp_path], cache=tmp_path
    )
    assert found["AOTFORGE_VIRTUAL_DEVICES"] == "gfx908@40,gfx90a:xnack+,gfx942,gfx1100:"
    assert environment(FAKE, devices=[], texts=[], cache=tmp_path)["AOTFORGE_VIRTUAL_DEVICES"] == "none"


def test_unknown_devices_and_missing_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown arch gfx980") as caught:
        environment(FAKE, devices=["gfx980"], texts=[], cache=tmp_path)
    assert "gfx908" in caught.value.hint
    with pytest.raises(UnsupportedError, match="does not exist"):
        environment(FAKE, devices=["gfx908"], texts=[tmp_path / "nothing.tar.gz"], cache=tmp_path)


def test_a_text_of_any_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of 4 MB can have a text of gigabytes."""
    archive = tmp_path / "asm.tar.gz"
    write_tar_gz(archive, {"aotriton/a.s": Member(content=bytes(1000))}, epoch=0)
    assert _in_archive(archive, "a.s") == bytes(1000)
    monkeypatch.setattr(prepare_module, "_TEXT_LIMIT", 999)
    with pytest.raises(OutputError, match=r"a\.s has more than 999 bytes"):
        _in_archive(archive, "a.s")


@pytest.mark.parametrize("below", ["", "gfx908"])
def test_a_text_of_any_size_in_a_folder_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    monkeypatch.setattr(prepare_module, "_TEXT_LIMIT", 1000)
    text = tmp_path / below / "0a.s"
    text.parent.mkdir(exist_ok=True)
    text.write_bytes(b"x" * 1000)
    assert find_assembly("0a", [tmp_path]) == "x" * 1000
    text.write_bytes(b"x" * 1001)
    with pytest.raises(OutputError, match=r"0a\.s cannot be read: it is larger than 1000 bytes"):
        find_assembly("0a", [tmp_path])
    text.unlink()
    text.mkdir()
    with pytest.raises(MissingAssemblyError):
        find_assembly("0a", [tmp_path])
