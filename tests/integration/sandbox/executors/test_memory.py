"""A container that exceeds its memory while it compiles: the error names job and limit, and finished images stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.pool import WorkerLimits
from aotforge.errors import LimitError
from aotforge.sandbox.executors.executor import ExecutionTarget
from tests.integration.compile.builds import entries
from tests.support.families import KERNEL, plan_of, write_family, write_many
from tests.support.rootfs import ROOT, SANDBOXED, executor, project_rootfs

pytestmark = pytest.mark.compiler

# files in memory count for the container but not for the worker, so the container's limit is met before the worker's own
_EAT = """
with open("/tmp/ballast", "wb") as ballast:
    for _ in range(1000):
        ballast.write(b"x" * (1 << 20))
HOARD = b"x" * (2 << 30)
while True:
    pass
"""


@pytest.mark.parametrize(
    "name",
    [name if name == "bubblewrap" else pytest.param(name, marks=pytest.mark.slow) for name in SANDBOXED],
)
def test_job_and_limit_are_named(name: str, tmp_path: Path) -> None:
    """By default with one executor: 1.4 GiB are written, twice. test_contract.py exceeds the memory of a step in each of them."""
    root = write_many(tmp_path / "k", 1)
    write_family(root, "bad", KERNEL + _EAT)
    execution = ExecutionTarget(executor=executor(name, tmp_path), rootfs=project_rootfs("rocm-kernels"))
    with pytest.raises(LimitError) as caught, Cache(tmp_path / "there") as cache:
        compile_plan(
            plan_of(root), kernels_root=root, architectures=load_architectures(ROOT / "manifests"), cache=cache,
            jobs=1, limits=WorkerLimits(memory_bytes=400 << 20), execution=execution,
        )  # fmt: skip
    assert "bad.bad:gfx908:0" in caught.value.what and "1.39 GiB of memory" in caught.value.what
    assert "fam0" not in caught.value.what
    assert "--jobs" in caught.value.hint
    assert len(entries(tmp_path / "there")) <= 1
