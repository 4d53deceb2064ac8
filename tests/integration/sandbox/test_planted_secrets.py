"""Secrets planted in the caller's environment reach no child: read from /proc of real children, and from inside a sandbox."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from aotforge.base.child_processes import KINDS, run_child, run_child_bytes, start_child
from aotforge.verify.pool import Pool
from tests.unit.base.test_child_processes import SECRETS

VALUE = "planted-secret"


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, VALUE)


@pytest.mark.parametrize("kind", KINDS)
def test_no_child_receives_a_planted_secret(kind: str) -> None:
    command = [sys.executable, "-I", "-S", "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    ran = run_child(kind, command, capture_output=True)
    assert (
        ran.returncode == 0 and VALUE not in ran.stdout and json.loads(ran.stdout).keys().isdisjoint(SECRETS)
    )
    assert VALUE.encode() not in run_child_bytes(kind, command, capture_output=True).stdout
    with start_child(kind, command, stdout=-1) as child:
        assert VALUE.encode() not in child.communicate()[0]


def test_a_verification_worker_has_none(tmp_path: Path) -> None:
    pool = Pool(kernels_root=tmp_path, cache=tmp_path, timeout=600)
    try:
        worker = pool._worker()
        while not (text := Path(f"/proc/{worker.pid}/environ").read_bytes()):
            time.sleep(0.01)  # a program that starts has none for a moment
        assert b"PYTHONPATH=" in text and VALUE.encode() not in text
    finally:
        pool.close()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_process_1_of_a_sandbox_has_none() -> None:
    words = [
        str(shutil.which("bwrap")),
        "--unshare-all",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--clearenv",
    ]
    ran = run_child("bubblewrap", [*words, "/bin/cat", "/proc/1/environ"], capture_output=True)
    assert ran.returncode == 0 and VALUE not in ran.stdout
