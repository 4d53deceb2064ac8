"""Images of a kernels root for tests of the verifier."""

from __future__ import annotations

from pathlib import Path

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import KernelImage
from aotforge.plan.model import Plan
from tests.support.families import architectures
from tests.support.runtime import CACHE


def compiled_images(plan: Plan, root: Path, folder: Path = CACHE, jobs: int = 2) -> dict[str, KernelImage]:
    """All images of a plan by job key, compiled unless the cache in `folder` has them."""
    with Cache(folder) as cache:
        made = compile_plan(plan, kernels_root=root, architectures=architectures(), cache=cache, jobs=jobs)
        return dict(made.items())
