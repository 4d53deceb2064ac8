"""Builds in containers as a user runs them; in trouble, one clear error and nothing half written."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.checkouts import ROOT, invoke

BUILD = ("build", "--arch", "gfx908", "--profile", "smoke", "--no-verify", "--executor")


def test_prune_and_shell(tmp_path: Path) -> None:
    flags = ("--cache", str(tmp_path))
    assert json.loads(invoke(ROOT, "cache", "--prune", "1", *flags, "--json").stdout)["rootfs"] == []
    unknown = invoke(ROOT, "containers.shell", "rocm-runtim", *flags, check=False)
    assert unknown.returncode == 2 and "rocm-runtime" in unknown.stderr


def test_engines_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    flags = ("--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "out"))
    for name in ("podman", "bubblewrap"):
        done = invoke(ROOT, *BUILD, name, *flags, env={"PATH": str(tmp_path / "bin")}, check=False)
        assert done.returncode == 3
        assert f"{name} is not installed" in done.stderr and f"apt-get install {name}" in done.stderr
    gone = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = invoke(ROOT, *BUILD, "docker", *flags, env=gone, check=False)
    assert done.returncode == 3 and "no response from the Docker daemon" in done.stderr
    assert not (tmp_path / "out").exists()
