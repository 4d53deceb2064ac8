from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aotforge.compile.model import KernelImage
from aotforge.pack.writer import write_pack
from aotforge.release.model import load_release_manifest
from tests.integration.compile.builds import compiled
from tests.support.attention import spy_pack
from tests.support.families import plan_project
from tests.support.readers import Readers
from tests.support.runtime import CACHE, ROOT, Objects, build_objects
from tests.support.small_pack import write


@pytest.fixture(scope="session")
def objects() -> Objects:
    return build_objects()


@pytest.fixture
def readers(objects: Objects, tmp_path: Path) -> Iterator[Readers]:
    """The library's readers of packs, as a program."""
    started = Readers(objects.program("readers"), tmp_path)
    yield started
    started.close()


@pytest.fixture(scope="session")
def spy_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packs with one pack of spy kernels for gfx908."""
    folder = tmp_path_factory.mktemp("images")
    write(spy_pack(), folder / "amd-gfx908")
    return folder


@pytest.fixture(scope="session")
def real_images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[KernelImage]]:
    """A folder of packs with the smoke profile's images for gfx908, and these."""
    plan = plan_project(ROOT, archs=["gfx908"], profile="smoke")
    found = list(compiled(plan, CACHE, jobs=2).values())
    manifest = load_release_manifest(ROOT / "manifests" / "release.yaml")
    pack = write_pack(plan, found, release=manifest.name, compressor=manifest.compressor)
    folder = tmp_path_factory.mktemp("real") / pack.name
    folder.mkdir()
    for name, content in pack.files.items():
        (folder / name).write_bytes(content)
    return folder.parent, found
