"""What importing the rooms costs: workers load no manifests, and every public name is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import aotforge.compile
import aotforge.plan
from tests.support.families import PROJECT


def test_every_public_name_exists() -> None:
    for room in (aotforge.plan, aotforge.compile):
        for name in room.__all__:
            assert getattr(room, name) is not None
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            room.nothing  # noqa: B018


def test_workers_load_neither_manifests_nor_displays() -> None:
    code = (
        "import sys, aotforge.compile.worker, aotforge.compile.layout, aotforge.plan.closure;"
        "assert not {'pydantic', 'ruamel.yaml', 'rich', 'aotforge.compile.build'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PROJECT)
