"""Settings for every test: property tests have no deadline, CI draws the same examples each time, workers
of pytest-xdist share the processors, and `--require-all`."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("project-ci", settings.get_profile("project"), derandomize=True, database=None)
settings.load_profile("project-ci" if os.environ.get("CI") else "project")

os.environ.setdefault("AOTFORGE_PARTIAL_PACK", "1")
"""Packs of tests are small: `check_gpu` succeeds with them by this variable alone."""

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")
"""Skips that `--require-all` accepts: one pattern of a reason per line, `#` begins a comment."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-all",
        action="store_true",
        help="fail tests that skip for a reason not in tests/allowed_skips.txt",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A worker has its share of the processors, as a pool with a process for each mostly pays for starts."""
    if worker := getattr(config, "workerinput", None):
        processors = sorted(os.sched_getaffinity(0))
        number = int(worker["workerid"].removeprefix("gw"))
        os.sched_setaffinity(0, processors[number :: worker["workercount"]] or processors)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.config.getoption("require_all") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not is_allowed(reason):
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid}\n{reason}\n--require-all: no pattern of {ALLOWED_SKIPS.name} allows this skip"
            )
    return report


def is_allowed(reason: str) -> bool:
    """Whether a pattern of the committed list matches the reason of a skip."""
    lines = (
        line.partition("#")[0].strip() for line in ALLOWED_SKIPS.read_text(encoding="utf-8").splitlines()
    )
    return any(re.search(line, reason) for line in lines if line)
