"""A Docker Engine that belongs to a test, which may kill it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_READY_SECONDS = 300


@dataclass
class Daemon:
    process: subprocess.Popen[bytes]
    url: str


@contextmanager
def private_daemon() -> Iterator[Daemon]:
    """A Docker Engine of the test's own on a loopback TCP port, as a remote DOCKER_HOST is; skips the test
    where it cannot be had."""
    program = shutil.which("dockerd")
    if program is None or os.geteuid() != 0:
        pytest.skip("needs dockerd and root to start an engine of its own")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    folder = Path(tempfile.mkdtemp(prefix="engine-"))  # a socket's path may have 107 characters
    words = [program, "--host", url, "--tls=false", "--pidfile", f"{folder}/pid"]
    words += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/run"]
    words += ["--bridge", "none", "--iptables=false", "--ip-forward=false"]
    # a containerd of its own has 15 s to start, which a busy machine does not keep
    for running in ("/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock"):
        if Path(running).is_socket():
            words += ["--containerd", running, "--containerd-namespace", f"test-{os.getpid()}"]
            words += ["--containerd-plugins-namespace", f"test-plugins-{os.getpid()}"]
            break
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    try:
        end = time.monotonic() + _READY_SECONDS
        while b"API listen on" not in (folder / "log").read_bytes():
            if process.poll() is not None or time.monotonic() > end:
                pytest.skip(f"no engine of its own: {(folder / 'log').read_text()[-300:]}")
            time.sleep(0.1)
        yield Daemon(process, url)
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _unmount(folder: Path) -> None:
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        if (target := line.split()[1]).startswith(str(folder)):
            subprocess.run(["umount", "-l", target], capture_output=True, check=False)
    for pid in folder.rglob("containerd.pid"):
        try:
            os.kill(int(pid.read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            continue
