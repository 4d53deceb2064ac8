"""The variables of a virtual HIP: devices that exist, texts that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import UnknownNameError, UnsupportedError
from vgpu.hip.build_hip import VirtualHip, environment

FAKE = VirtualHip(folder=Path("/some folder/hip"), major=7)


def test_devices_are_named_with_compute_units_and_features(tmp_path: Path) -> None:
    found = environment(FAKE, devices=["gfx908@40", "gfx90a:xnack+"], texts=[tmp_path], cache=tmp_path)
    assert found["AOTFORGE_VIRTUAL"] == "devices=gfx908@40;gfx90a:xnack+"
    found = environment(
        FAKE, devices=["MI100@40", "MI250X:xnack+", "GFX942", "gfx1100:"], texts=[tmp_path], cache=tmp_path
    )
    assert found["AOTFORGE_VIRTUAL"] == "devices=gfx908@40;gfx90a:xnack+;gfx942;gfx1100:"
    assert environment(FAKE, devices=[], texts=[], cache=tmp_path)["AOTFORGE_VIRTUAL"] == "devices=none"


def test_unknown_devices_and_missing_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown arch gfx980") as caught:
        environment(FAKE, devices=["gfx980"], texts=[], cache=tmp_path)
    assert "gfx908" in caught.value.hint
    with pytest.raises(UnsupportedError, match="does not exist"):
        environment(FAKE, devices=["gfx908"], texts=[tmp_path / "nothing.tar.gz"], cache=tmp_path)
