"""Releases of two API levels, fetched with the pins of the PyTorch that each is for: attention with a bias,
dropout, packed sequences."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.deliver.pytorch.pins import pins_for_pytorch
from aotforge.errors import UnsupportedError
from aotforge.formats.api_level import feature_level
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.pack.writer import write_pack
from aotforge.release.assemble import assemble_release
from aotforge.release.model import PackInput
from tests.integration.pytorch.stack import plan_of
from tests.integration.pytorch.test_acceptance import FUNCTIONALS
from tests.integration.release.real import CACHE, ROOT
from tests.integration.release.standin import LICENCE, MANIFEST, records
from vgpu.hip.build_hip import build_virtual_hip, environment

pytestmark = pytest.mark.compiler
CLIENTS = ROOT / "tests" / "fixtures" / "clients"


def make_release(level: str, folder: Path) -> Path:
    """A release of an API level with the images of PyTorch's sample; its folder."""
    manifest, plan = MANIFEST.at(level), plan_of(FUNCTIONALS)
    architectures = load_architectures(ROOT / "manifests")
    with Cache(CACHE) as cache:
        images = list(
            compile_plan(
                plan, kernels_root=ROOT / "kernels", architectures=architectures, cache=cache
            ).values()
        )
        pack = write_pack(plan, images, release=manifest.name, compressor=manifest.compressor)
        assembly = {image.digest: image.asm for image in images}
    return assemble_release(
        manifest,
        [PackInput(pack=pack, assembly=assembly, records=records(plan, images))],
        build_runtime(LibraryRequest(root=ROOT, cache=CACHE, level=level)).prefix,
        output=folder,
        licence=LICENCE,
        epoch=manifest.epoch,
        inputs="test",
    ).folder


@pytest.mark.parametrize(
    ("pytorch", "level", "other"),
    [
        ("2.11", "0.11.2b", "2.13"),
        pytest.param("2.13", "0.12.1b", "2.11", marks=pytest.mark.slow),
        pytest.param("main", "0.14.2b", "2.13", marks=pytest.mark.slow),
    ],
)
def test_a_build_with_pytorchs_pins_computes_attention(
    pytorch: str, level: str, other: str, tmp_path: Path
) -> None:
    release, virtual = make_release(level, tmp_path / "dist"), build_virtual_hip(CACHE)
    url = f"file://{release.parent}/"
    pins = tmp_path / "pins.cmake"
    pins.write_text(pins_for_pytorch(ROOT, release, pytorch=pytorch, fork=False, url=url))
    with pytest.raises(UnsupportedError, match=f"{other} cannot be built with {level}"):
        pins_for_pytorch(ROOT, release, pytorch=other, fork=False, url=url)
    shutil.copytree(CLIENTS, tmp_path / "clients")
    settings = {
        "AOTRITON_PINS": pins,
        "ROCM_VERSION": "7.1",
        "ROCM_ARCHS": "gfx908",
        "CLIENT": tmp_path / "clients" / "attention.cpp",
        "HIP_INCLUDE_DIR": ROOT / "runtime" / "src" / "standin",
        "HIP_LIBRARY": virtual.library,
    }
    build = tmp_path / "build"
    flags = [f"-D{name}={value}" for name, value in settings.items()]
    configure = ["-G", "Ninja", "-S", tmp_path / "clients" / "pytorch_like", "-B", build, *flags]
    for command in (configure, ["--build", build]):
        run(["cmake", *map(str, command)], {"PYTORCH_AOTRITON_BASE_URL": url})
    texts = [release / f"aotriton-{MANIFEST.at(level).name}-asm-amd-gfx908.tar.gz"]
    output = run([str(build / "client")], environment(virtual, devices=["gfx908"], texts=texts, cache=CACHE))
    assert output == f"right numbers at API level {feature_level(level)}\n"


def run(command: list[str], more: dict[str, str]) -> str:
    """Standard output; everything that was written when the command fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AOTRITON_")}
    done = subprocess.run(command, env=clean | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
