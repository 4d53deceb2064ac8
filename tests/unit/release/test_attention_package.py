"""The package that loads the library: what it finds of PyTorch and GPUs, and when it loads nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.conformance.matrix import pack_serves
from aotforge.formats.library_alias import library_alias
from aotforge.formats.shared_library import read_shared_library
from aotforge.release import attention_package as package
from aotforge.release.model import load_release_manifest
from aotforge.release.wheels import wheel_version
from aotforge.targets.amd.installed import installed_archs
from tests.support.families import PROJECT

NAME, OLD = "libaotriton_v2.so.0.11.2", "libaotriton_v2.so.0.11.0"


def node(folder: Path, number: int, version: int) -> None:
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / "properties").write_text(f"cpu_cores_count 0\ngfx_target_version {version}\n")


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """torch/lib of a PyTorch for ROCm that needs OLD, and this package with images for gfx908."""
    lib = tmp_path / "site" / "torch" / "lib"
    lib.mkdir(parents=True)
    (lib.parent / "__init__.py").touch()
    (lib / "libtorch_hip.so").write_bytes(library_alias("libtorch_hip.so", OLD))
    monkeypatch.setattr("sys.path", [str(tmp_path), str(tmp_path / "site")])
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    monkeypatch.setattr(package, "LIBRARIES", str(tmp_path / "own"))
    (tmp_path / "own" / "aotriton.images" / "amd-gfx908").mkdir(parents=True)
    monkeypatch.setattr(package.facts, "NAMES", (NAME, OLD))
    monkeypatch.setattr(package.facts, "VERSION", "0.11.2.1")
    monkeypatch.setattr(package.facts, "PACKS", {"gfx908": "amd-gfx908", "gfx90a": "amd-gfx90a"})
    monkeypatch.setattr(package, "machine_archs", lambda: ())
    return lib


def reason() -> str:
    found = package.Status()
    package._examine(found)
    assert bool(found.reason) == bool(found.hint)
    return found.reason


def test_a_pytorch_that_needs_the_library(torch: Path) -> None:
    assert reason() == ""
    assert package.torch_lib() == str(torch)


@pytest.mark.parametrize(
    ("gpus", "own", "expected"),
    [
        ((), ("amd-gfx942",), ""),  # unknown
        (("gfx908",), ("amd-gfx942",), ""),
        # graphics of a processor, which PyTorch has no images for either
        (("gfx1036", "gfx908"), ("amd-gfx942",), ""),
        (("gfx90a",), (), "the images are for amd-gfx908, and the GPUs here are gfx90a"),
        (("gfx1100", "gfx908"), ("amd-gfx11xx",), "PyTorch has images for gfx1100, which this package"),
    ],
)
def test_no_gpu_loses_its_images(
    gpus: tuple[str, ...], own: tuple[str, ...], expected: str, torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pack in own:
        (torch / "aotriton.images" / pack).mkdir(parents=True)
    monkeypatch.setattr(package, "machine_archs", lambda: gpus)
    assert reason().startswith(expected) and bool(reason()) == bool(expected)
    monkeypatch.setenv("AOTFORGE_ATTENTION", "1")
    assert reason() == ""
    monkeypatch.setenv("AOTFORGE_ATTENTION", "0")
    assert reason() == "AOTFORGE_ATTENTION=0 is set"


def test_a_damaged_library_is_named(torch: Path, tmp_path: Path) -> None:
    (tmp_path / "own" / OLD).write_text("no library")
    found = package.Status()
    package._examine(found)
    package._load(found)
    assert found.library is None and found.reason.startswith(f"{tmp_path / 'own' / OLD} cannot be loaded: ")
    assert found.hint == "install the wheel again, for this platform"


def test_without_images_nothing_is_loaded(
    torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own" / "aotriton.images" / "amd-gfx908").rmdir()
    monkeypatch.setenv("AOTFORGE_ATTENTION", "1")
    assert reason() == "no images are installed"


WHEELS = {
    "0.11.2b": ("0.11.0", "0.11.1", "0.11.2", "0.11.9"),
    "0.12.1b": ("0.12.0", "0.12.1", "0.12.50"),
    "0.13b": ("0.13.0", "0.13.1", "0.13.50"),
    "0.14.2b": ("0.14.0", "0.14.1", "0.14.2", "0.14.50"),
}
"""What installed PyTorch wheels need, AMD's too, by the API level that serves them; 0.11.9 does not exist
yet."""


@pytest.mark.parametrize("level", WHEELS)
def test_the_wheel_of_a_level_serves_every_name_of_its_feature_release(
    level: str, torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = load_release_manifest(PROJECT / "manifests" / "release.yaml", level)
    monkeypatch.setattr(package.facts, "NAMES", (manifest.soname, *manifest.other_names))
    monkeypatch.setattr(package.facts, "VERSION", wheel_version(manifest.name))
    for other, versions in WHEELS.items():
        for version in versions:
            name = f"libaotriton_v2.so.{version}"
            (torch / "libtorch_hip.so").write_bytes(library_alias("libtorch_hip.so", name))
            refused = f"this PyTorch needs {name} of {version.rpartition('.')[0]}, and this wheel serves"
            assert reason().startswith(refused) if other != level else reason() == "", (level, name)


def test_other_pytorches(torch: Path) -> None:
    (torch / "libtorch_hip.so").write_bytes(library_alias("libtorch_hip.so", "libaotriton_v2.so.0.13.0"))
    assert reason().startswith(
        "this PyTorch needs libaotriton_v2.so.0.13.0 of 0.13, and this wheel serves 0.11.*"
    )
    (torch / "libtorch_hip.so").write_bytes(library_alias("libtorch_hip.so", "libm.so.6"))
    assert reason() == "libtorch_hip.so needs no libaotriton_v2.so"
    (torch / "libtorch_hip.so").unlink()
    assert reason().startswith("this PyTorch is not built for ROCm")


def test_gpus_as_the_tasks_see_them(tmp_path: Path) -> None:
    for number, version in enumerate((0, 90008, 90010, 110001, 120001, 90008)):
        node(tmp_path, number, version)
    assert package.machine_archs(str(tmp_path)) == tuple(sorted(set(installed_archs(tmp_path))))
    assert package.machine_archs(str(tmp_path / "none")) == ()


def test_names_of_packs_mean_the_archs_of_the_matrix() -> None:
    architectures = load_architectures(PROJECT / "manifests")
    archs = [arch for arch in architectures.architectures if arch.startswith("gfx")]
    packs = {one.pack for one in architectures.architectures.values() if one.pack.startswith("amd-")}
    for pack in sorted(packs | {"amd-gfx11xx", "amd-gfx120x", "amd-gfx115x"}):
        assert [arch for arch in archs if package._serves(pack, arch)] == [
            arch for arch in archs if pack_serves(pack, arch) and len(pack) == len(arch) + 4
        ]


def test_needed_names_as_pyelftools_reads_them_and_none_of_damaged_files(tmp_path: Path) -> None:
    """A start of Python must never end in an error of this package."""
    intact = library_alias("libtorch_hip.so", OLD)
    path = tmp_path / "library.so"
    path.write_bytes(intact)
    assert package.needed_names(str(path)) == tuple(read_shared_library(path).needed) == (OLD,)
    noise = random.Random(1)
    for _ in range(300):
        data = bytearray(intact)
        for _ in range(noise.randrange(1, 8)):
            data[noise.randrange(len(data))] = noise.randrange(256)
        path.write_bytes(data[: noise.randrange(len(data) + 1)])
        assert isinstance(package.needed_names(str(path)), tuple)


@pytest.fixture
def on_windows(torch: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same PyTorch as Windows has it: a DLL, whose level is in the headers."""
    (torch / "libtorch_hip.so").rename(torch / "torch_hip.dll")
    header = torch.parent / "include" / "aotriton" / "config.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define AOTRITON_VERSION_MAJOR 0u\n#define AOTRITON_VERSION_MINOR 11u\n")
    for name, value in (("_WINDOWS", True), ("_HIP", "torch_hip.dll"), ("_PREFIX", "aotriton_v2.dll")):
        monkeypatch.setattr(package, name, value)
    monkeypatch.setattr(package.facts, "NAMES", ("aotriton_v2.dll",))
    return header


