"""The wheel: its console script in an empty virtual environment, outside of any checkout."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from aotforge.cli.console import WITHOUT_CHECKOUT
from aotforge.publish.stores.directory import DirectoryStore
from aotforge.publish.upload import publish_release
from aotforge.release.wheels import build_package
from tests.support.publishing import NOW, ROOT, make_keys, make_release, publish
from tests.support.releases import build_small
from tests.support.runtime import CACHE
from vgpu.hip.build_hip import build_virtual_hip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build_package(ROOT, folder)


def required(distribution: str) -> Iterator[str]:
    """A distribution's requirements without extras, in this environment."""
    for text in metadata.requires(distribution) or ():
        found = Requirement(text)
        if found.marker is None or found.marker.evaluate({"extra": ""}):
            yield found.name


def requirements(described: str) -> list[Requirement]:
    """Those of a wheel's METADATA."""
    key = "Requires-Dist: "
    return [Requirement(line.removeprefix(key)) for line in described.splitlines() if line.startswith(key)]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel and what its metadata requires, as pip would do it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        described = archive.read(f"{info}/METADATA").decode()
    wanted = [requirement.name for requirement in requirements(described) if requirement.marker is None]
    done: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name.lower() not in done:
            done.add(name.lower())
            wanted += required(name)
            distribution = metadata.distribution(name)
            tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
            for top in tops:
                if not (site / top).exists():
                    (site / top).symlink_to(str(distribution.locate_file(top)))
    return folder


def run(environment: Path, folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The console script, as its entry point starts it, with the environment of a new user."""
    script = "import sys; from aotforge.cli.console import main; sys.exit(main())"
    return subprocess.run(
        [environment / "bin" / "python", "-P", "-c", script, *words],
        cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder), **settings},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_equal_sources_give_equal_bytes(wheel: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    data = ("kernels", "manifests", "compat", "requirements")
    for name in ("aotforge", "aotforge_flash", "vgpu", "ttcpu", *data):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    (copy / "aotforge" / ".editor").mkdir()
    (copy / "aotforge" / ".editor" / "key.pem").write_text("a key")
    assert build_package(copy, tmp_path).read_bytes() == wheel.read_bytes()


def test_its_record_has_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
        assert set(rows) == set(archive.namelist())
        for name, (digest, size) in rows.items():
            data = archive.read(name)
            made = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert name == record or (digest, size) == (f"sha256={made}", str(len(data)))
        assert not [name for name in rows if "__pycache__" in name or name.endswith(".pyc")]
        assert [name for name in rows if name.startswith("ttcpu/") and name.endswith(".ll")]


def test_what_it_requires_is_what_is_tested(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (described,) = (
            archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")
        )
    for requirement in requirements(described):
        assert metadata.version(requirement.name) in requirement.specifier, requirement


def test_it_has_the_tasks_that_need_no_checkout(environment: Path, tmp_path: Path) -> None:
    listed = run(environment, tmp_path, "--list")
    assert listed.returncode == 0, listed.stderr
    names = {line.split()[0] for line in listed.stdout.splitlines() if line[:2] == "  " != line[2:4]}
    assert names == {*WITHOUT_CHECKOUT}
    unknown = run(environment, tmp_path, "build")
    assert unknown.returncode == 2
    assert unknown.stderr.splitlines()[-1] == "Next step: aotforge --list"
    assert "./dev" not in run(environment, tmp_path, "install", "--help").stdout


def test_the_matrix(environment: Path, tmp_path: Path) -> None:
    found = run(environment, tmp_path, "compat", "--pytorch", "2.9", "--arch", "gfx908")
    assert found.returncode == 0, found.stderr
    assert "aotforge dropin --pytorch-lib" in found.stdout


def test_a_published_release_is_installed(environment: Path, tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "keys")
    publish(make_release(tmp_path / "release"), DirectoryStore(tmp_path / "place"), keys)
    place = ("--from", str(tmp_path / "place"), "--root", str(tmp_path / "keys" / "roots" / "1.root.json"))
    words = ("--prefix", str(tmp_path / "prefix"), "--arch", "gfx908", "--rocm", "7.1", *place)
    done = run(environment, tmp_path, "install", *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "prefix" / "lib" / "aotriton.images" / "amd-gfx908" / "flash.aoti").is_file()
    assert (tmp_path / ".cache" / "aotforge").is_dir()
    removed = run(environment, tmp_path, "install", "--uninstall", "--prefix", str(tmp_path / "prefix"))
    assert removed.returncode == 0, removed.stderr
    assert not (tmp_path / "prefix" / "lib").exists()


@pytest.mark.compiler
def test_a_published_release_is_checked_on_a_gpu(environment: Path, tmp_path: Path) -> None:
    """With numpy, which the extra `hardware` brings, and without Triton: nothing is compared bit by bit."""
    keys, place = make_keys(tmp_path / "keys"), DirectoryStore(tmp_path / "place")
    release = build_small(tmp_path / "dist")
    publish_release(release, place, keys, now=NOW, allow_development=True)
    (site,) = environment.glob("lib/python*/site-packages")
    for name in ("numpy", "numpy.libs", f"numpy-{metadata.version('numpy')}.dist-info"):
        (site / name).symlink_to(str(metadata.distribution("numpy").locate_file(name)))
    words = ("--root", str(tmp_path / "keys" / "roots" / "1.root.json"), "--only", "add", "--repeat", "0")
    texts = str(next(release.glob("*-asm-*")))
    settings = {"LD_LIBRARY_PATH": str(build_virtual_hip(CACHE).folder), "AOTFORGE_CACHE": str(CACHE)}
    settings |= {"AOTFORGE_VIRTUAL": "devices=gfx908", "AOTFORGE_ASM": texts}
    done = run(environment, tmp_path, "hardware.check", "--from", place.url, *words, **settings)
    assert done.returncode == 0, done.stderr
    assert "2 passed" in done.stdout and "Triton is needed" in done.stderr
    report = json.loads(next(tmp_path.glob("hardware-gfx908-*.json")).read_text())
    (image, _) = report["predicate"]["images"]
    assert (image["outcome"], image["not_compared"][:6]) == ("passed", "Triton")


def test_a_folder_that_is_no_pytorch_is_refused(environment: Path, tmp_path: Path) -> None:
    release = make_release(tmp_path / "release")
    done = run(environment, tmp_path, "dropin", "--pytorch-lib", str(tmp_path), "--release", str(release))
    assert done.returncode == 4, done.stderr
    assert "libtorch_hip.so" in done.stderr


def test_a_store_that_needs_an_extra_is_named(environment: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "keys")
    root = str(tmp_path / "keys" / "roots" / "1.root.json")
    done = run(environment, tmp_path, "release.list", "--from", "s3://bucket/prefix", "--root", root)
    assert done.returncode == 4, done.stderr
    assert "pip install boto3" in done.stderr


@pytest.mark.slow
def test_pip_installs_it_with_its_dependencies(wheel: Path, tmp_path: Path) -> None:
    """Needs a package index."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True, cwd=tmp_path)
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "aotforge", "compat", "--pytorch", "2.9", "--arch", "gfx908"],
        cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert shutil.which("aotforge", path=str(tmp_path / "venv" / "bin"))
