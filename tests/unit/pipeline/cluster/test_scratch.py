"""Dask's folder of temporary files comes first where modules are searched: it is this user's, or the worker is not used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import distributed
import pytest

import tasks  # noqa: F401 - registers every task
from aotforge.cli.command import HOME, TASKS
from aotforge.pipeline.cluster.messages import Admission
from aotforge.pipeline.cluster.worker import admit


@pytest.mark.parametrize("module", ["dask", "distributed.cli.dask_worker", "numpy"])
def test_programs_of_dask_start_with_a_folder_of_this_user(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    started: list[str | None] = []

    def execv(program: str, words: Sequence[str]) -> None:
        started.append(os.environ.get("DASK_TEMPORARY_DIRECTORY"))

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", "")
    monkeypatch.delenv("DASK_TEMPORARY_DIRECTORY")
    TASKS["python"].body(arguments=["-m", module, "worker"])
    monkeypatch.setenv("DASK_TEMPORARY_DIRECTORY", "/mine")
    TASKS["python"].body(arguments=["-m", module, "worker"])
    assert started == [None if module == "numpy" else str(HOME.absolute() / "dask"), "/mine"]


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
