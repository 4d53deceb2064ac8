"""A release from three parts has the bytes of one machine's: by a shared cache, and by three folders."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from aotforge.pipeline.build_release import BuildReport, build
from aotforge.pipeline.display import BuildDisplay
from aotforge.pipeline.parts import compile_part
from aotforge.pipeline.requests import BuildRequest, PartRequest
from aotforge.publish.keys import create_keys
from aotforge.verify.verdict_store import VERSION
from tests.support.cluster import HOME
from tests.support.families import PROJECT
from tests.support.publishing import NOW

pytestmark = pytest.mark.compiler


def fields(cache: Path, **more: Any) -> dict[str, Any]:
    cache.mkdir(parents=True, exist_ok=True)
    for name in ("emulator-1", "allocator-1", "runtime", "sources"):
        if (HOME / "cache" / name).is_dir() and not (cache / name).exists():
            (cache / name).symlink_to(HOME / "cache" / name)
    common = {"root": PROJECT, "archs": ("gfx908",), "profile": "smoke", "only": ("elementwise",)}
    return {**common, "cache": cache, "environment": dict(os.environ), **more}


def release(cache: Path, output: Path, **more: Any) -> BuildReport:
    return build(BuildRequest(**fields(cache, output=output, **more)), observer=BuildDisplay(quiet=True))


def digests(report: BuildReport) -> dict[str, str]:
    return {file.name: file.sha256 for file in report.release.files}


def test_a_release_from_three_parts_is_that_of_one_machine(tmp_path: Path) -> None:
    keys, place = tmp_path / "keys", str(tmp_path / "place")
    create_keys(keys, now=NOW, repository=PROJECT, root_keys=1, threshold=1)
    one = release(HOME / "cache", tmp_path / "one")
    compiled = []
    for number in (1, 2, 3):
        request = PartRequest(
            **fields(tmp_path / f"cache{number}", part=f"{number}/3", cache_to=place, cache_keys=keys)
        )
        report = compile_part(request, observer=BuildDisplay(quiet=True))
        assert (report.compiled, report.executed) == (report.images, report.images) and report.images
        compiled.append(report.images)
    assert sum(compiled) == one.images
    merged = tmp_path / "merged"
    for number in (1, 2, 3):
        for folder in ("images-1", f"verdicts-{VERSION}"):
            shutil.copytree(tmp_path / f"cache{number}" / folder, merged / folder, dirs_exist_ok=True)
    shared = {"cache_from": place, "cache_root": keys / "roots" / "1.root.json"}
    for name, more in (("merged", {}), ("empty", shared)):
        found = release(tmp_path / name, tmp_path / f"of-{name}", **more)
        assert (found.compiled, found.executed, found.release.fresh) == (0, 0, True), name
        assert digests(found) == digests(one), name
