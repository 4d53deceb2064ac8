"""Dask's folder of temporary files comes first where modules are searched: it is this user's, or the worker is not used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import distributed
import pytest

import tasks  # noqa: F401 - registers every task
from aotforge.cli.command import HOME, TASKS
from aotforge.errors import ClusterError
from aotforge.pipeline.cluster.cluster import _connect
from aotforge.pipeline.cluster.messages import Admission
from aotforge.pipeline.cluster.worker import admit


@pytest.mark.parametrize("words", [["-m", "dask"], ["-P", "-m", "dask"], ["script.py"]])
def test_programs_of_dask_start_with_a_folder_of_this_user(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A script may start a scheduler in its own process."""
    started: list[str | None] = []

    def execv(program: str, words: Sequence[str]) -> None:
        started.append(os.environ.get("DASK_TEMPORARY_DIRECTORY"))

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", "")
    monkeypatch.delenv("DASK_TEMPORARY_DIRECTORY")
    TASKS["python"].body(arguments=words)
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", "/mine")
    TASKS["python"].body(arguments=words)
    assert started == [str(HOME.absolute() / "dask"), "/mine"]


def test_a_worker_whose_modules_others_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = SimpleNamespace(local_directory=str(tmp_path / "dask-scratch-space" / "worker-1"))
    monkeypatch.setattr(distributed, "get_worker", lambda: worker)
    (tmp_path / "dask-scratch-space" / "worker-1").mkdir(parents=True)
    (tmp_path / "dask-scratch-space").chmod(0o777)
    refused = Admission.decode(admit("", "resource")).refused
    assert "other users can put modules where this worker finds them first" in refused
    assert "dask-scratch-space has mode 777" in refused
    (tmp_path / "dask-scratch-space").chmod(0o755)
    assert "modules" not in Admission.decode(admit("", "resource")).refused


@pytest.fixture
def shared_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module path as a scheduler or worker has it whose folder of temporary files others can exchange."""
    (scratch := tmp_path / "dask-scratch-space").mkdir()
    (scratch / "scheduler-1").mkdir()
    scratch.chmod(0o777)
    monkeypatch.setattr(sys, "path", [str(scratch / "scheduler-1"), *sys.path])


@pytest.mark.usefixtures("shared_path")
def test_a_worker_with_the_module_path_of_its_scheduler_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that a LocalCluster starts inherit it: a stranger's module was executed, the worker's own folder was sound."""
    (tmp_path / "own").mkdir()
    worker = SimpleNamespace(local_directory=str(tmp_path / "own"))
    monkeypatch.setattr(distributed, "get_worker", lambda: worker)
    refused = Admission.decode(admit("", "resource")).refused
    assert "other users can put modules where this worker finds them first" in refused
    assert "dask-scratch-space has mode 777" in refused


@pytest.mark.usefixtures("shared_path")
def test_a_scheduler_whose_modules_others_can_write_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Client:
        def __init__(self, address: str, **_: object) -> None:
            self.address = address

        def run_on_scheduler(self, function: Callable[[], str]) -> str:
            return function()

        def close(self) -> None:
            closed.append(self.address)

    monkeypatch.setattr(distributed, "Client", Client)
    with pytest.raises(ClusterError, match=r"other users can put modules .*dask-scratch-space has mode 777"):
        _connect("tls://host:8786")
    assert closed == ["tls://host:8786"]
    monkeypatch.setattr(sys, "path", [])
    assert isinstance(_connect("tls://host:8786"), Client)