def test_on_windows_the_level_is_in_the_headers(on_windows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason() == ""
    loaded: list[str] = []
    monkeypatch.setattr("ctypes.CDLL", loaded.append)
    found = package.Status()
    package._examine(found)
    package._load(found)
    assert loaded == [found.library] == [f"{package.LIBRARIES}/aotriton_v2.dll"]
    on_windows.write_text(on_windows.read_text().replace("11u", "13u"))
    assert reason() == "this PyTorch needs aotriton_v2.dll of 0.13, and this wheel serves 0.11.*"
    on_windows.write_text("#define AOTRITON_VERSION_MAJOR x\n")
    assert reason() == "torch_hip.dll needs no aotriton_v2.dll"
    on_windows.unlink()
    assert reason() == "torch_hip.dll needs no aotriton_v2.dll"


def test_on_windows_the_archs_are_those_of_device_wheels(on_windows: Path, torch: Path) -> None:
    site = torch.parents[1]
    for name in ("gfx11", "gfx110x", "gfx12_0", "gfx90a", "gfx1100"):
        (site / f"amd_torch_device_{name}-2.12.0+rocm7.14.0.dist-info").mkdir()
    assert package.wheel_archs(str(torch)) == ("gfx1100", "gfx90a")
    assert reason().startswith("the images are for amd-gfx908, and the GPUs here are gfx1100, gfx90a")
    (site / "amd_torch_device_gfx908-2.12.0+rocm7.14.0.dist-info").mkdir()
    assert reason() == ""
    assert package.wheel_archs(str(site / "none" / "torch" / "lib")) == ()
