"""A build with nothing to do, and the list of tasks, do not import what takes long."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.families import PROJECT

HEAVY = (
    *("numpy", "triton", "rich", "docker", "boto3", "tuf", "vgpu.emulator.program"),
    *("auditwheel", "elftools", "urllib.request"),
    *("distributed", "dask", "aotforge.pipeline.cluster"),
)


DEV = "import runpy; sys.argv = ['tasks.py', '--version']; runpy.run_path('tasks.py', run_name='__main__')"
"""What ./dev runs; as a module, tasks.py is what invoke imports."""


@pytest.mark.parametrize(
    ("statement", "heavy"), [(DEV, (*HEAVY, "pydantic")), ("import aotforge.pipeline.build_release", HEAVY)]
)
def test_no_heavy_import(statement: str, heavy: tuple[str, ...]) -> None:
    program = f"import sys; {statement}; print('imported:', *(n for n in {heavy!r} if n in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "imported:"
