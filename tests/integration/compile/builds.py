"""Builds in this process and in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.image_set import ImageSet
from aotforge.compile.model import CompileEvent
from aotforge.compile.pool import WorkerLimits
from aotforge.plan.model import Plan
from tests.support.families import PROJECT, architectures, plan_of


def build(
    root: Path, folder: Path, *, jobs: int = 1, limits: WorkerLimits | None = None, arch: str = "gfx908"
) -> tuple[ImageSet, list[CompileEvent]]:
    """Build a kernels root into a cache folder; the images and all events. A worker starts as slowly as it
    compiles a few images."""
    events: list[CompileEvent] = []
    with Cache(folder) as cache:
        images = compile_plan(
            plan_of(root, arch=arch),
            kernels_root=root,
            architectures=architectures(),
            cache=cache,
            jobs=jobs,
            limits=limits,
            on_event=events.append,
        )
    return images, events


def kinds(events: list[CompileEvent]) -> Counter[str]:
    """Number of events of each kind."""
    return Counter(event.kind for event in events)


def start(root: Path, folder: Path, *, jobs: int = 2, **environment: str) -> subprocess.Popen[str]:
    """A build in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.compile.driver", str(root), str(folder), str(jobs)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
    )


def lines(output: str) -> list[dict[str, Any]]:
    """The JSON objects of the complete lines that a driver wrote."""
    return [json.loads(line) for line in output.splitlines() if line.endswith("}")]


def entries(folder: Path) -> dict[str, bytes]:
    """Every cache entry by key, as bytes."""
    return {path.name: path.read_bytes() for path in folder.glob("images-1/??/*")}


def remaining_workers(root: Path) -> list[int]:
    """Worker processes that are there although they were killed: a killed fork of a worker has 30 s to
    end."""
    end = time.monotonic() + 120
    while (found := workers_of(root)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def workers_of(root: Path) -> list[int]:
    """Worker processes that serve a kernels root, found by their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"aotforge.compile.worker" in words and str(root.resolve()).encode() in words:
                found.append(int(folder.name))
    return found


def compiled(plan: Plan, folder: Path, *, kernels: Path = PROJECT / "kernels", jobs: int = 1) -> ImageSet:
    """The images of a plan, compiled into a cache folder."""
    with Cache(folder) as cache:
        return compile_plan(plan, kernels_root=kernels, architectures=architectures(), cache=cache, jobs=jobs)
