"""Builds in containers on machines in trouble: one clear error, its exit code, nothing half written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, ROOT, command, copy_checkout, environment, invoke, share_interpreter
from tests.support.engines import private_daemon
from tests.support.rootfs import cache, executor, project_rootfs

pytestmark = pytest.mark.compiler
BUILD = ("build", "--arch", "gfx908", "--profile", "smoke", "--no-verify", "--executor")


def store(folder: Path, *, library: Path | None = None) -> Path:
    """A cache that has roots and sources, and the library if another cache has it."""
    for root in ("rocm-kernels", "rocm-runtime"):
        project_rootfs(root)
    share_interpreter(folder)
    for part in ("containers", "sources"):
        (cache() / part).mkdir(exist_ok=True)  # on a new machine nothing may have been fetched yet
        (folder / part).symlink_to(cache() / part)
    if library is not None:
        shutil.copytree(library / "runtime", folder / "runtime", symlinks=True)
    return folder


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A disk of this many KiB at `folder`."""
    folder.mkdir(parents=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=755", "aotforge-test", str(folder)], capture_output=True, check=False
    )  # fmt: skip
    if made.returncode:
        pytest.skip("needs the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def files(folder: Path) -> list[str]:
    """Files below a folder, without locks and what was there before the build."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    ]


def test_a_cache_on_a_full_disk(tmp_path: Path) -> None:
    executor("bubblewrap", tmp_path)
    with small_disk(tmp_path / "cache", 600) as folder:
        store(folder)
        done = invoke(
            ROOT, *BUILD, "bubblewrap", "--cache", str(folder), "--output", str(tmp_path / "out"), check=False
        )
        assert done.returncode == 3, done.stderr
        assert (
            "No space left on device" in done.stderr
            and f"free some space in the cache folder {folder}" in done.stderr
        )
        assert "Traceback" not in done.stderr
        assert files(folder / "runtime") == []
    assert files(tmp_path / "out") == []


def test_engines_that_are_missing_or_not_for_this_user(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    flags = ("--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "out"))
    for name, message in (
        ("podman", "podman is not installed"),
        ("bubblewrap", "bubblewrap is not installed"),
    ):
        done = invoke(ROOT, *BUILD, name, *flags, env={"PATH": str(tmp_path / "bin")}, check=False)
        assert done.returncode == 3
        assert message in done.stderr and f"apt-get install {name}" in done.stderr
    gone = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = invoke(ROOT, *BUILD, "docker", *flags, env=gone, check=False)
    assert done.returncode == 3 and "the Docker daemon does not respond" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_socket_that_this_user_may_not_use(tmp_path: Path) -> None:
    executor("docker", tmp_path)
    if os.geteuid() != 0 or shutil.which("setpriv") is None or os.environ.get("DOCKER_HOST"):
        pytest.skip("needs root, setpriv and a daemon of this machine, to be another user")
    place = tmp_path / "theirs"
    place.mkdir()
    for folder in (place, *place.parents[:3]):
        folder.chmod(0o755)
    os.chown(place, 65534, 65534)
    # another user who may read the environment that the tests run in
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    other += ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    build = command(*BUILD, "docker", "--cache", str(place / "cache"), "--output", str(place / "out"))
    done = subprocess.run(
        [*other, *build], cwd=ROOT, env=environment(ROOT, {"AOTFORGE_HOME": str(HOME), "HOME": str(place)}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 127 or "setpriv" in done.stderr:
        pytest.skip(f"setpriv: {done.stderr}")
    assert done.returncode == 3, done.stderr
    assert "this user may not use the Docker daemon" in done.stderr and "group docker" in done.stderr
    assert not (place / "out").exists() and not (place / "cache").exists()


@pytest.mark.slow
def test_disks_that_fill_up_while_images_come_back_and_while_tarballs_are_written(tmp_path: Path) -> None:
    executor("docker", tmp_path)
    complete = store(tmp_path / "complete")
    flags = ("--output", str(tmp_path / "out"))
    invoke(ROOT, *BUILD, "docker", "--cache", str(complete), "--output", str(tmp_path / "first"))
    with small_disk(tmp_path / "cache", 720) as folder:
        store(folder, library=complete)
        done = invoke(ROOT, *BUILD, "docker", "--cache", str(folder), *flags, check=False)
        assert done.returncode == 3, done.stderr
        assert "No space left on device" in done.stderr and "finished images are kept" in done.stderr
        kept = {path.name: path.read_bytes() for path in (folder / "images-1").glob("??/*")}
        assert kept and all(
            data == next(complete.glob(f"images-1/??/{name}")).read_bytes() for name, data in kept.items()
        )
    assert files(tmp_path / "out") == []
    with small_disk(tmp_path / "small", 400) as folder:
        done = invoke(
            ROOT, *BUILD, "docker", "--cache", str(complete), "--output", str(folder / "out"), check=False
        )
        assert done.returncode == 3, done.stderr
        assert "the disk is full" in done.stderr and files(folder) == []


@pytest.mark.slow
def test_a_daemon_that_is_killed_during_a_build(tmp_path: Path) -> None:
    folder = store(tmp_path / "cache")
    with private_daemon() as daemon:
        settings = environment(ROOT, {"AOTFORGE_HOME": str(HOME), "DOCKER_HOST": daemon.url})
        with (tmp_path / "log").open("wb") as log:
            build = subprocess.Popen(
                command(*BUILD, "docker", "--cache", str(folder), "--output", str(tmp_path / "out")), cwd=ROOT, env=settings,
                stdout=log, stderr=log,
            )  # fmt: skip
        while not list((folder / "images-1").glob("??/*")) and build.poll() is None:
            time.sleep(0.1)  # until the first image has come back
        daemon.process.send_signal(signal.SIGKILL)
        code = build.wait(300)
    text = (tmp_path / "log").read_text()
    assert code == 29, text
    assert "the Docker daemon exited while a step ran" in text and "Traceback" not in text
    assert files(tmp_path / "out") == []
    done = invoke(ROOT, *BUILD, "docker", "--cache", str(folder), "--output", str(tmp_path / "out"))
    assert "from the cache" in done.stdout and ", 0 from the cache" not in done.stdout


@pytest.mark.slow
def test_checkout_and_cache_below_spaces_and_other_alphabets(tmp_path: Path) -> None:
    executor("docker", tmp_path)
    strange = tmp_path / "wörk träe" / "源码 и код"
    checkout, folder = copy_checkout(strange / "checkout"), store(strange / "cäche 缓存")
    sums = []
    for root, place, out in (
        (checkout, folder, strange / "öut put"),
        (ROOT, store(tmp_path / "cache"), tmp_path / "out"),
    ):
        invoke(root, *BUILD, "docker", "--cache", str(place), "--output", str(out))
        sums.append(next(out.glob("*/SHA256SUMS")).read_text())
    assert sums[0] == sums[1]
