"""Builds in containers as a user runs them; in trouble, one clear error and nothing half written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.checkouts import (
    HOME,
    ROOT,
    build_json,
    command,
    copy_checkout,
    environment,
    invoke,
    share_interpreter,
    tarballs,
)
from tests.support.engines import private_daemon
from tests.support.rootfs import cache, target

BUILD = ("build", "--arch", "gfx908", "--profile", "smoke", "--no-verify", "--executor")


def test_prune_and_shell(tmp_path: Path) -> None:
    flags = ("--cache", str(tmp_path))
    assert json.loads(invoke(ROOT, "cache", "--prune", "1", *flags, "--json").stdout)["rootfs"] == []
    unknown = invoke(ROOT, "containers.shell", "rocm-runtim", *flags, check=False)
    assert unknown.returncode == 2 and "rocm-runtime" in unknown.stderr


def store(folder: Path, name: str) -> Path:
    """A cache that has rootfs images and sources, for builds in a runner that works here."""
    for root in ("rocm-kernels", "rocm-runtime"):
        target(name, folder.parent / "probe", root)
    share_interpreter(folder)
    for part in ("containers", "sources"):
        (cache() / part).mkdir(parents=True, exist_ok=True)
        (folder / part).symlink_to(cache() / part)
    return folder


def files(folder: Path) -> list[str]:
    """Files below a folder, without locks."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


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


@pytest.mark.compiler
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_daemon_or_a_build_that_is_killed_and_the_build_after_it(tmp_path: Path) -> None:
    """Beside it, a clone below spaces and another alphabet."""
    strange = tmp_path / "wörk träe" / "源码 и код"
    folder, flags = store(tmp_path / "cache", "docker"), ("--output", str(tmp_path / "out"))
    for victim in ("daemon", "build"):
        with private_daemon() as daemon:
            settings = environment(ROOT, {"AOTFORGE_HOME": str(HOME), "DOCKER_HOST": daemon.url})
            with (tmp_path / "log").open("wb") as log:
                build = subprocess.Popen(
                    command(*BUILD, "docker", "--cache", str(folder), *flags),
                    cwd=ROOT,
                    env=settings,
                    stdout=log,
                    stderr=log,
                )
            before = len(list((folder / "images-1").glob("??/*")))
            while len(list((folder / "images-1").glob("??/*"))) == before and build.poll() is None:
                time.sleep(0.1)  # until an image has come back
            (daemon.process if victim == "daemon" else build).send_signal(signal.SIGKILL)
            code, text = build.wait(300), (tmp_path / "log").read_text()
            assert code == (3 if victim == "daemon" else -signal.SIGKILL), text
            assert "Traceback" not in text and files(tmp_path / "out") == []
    common = ("--profile", "smoke", "--no-verify", "--executor", "docker")
    resumed = build_json(ROOT, *common, "--cache", str(folder), *flags)
    assert resumed["cached"] and resumed["damaged"] == []
    other = build_json(
        copy_checkout(strange / "checkout"), *common, "--cache", str(store(strange / "cäche 缓存", "docker")),
        "--output", str(strange / "öut put"),
    )  # fmt: skip
    assert tarballs(resumed) == tarballs(other)
    assert not list((folder / "executors").glob("*/step-*"))
    label = f"label=aotforge.owner={os.uname().nodename}:{folder}"
    words = ["docker", "ps", "--all", "--quiet", "--filter", label]
    assert subprocess.run(words, capture_output=True, check=True).stdout == b""
