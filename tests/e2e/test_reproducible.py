"""Two clones make the same archive for Windows; see test_first_steps.py for Linux."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.e2e.checkouts import copy_checkout, invoke
from tests.support.rootfs import cache, target

pytestmark = pytest.mark.compiler


@pytest.mark.slow
def test_two_clones_make_one_windows_zip(tmp_path: Path) -> None:
    target("docker", tmp_path, "windows-noimage")
    digests = set()
    for folder in (tmp_path / "a", tmp_path / "another place" / "ünïcode"):
        checkout = copy_checkout(folder / "checkout")
        (folder / "cache").mkdir()
        for part in ("containers", "sources"):
            (cache() / part).mkdir(exist_ok=True)
            (folder / "cache" / part).symlink_to(cache() / part)
        flags = ("--executor", "docker", "--cache", str(folder / "cache"), "--output", str(folder / "out"))
        report = json.loads(invoke(checkout, "build.windows", "--json", *flags).stdout)
        assert report["fresh"]
        digests.add(hashlib.sha256(Path(report["file"]).read_bytes()).hexdigest())
    assert len(digests) == 1
