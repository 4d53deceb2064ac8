"""Modules that a worker process imports."""

from __future__ import annotations

import subprocess
import sys

from tests.support.families import PROJECT


def test_workers_load_neither_manifests_nor_displays() -> None:
    code = (
        "import sys, aotforge.compile.worker, aotforge.targets.backends, aotforge.plan.closure;"
        "assert not {'pydantic', 'yaml', 'rich', 'aotforge.compile.compile_plan'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PROJECT)
