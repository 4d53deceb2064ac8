"""Images are a function of the plan: not of where, how, or in what environment they are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.plan.model import plan_to_json
from tests.integration.compile.builds import build, entries, start
from tests.support.families import copy_tiny, plan_of

pytestmark = pytest.mark.compiler


def test_place_jobs_hash_seed_locale_umask_and_compiler_variables_do_not_matter(tmp_path: Path) -> None:
    here, there = copy_tiny(tmp_path / "here"), copy_tiny(tmp_path / "a rather different ünïcode place" / "k")
    assert plan_to_json(plan_of(here)) == plan_to_json(plan_of(there))
    build(here, tmp_path / "one", jobs=1)
    environment = {
        "PYTHONHASHSEED": "12345",
        "LC_ALL": "C",
        "TZ": "Asia/Tokyo",
        "TRITON_DISABLE_LINE_INFO": "0",
        "TRITON_DEFAULT_FP_FUSION": "0",
        "TRITON_OVERRIDE_ARCH": "gfx90a",
        "TRITON_INTERPRET": "1",
        "AMDGCN_USE_BUFFER_OPS": "0",
        "DISABLE_LLVM_OPT": "1",
        "TRITON_HIP_LLD_PATH": "/nonexistent",
        "ROCM_PATH": "/bad",
        "HIP_PATH": "/bad",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "TRITON_HOME": str(tmp_path / "home"),
        "TRITON_CACHE_DIR": str(tmp_path / "home" / "cache"),
    }
    (tmp_path / "home").mkdir()
    process = start(there, tmp_path / "two", jobs=2, **environment)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert entries(tmp_path / "one") == entries(tmp_path / "two")
    assert list((tmp_path / "home").iterdir()) == []
    assert list(tmp_path.rglob("*.pyc")) == []
