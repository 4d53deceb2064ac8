"""Two builds that share nothing but the sources give the same tarballs, bit for bit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.e2e.checkouts import build_json, copy_checkout, invoke, tarballs
from tests.support.rootfs import cache, executor, project_rootfs

pytestmark = pytest.mark.compiler


def test_two_builds_in_different_surroundings_are_identical(tmp_path: Path) -> None:
    first = copy_checkout(tmp_path / "a")
    second = copy_checkout(tmp_path / "another place" / "ünïcode")
    one = build_json(
        first, "--profile", "smoke", "--jobs", "1", env={"PYTHONHASHSEED": "1", "LC_ALL": "C"}, umask=0o077
    )
    two = build_json(
        second,
        *("--profile", "smoke", "--jobs", "2", "--output", str(tmp_path / "out")),
        env={"PYTHONHASHSEED": "4242", "LC_ALL": "C.UTF-8", "TZ": "Asia/Kolkata", "TRITON_DEBUG": "1"},
    )
    assert (one["compiled"], two["compiled"]) == (one["images"], one["images"])
    assert tarballs(one) == tarballs(two)
    for name, digest in tarballs(two).items():
        assert hashlib.sha256((tmp_path / "out" / two["release"] / name).read_bytes()).hexdigest() == digest
    text = (Path(two["folder"]) / "SHA256SUMS").read_text()
    assert {line.split("  ")[1] for line in text.splitlines()} == set(tarballs(two)) - {"SHA256SUMS"}


@pytest.mark.slow
def test_two_clones_make_one_windows_zip(tmp_path: Path) -> None:
    project_rootfs("windows-noimage")
    executor("docker", tmp_path)
    digests = set()
    for folder in (tmp_path / "a", tmp_path / "another place" / "ünïcode"):
        checkout = copy_checkout(folder / "checkout")
        (folder / "cache").mkdir()
        for part in ("containers", "sources"):
            (cache() / part).mkdir(exist_ok=True)
            (folder / "cache" / part).symlink_to(cache() / part)
        flags = ("--executor", "docker", "--cache", str(folder / "cache"), "--output", str(folder / "out"))
        report = json.loads(invoke(checkout, "build", "--platform", "windows", "--json", *flags).stdout)
        assert report["fresh"]
        digests.add(hashlib.sha256(Path(report["file"]).read_bytes()).hexdigest())
    assert len(digests) == 1
