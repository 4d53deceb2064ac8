from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from aotforge.compile.model import KernelImage
from tests.integration.release.real import CACHE, small_attention
from tests.support.virtual_hip import Hip
from vgpu.hip.build_hip import VirtualHip, build_virtual_hip

Play = Callable[..., Hip]


@pytest.fixture(scope="session")
def virtual() -> VirtualHip:
    return build_virtual_hip(CACHE)


@pytest.fixture
def play(virtual: VirtualHip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A fresh virtual HIP with these settings of AOTFORGE_VIRTUAL, and *_VISIBLE_DEVICES."""

    def make(
        devices: str = "gfx908",
        *,
        texts: str = "",
        of: VirtualHip | None = None,
        visible: Mapping[str, str] | None = None,
        **settings: str,
    ) -> Hip:
        chosen = {"devices": devices.replace(",", ";"), "log": "off", **settings}
        monkeypatch.setenv("AOTFORGE_VIRTUAL", ",".join(f"{name}={value}" for name, value in chosen.items()))
        for vendor in ("ROCR", "HIP", "CUDA"):
            monkeypatch.delenv(f"{vendor}_VISIBLE_DEVICES", raising=False)
        for name, value in (visible or {}).items():
            monkeypatch.setenv(f"{name}_VISIBLE_DEVICES", value)
        monkeypatch.setenv("AOTFORGE_ASM", texts)
        monkeypatch.setenv("AOTFORGE_CACHE", str(CACHE))
        return Hip(of or virtual, tmp_path)

    return make


@pytest.fixture(scope="session")
def attention() -> list[KernelImage]:
    """Images of gfx908: fp16 `add`, and attention with head_dim 32."""
    return small_attention()[1]


@pytest.fixture(scope="session")
def add(attention: list[KernelImage]) -> KernelImage:
    """fp16 `add` with alignment hints."""
    return next(image for image in attention if "\nadd:" in image.asm)


@pytest.fixture(scope="session")
def texts(attention: list[KernelImage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the texts of `attention`."""
    folder = tmp_path_factory.mktemp("texts")
    for image in attention:
        (folder / f"{image.digest}.s").write_text(image.asm)
    return folder
