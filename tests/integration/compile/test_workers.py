"""Compile workers: messages, files that executors get, options of a setting, how to repeat a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.base.source_groups import group_files
from aotforge.base.workers import Fork
from aotforge.compile.compile_plan import compile_one, reproduction
from aotforge.compile.worker import _serve
from tests.support.families import architectures, copy_tiny, plan_of
from tests.unit.pack.samples import sample

PLAN, _ = sample()
JOB = PLAN.jobs[0]


def test_a_fork_sends_its_process_id_before_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is done before the process that forked it runs again."""
    fork = os.fork
    forked = []

    def fork_and_wait() -> int:
        child = fork()
        if child:
            forked.append(child)
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        return child

    def refuse(job: object) -> None:
        raise ValueError("no compiler")

    ours, theirs = Pipe()
    monkeypatch.setattr(os, "fork", fork_and_wait)
    monkeypatch.setattr("aotforge.compile.worker.begin_heap", lambda: None)  # there is none here
    compiler: Any = SimpleNamespace(compile=refuse)
    with ours, theirs:
        _serve(theirs, compiler, asdict(JOB))
        first, second = ours.recv(), ours.recv()
    assert first == Fork(pid=forked[0])
    assert second.failure == "ValueError: no compiler"


def test_reproduction_commands_can_be_pasted() -> None:
    assert reproduction(PLAN, JOB).startswith("./dev compile --job ")


def test_a_worker_imports_only_what_is_sent(tmp_path: Path) -> None:
    for name, path in group_files("compile worker").items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, tmp_path / name)
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import aotforge.compile.remote_worker as it; "
        f"print(it.__file__)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(str(tmp_path)), done.stderr


def test_fused_multiply_add_is_an_option_of_the_setting(tmp_path: Path) -> None:
    """`y + a * x` is one instruction, or two with `enable_fp_fusion` False."""
    root = copy_tiny(tmp_path / "k")
    rules = root / "tiny" / "rules.py"
    plain = 'constants={"BLOCK": 64},'
    rules.write_text(rules.read_text().replace(plain, f'{plain} options={{"enable_fp_fusion": False}},'))
    fused, single = (
        job for job in plan_of(root).jobs if job.label.endswith("fp32:0") or job.label.endswith("fp32:1")
    )
    texts = []
    for number, job in enumerate((fused, single)):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        image = compile_one(job, kernels_root=root, architectures=architectures(), scratch=scratch)
        texts.append("\n".join(line for line in image.asm.splitlines() if line.startswith("\tv_")))
    assert ["v_fma" in text or "v_mac" in text or "v_fmac" in text for text in texts] == [True, False]
    assert "v_mul_f32" in texts[1]
