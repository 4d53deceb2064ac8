"""Loading of families: several threads of a process load the same root, as the checks of a release do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aotforge.plan.families import load_families

RULES = """import time

from aotforge.rules import Family

time.sleep(0.005)
FAMILY = Family(name="{name}", operators=(), kernels=())
"""


def test_threads_load_families_at_once(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rules.py").write_text(RULES.format(name=name))
    with ThreadPoolExecutor(max_workers=4) as pool:
        loaded = list(pool.map(load_families, [tmp_path] * 8))
    assert all([item.family.name for item in families] == ["one", "three", "two"] for families in loaded)
