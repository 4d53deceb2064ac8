"""Secrets planted in the caller's environment reach no child, nor a program inside a sandbox."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from aotforge.base.child_processes import (
    ENGINE,
    NETWORK,
    USER_PYTHON,
    child_environment,
    fixed_environment,
    run_child,
    start_child,
    tool_environment,
)
from aotforge.verify.pool import Pool
from tests.unit.base.test_child_processes import SECRETS

VALUE = "planted-secret"
SHOW = [sys.executable, "-I", "-S", "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, VALUE)


def test_no_child_receives_a_planted_secret() -> None:
    ran = run_child(SHOW, capture_output=True)
    assert ran.returncode == 0 and VALUE not in ran.stdout
    assert json.loads(ran.stdout).keys().isdisjoint(SECRETS)
    with start_child(SHOW, stdout=subprocess.PIPE) as child:
        assert VALUE.encode() not in child.communicate()[0]


@pytest.mark.parametrize("keep", [ENGINE, NETWORK, USER_PYTHON])
def test_no_child_with_a_purpose_receives_one(keep: Sequence[str]) -> None:
    ran = run_child(SHOW, environment=child_environment(keep=keep), capture_output=True)
    assert ran.returncode == 0 and VALUE not in ran.stdout


def test_no_tool_receives_one() -> None:
    ran = run_child(SHOW, environment=tool_environment(), capture_output=True)
    assert ran.returncode == 0 and VALUE not in ran.stdout


def test_a_verification_worker_has_none(tmp_path: Path) -> None:
    pool = Pool(kernels_root=tmp_path, cache=tmp_path, timeout=600)
    try:
        worker = pool._started()
        while not (text := Path(f"/proc/{worker.pid}/environ").read_bytes()):
            time.sleep(0.01)  # a program that starts has none for a moment
        assert b"PYTHONPATH=" in text and VALUE.encode() not in text
    finally:
        pool.close()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_process_1_of_a_sandbox_has_none() -> None:
    words = [str(shutil.which("bwrap")), "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc"]
    command = [*words, "--clearenv", "/bin/cat", "/proc/1/environ"]
    ran = run_child(command, environment=fixed_environment({"PATH": "/bin"}), capture_output=True)
    assert ran.returncode == 0 and VALUE not in ran.stdout
