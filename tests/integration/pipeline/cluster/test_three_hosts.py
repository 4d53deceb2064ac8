"""A build on three hosts of which one is killed, one is cut off for 30 s and one joins late: the bytes of one machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from aotforge.publish.keys import create_keys
from tests.support.cluster import HOME, entries, verdicts
from tests.support.families import PROJECT
from tests.support.network_hosts import HUB_ADDRESS, Hosts, network_hosts
from tests.support.publishing import NOW

TIMEOUT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "300s"}
"""Dask's own limit is 30 s, after which a worker that is cut off ends."""

SCHEDULER = f"tcp://{HUB_ADDRESS}:8786"
CUT_SECONDS = 30.0
BUILD = ("build", "--arch", "gfx908", "--profile", "quick", "--json")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.compiler,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces"),
    pytest.mark.skipif(not shutil.which("ip"), reason="ip(8) is not installed"),
]
pytest.importorskip("distributed", reason="the packages of --engine dask are not installed")


def environment(cache: Path) -> dict[str, str]:
    """The caller's, with a cache folder of its own that has the library and helpers of the project's cache."""
    cache.mkdir(parents=True)
    for name in ("emulator-1", "allocator-1", "runtime", "sources"):
        if (HOME / "cache" / name).is_dir():
            (cache / name).symlink_to(HOME / "cache" / name)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "PYTEST_"))}
    kept |= TIMEOUT
    return {**kept, "AOTFORGE_HOME": str(HOME), "AOTFORGE_CACHE": str(cache), "PYTHONPATH": str(PROJECT)}


def start_worker(hosts: Hosts, number: int, folder: Path) -> None:
    command = ("-m", "dask", "worker", SCHEDULER, "--nthreads", "1", "--nworkers", "1", "--no-dashboard")
    hosts.start(
        number,
        [sys.executable, *command, "--local-directory", str(folder / f"dask{number}")],
        log=folder / f"worker{number}.log",
        environment=environment(folder / f"cache{number}"),
        cwd=PROJECT,
    )


def wait_until(what: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    while not what():
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)


def tarballs(report: Mapping[str, Any]) -> dict[str, str]:
    return {file["name"]: file["sha256"] for file in report["files"]}


def test_a_killed_a_cut_off_and_a_late_host(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys", now=NOW, repository=PROJECT, root_keys=1, threshold=1)
    place, log = tmp_path / "place", tmp_path / "build.log"

    def stored() -> int:
        return len(entries(tmp_path / "cache"))

    with network_hosts(3) as hosts:
        dask = [sys.executable, "-m", "dask", "scheduler", "--host", HUB_ADDRESS, "--no-dashboard"]
        hosts.start(
            0, dask, log=tmp_path / "scheduler.log", environment=environment(tmp_path / "none"), cwd=PROJECT
        )
        start_worker(hosts, 1, tmp_path)
        start_worker(hosts, 2, tmp_path)
        build = hosts.start(
            0,
            [
                *(sys.executable, "tasks.py", *BUILD, "--output", str(tmp_path / "there")),
                *("--engine", "dask", "--scheduler", SCHEDULER, "--trust-network"),
                *("--cache-to", str(place), "--cache-keys", str(tmp_path / "keys")),
            ],
            log=log,
            environment=environment(tmp_path / "cache"),
            cwd=PROJECT,
            stdout=(tmp_path / "report.json").open("wb"),
        )
        began = time.monotonic()
        wait_until(lambda: stored() >= 5, build, log)
        hosts.connect(1, up=False)
        hosts.kill(1)
        start_worker(hosts, 3, tmp_path)
        wait_until(lambda: stored() >= 15, build, log)
        hosts.connect(2, up=False)
        cut, at = time.monotonic(), stored()
        wait_until(lambda: time.monotonic() - cut > CUT_SECONDS, build, log)
        sys.stdout.write(f"\n{at} images when a host was cut off, {stored()} after {CUT_SECONDS:.0f} s\n")
        hosts.connect(2, up=True)
        assert build.wait(timeout=3600) == 0, log.read_text()
        seconds = time.monotonic() - began
    report = json.loads((tmp_path / "report.json").read_text())
    sys.stdout.write(f"{report['images']} images in {seconds:.0f} s\n" + "\n".join(report["shared_cache"]))
    local = subprocess.run(
        [sys.executable, "tasks.py", *BUILD, "--output", str(tmp_path / "here")],
        env=environment(tmp_path / "alone") | {"AOTFORGE_CACHE": str(HOME / "cache")},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert tarballs(report) == tarballs(json.loads(local.stdout))
    assert (report["compiled"], report["executed"]) == (report["images"], report["images"])
    found, known = entries(tmp_path / "cache"), entries(HOME / "cache")
    assert found == {key: known[key] for key in found}
    assert len(found) == report["images"]
    theirs, ours = verdicts(tmp_path / "cache"), verdicts(HOME / "cache")
    assert theirs == {key: ours[key] for key in theirs}
