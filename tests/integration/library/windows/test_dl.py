"""dl's functions under Wine: the same programs for aotforge's dl, as DLL and static."""

from __future__ import annotations

import pytest

from tests.support.dl import DlPrograms, dl_programs, missing_mingw
from tests.support.wine import Wine

pytestmark = pytest.mark.skipif(bool(missing_mingw()), reason=missing_mingw())

# a module that dl opens has its own copy of a static dl, with lists of its own
STATIC = {"next_skips_local", "next_of_last"}


@pytest.fixture(scope="module")
def programs() -> DlPrograms:
    return dl_programs()


def failures(wine: Wine, programs: DlPrograms, name: str, *words: str) -> tuple[set[str], int]:
    """Names of the checks that failed, and how many were made."""
    done = wine.run(programs.program(name), *words, folder=programs.folder)
    assert done.returncode == 0 and done.stdout.endswith("finished\n"), (done.stdout, done.stderr)
    lines = done.stdout.splitlines()[:-1]
    return {line.split()[1].rstrip(":") for line in lines if not line.startswith("ok ")}, len(lines)


def test_the_interface(wine: Wine, programs: DlPrograms) -> None:
    failed, count = failures(wine, programs, "interface", "beyond")
    assert not failed and count > 60


def test_the_static_library(wine: Wine, programs: DlPrograms) -> None:
    assert failures(wine, programs, "interface_static", "beyond")[0] == STATIC


@pytest.mark.parametrize(("name", "checks"), [("threads", 5), ("threads_static", 6)])
def test_threads_leave_nothing(wine: Wine, programs: DlPrograms, name: str, checks: int) -> None:
    failed, count = failures(wine, programs, name)
    assert not failed and count == checks
