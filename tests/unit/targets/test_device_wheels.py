"""AMD's device wheels beside an installed PyTorch: images that are in the wheel of a family."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.targets.amd.device_wheels import without_family

VERSION = "2.12.0+rocm7.14.0"
OLD, NEW = ("libaotriton_v2.so.0.11.2",), ("libaotriton_v2.so.0.13.50",)


def torch_lib(folder: Path, archs: tuple[str, ...], packs: tuple[str, ...]) -> str:
    """torch/lib as AMD's wheels for `archs` install it."""
    for arch in archs:
        (folder / f"amd_torch_device_{arch}-{VERSION}.dist-info").mkdir()
    lib = folder / "torch" / "lib"
    lib.mkdir(parents=True)
    for pack in packs:
        (lib / "aotriton.images" / pack).mkdir(parents=True)
    return str(lib)


@pytest.mark.parametrize(
    ("arch", "needed", "family"),
    [
        ("gfx1100", OLD, "gfx11"),
        ("gfx1151", OLD, "gfx11"),
        ("gfx1100", NEW, "gfx110x"),
        ("gfx1151", NEW, "gfx115x"),
        ("gfx1201", OLD, "gfx12-0"),
        ("gfx1200", NEW, "gfx12-0"),
    ],
)
def test_the_wheel_of_a_family_is_named(
    arch: str, needed: tuple[str, ...], family: str, tmp_path: Path
) -> None:
    found = without_family(torch_lib(tmp_path, (arch,), ()), needed)
    assert found is not None
    assert (
        found[0].startswith(f"PyTorch has no images for {arch}, ") and f"amd-torch-device-{arch} " in found[0]
    )
    assert f" amd-torch-device-{family}=={VERSION} " in found[1]


@pytest.mark.parametrize(
    ("archs", "packs"),
    [
        (("gfx1100",), ("amd-gfx11xx",)),
        (("gfx1100", "gfx1103"), ("amd-gfx110x",)),
        (("gfx1201",), ("amd-gfx1201", "amd-gfx90a")),
        (("gfx908", "gfx942", "gfx90a", "gfx1030", "gfx1250"), ()),  # in their own wheels, or nowhere
        ((), ()),
    ],
)
def test_device_wheels_that_lack_nothing(
    archs: tuple[str, ...], packs: tuple[str, ...], tmp_path: Path
) -> None:
    lib = torch_lib(tmp_path, archs, packs)
    assert without_family(lib, OLD) is None


def test_only_what_is_lacking_is_named(tmp_path: Path) -> None:
    lib = torch_lib(tmp_path, ("gfx1100", "gfx1201", "gfx942"), ("amd-gfx110x", "amd-gfx942"))
    found = without_family(lib, NEW)
    assert found is not None and "gfx1201" in found[0] and "gfx1100" not in found[0]
    assert without_family(lib, ()) is None
    assert without_family(str(tmp_path / "none" / "torch" / "lib"), NEW) is None
