"""`./dev compat` as a process."""

from __future__ import annotations

import os
import subprocess
import sys

from aotforge.conformance.matrix import load_matrix
from aotforge.conformance.matrix_show import matrix_text
from tests.support.runtime import ROOT


def test_no_colour_where_none_is_wanted() -> None:
    done = subprocess.run(
        [sys.executable, "tasks.py", "compat"],
        cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.rstrip("\n") == matrix_text(load_matrix(ROOT))
