"""`./dev image` as a user runs it, on a base whose PyTorch is on virtual GPUs: attention in a container."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from aotforge.conformance.matrix import levels_of_names
from aotforge.deliver.container_image import needed_names
from aotforge.errors import DropInError, ExecutorError, UnsupportedError
from aotforge.run.engine import Engine
from tests.e2e.checkouts import HOME, ROOT, invoke
from tests.integration.deliver.wheels.conftest import Environment, write_wheels
from tests.support.releases import build_small
from tests.support.rootfs import libraries_of
from tests.support.virtual_torch import NEEDED, SITES, virtual_environment
from vgpu.hip.build_hip import VirtualHip, build_virtual_hip, script

BASE, TAG = "localhost/aotforge-test-base", "localhost/aotforge-test-image"
PYTHON = Path(sys.base_prefix) / "bin" / "python3"
SITE = Path(sys.base_prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
PACKAGES = (
    *("torch", "torchgen", "functorch", "pip", "sympy", "mpmath", "networkx", "jinja2", "markupsafe"),
    *("filelock", "fsspec", "typing_extensions.py", "yaml"),
)
SMALL = (ROOT / "docker" / "attention.py").read_text().replace("2, 8, 1000, 64", "1, 2, 100, 32")
"""The program of the owners' pages, on a call that profile `smoke` serves."""


LIMITS = ("--ulimit", "nofile=16384:16384", "--ulimit", "nproc=16384:16384")
"""Podman's own are higher than root in a container may set."""


