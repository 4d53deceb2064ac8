"""The matrix of CI covers every job, and the committed workflow fits it and the tasks that it calls."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import tasks  # noqa: F401 - registers the tasks
from aotforge.cli.flags import TASKS
from aotforge.errors import UnsupportedError
from aotforge.pipeline.images import make_plans
from aotforge.pipeline.parts import SETUP_MINUTES, matrix, parse_part, split
from aotforge.pipeline.requests import CiRequest
from tests.support.families import PROJECT

TEXT = (PROJECT / ".github" / "workflows" / "build.yml").read_text()
WORKFLOW = yaml.safe_load(TEXT)


def request_of(**values: Any) -> CiRequest:
    fields: dict[str, Any] = {"archs": ("gfx908", "gfx90a"), "profile": "quick", "minutes": 4.2, **values}
    return CiRequest(root=PROJECT, cache=Path("/nonexistent"), **fields)


def test_rows_cover_every_job_once() -> None:
    request = request_of()
    rows = matrix(request)
    assert len({row["name"] for row in rows}) == len(rows)
    for plan in make_plans(request):
        of_pack = [parse_part(str(row["part"])) for row in rows if row["arch"] == ",".join(plan.archs)]
        count = len(of_pack)
        assert count > 1 and of_pack == [(n + 1, count) for n in range(count)]
        assert sum(map(len, split(plan.jobs, count))) == len(plan.jobs)
    assert all(SETUP_MINUTES < float(str(row["minutes"])) < 4.5 for row in rows)


def test_more_time_gives_fewer_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [row["part"] for row in matrix(request_of(minutes=60))] == ["1/1", "1/1"]
    with pytest.raises(UnsupportedError, match="leaves no time"):
        matrix(request_of(minutes=SETUP_MINUTES))
    monkeypatch.setattr("aotforge.pipeline.parts.MOST", 1)
    with pytest.raises(UnsupportedError, match="2 jobs are more than the 1 that"):
        matrix(request_of(minutes=60))


def test_the_workflow_uses_the_columns_of_the_matrix() -> None:
    used = set(re.findall(r"matrix\.(\w+) *\}\}", TEXT))
    assert used == set(matrix(request_of())[0]) - {"minutes"}


def test_the_release_needs_every_part() -> None:
    jobs = WORKFLOW["jobs"]
    assert jobs["images"]["needs"] == ["matrix"] and jobs["release"]["needs"] == ["images"]
    assert "fromJSON(needs.matrix.outputs.parts)" in jobs["images"]["strategy"]["matrix"]["include"]
    (upload,) = [
        step["with"] for step in jobs["images"]["steps"] if "upload-artifact" in step.get("uses", "")
    ]
    (download,) = [
        step["with"] for step in jobs["release"]["steps"] if "download-artifact" in step.get("uses", "")
    ]
    assert upload["name"] == "images-${{ matrix.name }}" and download["pattern"] == "images-*"
    assert download["path"] == WORKFLOW["env"]["CACHE"] == "ci-out/cache"
    assert upload["path"].split() == [f"{download['path']}/images-*/??", f"{download['path']}/verdicts-*"]


def test_commands_are_tasks_with_these_flags() -> None:
    commands = re.findall(r"\./dev ([\w.]+)((?:[^\n>)]|\\\n)*)", TEXT)
    assert {name for name, _ in commands} == {"ci.matrix", "compile", "build", "build.windows"}
    for name, words in commands:
        flags = {word.lstrip("-") for flag in TASKS[name].get_arguments() for word in flag.names}
        assert set(re.findall(r"--([\w-]+)", words)) <= flags, name
