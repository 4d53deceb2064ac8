"""Releases of every other API level: all checks, and the same image tarball."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.conformance.check_release import check_release
from aotforge.conformance.compilers import standin_hip
from aotforge.formats.archive import sha256_file
from aotforge.release.model import load_release_manifest
from tests.support.releases import build_small
from tests.support.runtime import CACHE, ROOT

LEVELS = load_release_manifest(ROOT / "manifests" / "release.yaml").api_levels[1:]


def images(folder: Path) -> list[str]:
    return [sha256_file(path) for path in sorted(folder.glob("*-images-*.tar.gz"))]


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_release_of_another_level(level: str, release: Path, tmp_path: Path) -> None:
    made = build_small(tmp_path, version=level)
    assert made.name == f"{level}-r1"
    report = check_release(made, checkout=ROOT, cache=CACHE, jobs=2, development=True, hip=standin_hip(ROOT))
    failed = [finding for finding in report.of("failed") if "smoke is not complete" not in finding.evidence]
    assert not failed
    assert images(made) == images(release) and images(made)
    names = [finding for finding in report.findings if finding.check == "names"]
    assert level in names[0].what