def engine_run(engine: str, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    if (engine, words[0]) == ("podman", "run"):
        words = ("run", *LIMITS, *words[1:])
    return subprocess.run([engine, *words], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_without_an_engine(tmp_path: Path) -> None:
    gone = {"PATH": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    for flags, what in ((("--engine", "podman"), "podman is not installed"), ((), "from docker or podman")):
        words = ("image", "--base", "some", "--arch", "gfx906", *flags)
        done = invoke(ROOT, *words, env=gone, check=False)
        assert done.returncode == 3 and what in done.stderr, done.stderr


class Answers(Engine):
    """An engine whose containers print `torch` (None: fail), and whose images have that libtorch_hip.so."""

    def __init__(self, torch: str | None, library: Path | None = None) -> None:
        super().__init__("docker", None)
        self.torch, self.library = torch, library

    def output(self, image: str, *words: str) -> str:
        if self.torch is None:
            raise ExecutorError(f"{words[0]} in {image} exited with 1")
        return self.torch

    def copy(self, image: str, path: str, folder: Path) -> bool:
        return bool(self.library and shutil.copy(self.library, folder / Path(path).name))


def test_a_base_of_another_kind(tmp_path: Path) -> None:
    """Containers without PyTorch, with one for NVIDIA, and with one of an unknown level."""
    with pytest.raises(DropInError, match="python3 of the image some:base finds no PyTorch"):
        needed_names(Answers(None), "some:base")
    with pytest.raises(DropInError, match=r"not built for ROCm: there is no /opt/torch/lib/libtorch_hip\.so"):
        needed_names(Answers("/opt/torch"), "some:base")
    name, made = "libaotriton_v2.so.0.9.2", tmp_path / "made.so"
    for output, flag in ((tmp_path / name, f"-Wl,-soname,{name}"), (made, str(tmp_path / name))):
        shared = ["gcc", "-shared", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed", flag]
        subprocess.run([*shared, "-o", output], input=b"int nothing;\n", check=True)
    with pytest.raises(UnsupportedError, match=r"0\.9"):
        levels_of_names(ROOT, needed_names(Answers("/opt/torch", made), "some:base"))


def test_the_recipes_use_the_image() -> None:
    services = yaml.safe_load((ROOT / "docker" / "compose.yml").read_text())["services"]
    assert {one["image"] for one in services.values()} == {"${IMAGE:-attention}"}
    assert all("/dev/kfd" in one["devices"] for one in services.values())


def write_tree(tree: Path, torch: Path, virtual: VirtualHip, texts: Path, cache: Path) -> None:
    """A root of this Python with pip, that PyTorch, virtual HIP and what it keeps: no compiler, no numpy."""
    stdlib = SITE.parent
    heavy = ("site-packages", "test", "idlelib", "tkinter", "ensurepip", "config-*", "__pycache__")
    shutil.copytree(stdlib, tree / str(stdlib)[1:], ignore=shutil.ignore_patterns(*heavy), symlinks=True)
    packages = tree / str(SITE)[1:]
    packages.mkdir()
    for name in PACKAGES:
        source = next((place / name for place in (torch, *SITES) if (place / name).exists()), None)
        if source and source.is_dir():
            unused = shutil.ignore_patterns("include", "__pycache__", "test")
            shutil.copytree(source, packages / name, ignore=unused)
        elif source:
            shutil.copy2(source, packages / name)
    root = tree / "opt" / "vgpu"
    shutil.copytree(ROOT / "vgpu", root / "vgpu", ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "opt" / "hip").mkdir()
    shutil.copy2(virtual.library.resolve(), tree / "opt" / "hip" / virtual.library.name)
    prepare = tree / "opt" / "hip" / "prepare"
    prepare.write_text(script(str(PYTHON), Path("/opt/vgpu")))
    prepare.chmod(0o755)
    shutil.copy2(texts, tree / "opt" / "texts.tar.gz")
    shutil.copytree(cache, tree / str(cache)[1:], dirs_exist_ok=True)
    real = PYTHON.resolve()
    modules = (*(stdlib / "lib-dynload").iterdir(), *packages.rglob("*.so*"))
    loaded = [real, Path("/bin/sh"), *modules]
    for path in {real, Path("/bin/sh"), *libraries_of(loaded)}:
        if not path.is_relative_to(packages):
            (tree / str(path)[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, tree / str(path)[1:])
    (tree / str(PYTHON)[1:]).unlink(missing_ok=True)
    (tree / str(PYTHON)[1:]).symlink_to(real.name)
    (tree / "tmp").mkdir(exist_ok=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, str]]:
    """A release with wheels, and the tar and variables of an image that fakes one with PyTorch for ROCm."""
    tmp_path = tmp_path_factory.mktemp("base")
    pytest.importorskip("torch")
    release = build_small(tmp_path / "dist")
    write_wheels(release, release)
    (texts,) = release.glob("*-asm-*")
    cache, virtual = tmp_path / "cache", build_virtual_hip(HOME / "cache")
    environment = Environment(folder=virtual_environment(tmp_path, release, virtual))
    # what the virtual GPU prepares needs a compiler, which the container has not: once here
    wheels = ("--no-index", "--find-links", str(release), "aotforge-attention[gfx908]")
    assert environment.pip("install", *wheels).returncode == 0
    cache.mkdir()
    settings = {
        "AOTFORGE_ASM": str(texts),
        "AOTFORGE_CACHE": str(cache),
        "AOTFORGE_VIRTUAL": "devices=gfx908",
    }
    settings |= {"AOTFORGE_PARTIAL_PACK": "1", "LD_LIBRARY_PATH": str(virtual.folder)}
    done = environment.run("-c", SMALL, **settings)
    assert "virtual gfx908" in done.stdout, done.stderr
    write_tree(tmp_path / "tree", tmp_path / "site", virtual, texts, cache)
    settings |= {"AOTFORGE_ASM": "/opt/texts.tar.gz", "LD_LIBRARY_PATH": "/opt/hip"}
    settings |= {"PATH": f"{PYTHON.parent}:/usr/bin:/bin"}
    packed = tmp_path / "base.tar"
    with tarfile.open(packed, "w") as tar:
        tar.add(tmp_path / "tree", ".")
    return release, packed, settings


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, base: tuple[Path, Path, dict[str, str]]) -> Iterator[str]:
    """An engine that has the base."""
    name: str = request.param
    if not shutil.which(name) or engine_run(name, "info").returncode:
        pytest.skip("no response from the Docker daemon" if name == "docker" else f"{name} is not installed")
    _, packed, settings = base
    changes = [word for key, value in settings.items() for word in ("--change", f"ENV {key}={value}")]
    imported = engine_run(name, "import", *changes, str(packed), BASE)
    assert imported.returncode == 0, imported.stderr
    yield name
    engine_run(name, "image", "rm", "--force", TAG, BASE)


@pytest.mark.slow
def test_attention_in_a_container(engine: str, base: tuple[Path, Path, dict[str, str]]) -> None:
    release = base[0]

    def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
        return engine_run(engine, *words, **options)

    words = ("image", "--engine", engine, "--base", BASE, "--arch", "gfx908", "--release", str(release))
    report = json.loads(invoke(ROOT, *words, "--tag", TAG, "--json").stdout)
    assert (report["tag"], report["archs"], report["release"]) == (TAG, ["gfx908"], release.name)
    state = json.loads(run("run", "--rm", TAG, "python3", "-m", "aotforge_attention", "--json").stdout)
    assert state["library"] and state["needed"] == [NEEDED] and state["packs"] == ["amd-gfx908"]
    (image,) = json.loads(run("image", "inspect", TAG).stdout)
    health = image["Config"].get("Healthcheck") or image["Healthcheck"]  # docker's, podman's
    assert health["Test"] == ["CMD", "python3", "-m", "aotforge_attention"]
    done = run("run", "--rm", "-i", TAG, "python3", "-", input=SMALL)
    assert done.returncode == 0 and "cuda, virtual gfx908 (" in done.stdout, done.stderr
    # without the wheels the same program fails: the library in torch/lib has no code
    assert run("run", "--rm", "-i", BASE, "python3", "-", input=SMALL).returncode != 0
