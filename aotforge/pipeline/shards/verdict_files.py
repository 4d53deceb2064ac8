"""Verdicts on their way from a shard to the release: kept and found by what they hold for, never executed again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aotforge.compile.model import KernelImage
from aotforge.plan.model import JobKey, Plan
from aotforge.verify.verdict import Verdict
from aotforge.verify.verdict_store import load_verdict, store_verdict, verdict_key
from aotforge.verify.verify_plan import image_tasks


def keep_verdicts(
    plan: Plan,
    images: Mapping[JobKey, KernelImage],
    verdicts: Mapping[JobKey, Verdict],
    *,
    kernels_root: Path,
    cache: Path,
) -> None:
    """Keep passed verdicts below `cache`, without what was about their run: equal verdicts give equal files. Raises CacheError."""
    for task in image_tasks(plan, images, kernels_root):
        verdict = verdicts[task.key]
        if verdict.outcome == "passed":
            store_verdict(cache, verdict_key(task), replace(verdict, seconds=0.0, cached=False))


def kept_verdicts(
    plan: Plan, images: Mapping[JobKey, KernelImage], *, kernels_root: Path, cache: Path
) -> dict[JobKey, Verdict]:
    """Passed verdicts below `cache` that are about exactly these images, cases and judges; nothing is executed. Raises CacheError."""
    tasks = image_tasks(plan, images, kernels_root)
    found = {task.key: load_verdict(cache, verdict_key(task), task) for task in tasks}
    return {key: verdict for key, verdict in found.items() if verdict is not None}
