"""Plans made by processes with other hash seeds."""

from __future__ import annotations

import subprocess
import sys

from aotforge.plan.model import plan_to_json
from tests.support.families import FAKE_TOOLCHAIN, PROJECT, TINY, plan_of


def test_the_plan_does_not_depend_on_the_hash_seed_nor_import_triton() -> None:
    code = (
        "import sys; from tests.support.families import *; from aotforge.plan.model import plan_to_json;"
        "sys.stdout.write(plan_to_json(plan_of(TINY, compiler=FAKE_TOOLCHAIN)));"
        "assert not {'triton', 'rich', 'numpy', 'zstandard'} & set(sys.modules)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(PROJECT), "LC_ALL": "C"},
            capture_output=True,
            check=True,
            cwd=PROJECT,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert outputs == {plan_to_json(plan_of(TINY, compiler=FAKE_TOOLCHAIN)).encode()}
