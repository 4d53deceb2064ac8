"""Wheels in an empty virtual environment: the loader gives PyTorch's library ours, and the library finds
its images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aotforge.formats.api_level import library_name
from tests.integration.deliver.dropin.test_loader import ORIGINAL, TORCH, compile_
from tests.integration.deliver.wheels.conftest import MANIFEST, Environment, Site
from tests.support.runtime import Objects, build_objects

NAMES = (MANIFEST.soname, *MANIFEST.other_names, "libaotriton_v2.so.0.11.7")
"""The last is that of a point release which does not exist yet."""
OTHER_LEVEL = library_name("0.13b")
IMPORT = """
import ctypes, os
_hip = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_hip.so"))
probe = _hip.probe
"""
USE = "import torch; print(torch.probe())"
OWN = "77"
"""What the library in torch/lib returns."""


@pytest.fixture(scope="module")
def objects() -> Objects:
    return build_objects()


def install_torch(environment: Environment, name: str, objects: Objects) -> Path:
    """A package torch whose libtorch_hip.so needs `name`, which is in torch/lib, as an installed wheel has
    it."""
    lib = environment.site_packages / "torch" / "lib"
    lib.mkdir(parents=True)
    (lib.parent / "__init__.py").write_text(IMPORT)
    compile_(lib, name, ORIGINAL, objects, "-shared", "-fPIC", f"-Wl,-soname,{name}")
    compile_(lib, "libtorch_hip.so", TORCH, objects, "-shared", "-fPIC", name, "-Wl,-rpath,$ORIGIN")
    return lib


def use(environment: Environment, objects: Objects, script: str = USE, **settings: str) -> str:
    hip = str(objects.hip(6))
    done = environment.run("-c", script, LD_LIBRARY_PATH=hip, AOTFORGE_PARTIAL_PACK="1", **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_pytorch_nothing_is_loaded(installed: Environment) -> None:
    shown = installed.run("-m", "aotforge_attention")
    assert shown.returncode == 1 and "no PyTorch is installed here" in shown.stdout, shown
    assert "ctypes" not in installed.run("-c", "import sys; print(*sys.modules)").stdout.split()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in {MANIFEST.other_names[0], NAMES[-1]} else pytest.mark.slow)
        for name in NAMES
    ],
)
def test_pytorch_gets_this_library_and_its_images(
    name: str, environment: Environment, objects: Objects
) -> None:
    lib = install_torch(environment, name, objects)
    before = {path: path.read_bytes() for path in lib.parent.rglob("*") if path.is_file()}
    assert use(environment, objects, AOTFORGE_ATTENTION="0") == OWN
    assert use(environment, objects) == "0"  # success: of our library, with the images beside it
    mapped = use(environment, objects, f"{USE}\nprint(open('/proc/self/maps').read())")
    packages = environment.site_packages
    assert f"{packages}/aotforge_attention/lib/{MANIFEST.soname}\n" in mapped
    assert f"{lib}/libaotriton" not in mapped
    shown = environment.run("-m", "aotforge_attention", "--json")
    state = json.loads(shown.stdout)
    assert (shown.returncode, state["needed"], state["packs"]) == (0, [name], ["amd-gfx908"])
    images = packages / "aotforge_attention" / "lib" / "aotriton.images" / "amd-gfx908"
    images.rename(images.parent.parent / "amd-gfx908")
    assert use(environment, objects, AOTFORGE_ATTENTION="1") == OWN  # no images: PyTorch keeps its own
    assert {path: path.read_bytes() for path in before} == before
    assert not [path for path in lib.parent.rglob("*") if path.is_file() and path not in before]


@pytest.mark.slow
def test_the_images_are_found_beside_the_library_only(environment: Environment, objects: Objects) -> None:
    install_torch(environment, NAMES[0], objects)
    images = environment.site_packages / "aotforge_attention" / "lib" / "aotriton.images"
    script = f"import os; os.rename({str(images)!r}, {str(images) + '.away'!r}); {USE}"
    assert use(environment, objects, script) not in {"0", OWN}  # loaded, and without images


@pytest.mark.slow
def test_pytorch_of_another_level_is_left_alone(environment: Environment, objects: Objects) -> None:
    install_torch(environment, OTHER_LEVEL, objects)
    assert use(environment, objects) == OWN
    shown = environment.run("-m", "aotforge_attention")
    assert shown.returncode == 1
    assert f"this PyTorch needs {OTHER_LEVEL}" in shown.stdout
    assert "pip install --index-url INDEX 'aotforge-attention==0.13.*'" in shown.stdout


def test_amds_own_wheels_without_images_are_named(environment: Environment, objects: Objects) -> None:
    """Where nothing is loaded; what the library replaces needs no cure."""
    lib = install_torch(environment, NAMES[0], objects)
    (lib.parents[1] / "amd_torch_device_gfx1201-2.12.0+rocm7.14.0.dist-info").mkdir()
    shown = environment.run("-m", "aotforge_attention", AOTFORGE_ATTENTION="0")
    assert "amd-torch-device-gfx1201 is installed without the wheel of its family" in shown.stdout
    assert "amd-torch-device-gfx12-0==2.12.0+rocm7.14.0" in shown.stdout
    assert "family" not in environment.run("-m", "aotforge_attention").stdout


def test_an_explicit_import_after_torch_is_too_late(environment: Environment, objects: Objects) -> None:
    install_torch(environment, NAMES[0], objects)
    for starter in environment.site_packages.glob("aotforge_attention.*"):
        starter.unlink()  # as in a Python that was started with -S
    script = "{}; import aotforge_attention as a; print(torch.probe(), a.status.reason)"
    assert use(environment, objects, script.format("import torch")) == f"{OWN} PyTorch was imported before"
    assert use(environment, objects, script.format("import aotforge_attention, torch")) == "0"


@pytest.mark.slow
def test_uninstalling_leaves_nothing(environment: Environment) -> None:
    done = environment.pip("uninstall", "--yes", "aotforge-attention", "aotforge-images-gfx908")
    assert done.returncode == 0, done.stderr
    left = [path for path in environment.site_packages.rglob("*aotforge*") if path.is_file()]
    assert not left and not list(environment.site_packages.glob("aotforge_attention/lib/*.so*"))


def test_auditwheel_agrees_with_the_platform(site: Site) -> None:
    wheel = site.wheel("aotforge-attention")
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=False,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    platform = wheel.stem.rpartition("-")[2]
    assert f'"{platform}"' in " ".join(done.stdout.split()), done.stdout
