"""Pytest plugin: plants changed statements in the instruction table, and records which instructions' tests
fail."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from vgpu.emulator.isa import INSTRUCTIONS

_failing: dict[str, bool] = {}


def pytest_configure() -> None:
    """Before the tests are imported; entries are frozen for everyone else."""
    for name, code in json.loads(Path(os.environ["AOTFORGE_TEST_PLANTED"]).read_text()).items():
        object.__setattr__(INSTRUCTIONS[name], "code", code)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attribute a failure to the instruction that the test is for."""
    report = yield
    name = (
        item.callspec.params.get("name")
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else None
    )
    if name is not None:
        _failing[str(name)] = _failing.get(str(name), False) or report.failed
    return report


def pytest_sessionfinish() -> None:
    """Write the record."""
    Path(os.environ["AOTFORGE_TEST_FAILING"]).write_text(json.dumps(_failing))
