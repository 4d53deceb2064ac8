"""Archs of installed GPUs, as Linux's KFD driver lists them."""

from pathlib import Path

import pytest

from aotforge.cli import values
from aotforge.errors import UnsupportedError
from aotforge.targets import installed as gpus
from aotforge.targets.amd.installed import installed_archs


def node(folder: Path, number: int, version: int | str) -> None:
    """A node's properties; the driver has some forty lines a node."""
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / "properties").write_text(
        f"cpu_cores_count 0\nsimd_count 480\nmax_waves_per_simd 10\n"
        f"gfx_target_version {version}\nvendor_id 4098\n"
    )


@pytest.mark.parametrize(
    ("version", "arch"),
    [
        (90006, "gfx906"), (90008, "gfx908"), (90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"),
        (100300, "gfx1030"),
        (110000, "gfx1100"), (110501, "gfx1151"), (120001, "gfx1201"),
    ],
)  # fmt: skip
def test_the_drivers_numbers_are_archs(version: int, arch: str, tmp_path: Path) -> None:
    node(tmp_path, 0, 0)
    node(tmp_path, 1, version)
    assert installed_archs(tmp_path) == (arch,)


def test_devices_are_in_the_drivers_order(tmp_path: Path) -> None:
    for number in range(9):
        node(tmp_path, number, 0)
    node(tmp_path, 10, 90008)
    node(tmp_path, 9, 110000)
    node(tmp_path, 11, "x")
    assert installed_archs(tmp_path) == ("gfx1100", "gfx908")
    assert installed_archs(tmp_path / "none") == ()


def test_native_is_what_is_served_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpus, "cuda_devices", lambda: ((), "no driver"))
    monkeypatch.setattr(gpus, "installed_archs", lambda: ("gfx1013", "gfx908", "gfx908"))
    assert values.archs_of("Native") == ("gfx908",)
    assert "native is gfx908; no kernels for gfx1013" in capsys.readouterr().err
    monkeypatch.setattr(gpus, "installed_archs", lambda: ("gfx1013",))
    with pytest.raises(UnsupportedError, match="no kernels for gfx1013"):
        values.archs_of("native")
    monkeypatch.setattr(gpus, "installed_archs", lambda: ())
    with pytest.raises(UnsupportedError, match="no GPU whose arch can be read") as raised:
        values.archs_of("native")
    assert "no driver" in raised.value.cause
    assert "--arch gfx908" in raised.value.hint
