"""Wheels of a small release that was really built, and an index of them that pip reads over HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aotforge.deliver.wheel_index import read_wheels, write_index
from aotforge.release.model import ReleaseManifest, load_release_manifest
from aotforge.release.wheels import make_wheels
from tests.integration.release.test_finalize import ORIGIN
from tests.support.releases import build_small
from tests.support.runtime import ROOT
from tests.support.web import served

MANIFEST: ReleaseManifest = load_release_manifest(ROOT / "manifests" / "release.yaml")
PACKS = {"amd-gfx908": ("gfx908",)}


@dataclass(frozen=True, kw_only=True)
class Site:
    """`build` is the release folder without wheels, `folder` a site with `<release>/*.whl` and `simple/`."""

    build: Path
    folder: Path

    @property
    def wheels(self) -> Path:
        return self.folder / MANIFEST.name

    def wheel(self, project: str) -> Path:
        (found,) = self.wheels.glob(f"{project.replace('-', '_')}-*.whl")
        return found


def write_wheels(build: Path, folder: Path, windows: Path | None = None) -> list[Path]:
    """As `./dev release --wheels` makes them."""
    folder.mkdir(parents=True, exist_ok=True)
    origin = replace(ORIGIN, release=MANIFEST.name)
    return make_wheels(build, MANIFEST, origin, PACKS, folder, windows=windows)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("wheels")
    made = Site(build=build_small(folder / "dist"), folder=folder / "www")
    write_wheels(made.build, made.wheels)
    write_index(made.folder, read_wheels(made.wheels))
    return made


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment that was empty before the wheels."""

    folder: Path

    @property
    def site_packages(self) -> Path:
        (found,) = self.folder.glob("lib/python3*/site-packages")
        return found

    def pip(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The tests' own pip, which installs into this environment, without the machine's settings."""
        command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
        return subprocess.run(
            [*command, "--python", self.folder / "bin" / "python", *words],
            capture_output=True, text=True, check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
        )  # fmt: skip

    def run(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Its Python, as a user without any setting starts it."""
        return subprocess.run(
            [self.folder / "bin" / "python", *words],
            cwd=self.folder, capture_output=True, text=True, check=False,
            env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **settings},
        )  # fmt: skip


@pytest.fixture(scope="session")
def installed(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Library and images, installed by pip from the index."""
    environment = Environment(folder=tmp_path_factory.mktemp("environment"))
    venv.create(environment.folder, with_pip=False, symlinks=True)
    with served(site.folder) as (url, _):
        done = environment.pip(
            "install", "--no-cache-dir", "--index-url", f"{url}simple/", "aotforge-attention[gfx908]==0.11.*"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return environment


@pytest.fixture
def environment(installed: Environment, tmp_path: Path) -> Environment:
    """A copy for a test that installs a PyTorch or changes files."""
    return Environment(folder=shutil.copytree(installed.folder, tmp_path / "environment", symlinks=True))
