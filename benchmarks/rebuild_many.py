"""`./dev build` for a plan of thousands of images, complete processes: again with nothing changed, and again
with the output gone.

    python -m benchmarks.rebuild_many [IMAGES] [FOLDER]

A checkout of its own gets one cheap family with this many functionals (`rebuild_noop`'s), which are really
compiled
the first time, and not verified: some minutes for 5,000. Cache and output are its own; FOLDER keeps them for
another
run. The floor is the same interpreter importing the task runner.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from aotforge.base.git import run_git
from benchmarks.rebuild_build import seconds
from benchmarks.rebuild_noop import KERNEL, RULES, TARGET_SECONDS

ROOT = Path(__file__).parents[1]
RUNS = 5


def checkout(folder: Path, count: int) -> None:
    """The tracked files, but for the kernels: one family of `count` images."""
    for name in run_git(ROOT, "ls-files", "-z").stdout.split("\0"):
        if name and not name.startswith(("kernels/", "tests/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    family = folder / "kernels" / "many"
    family.mkdir(parents=True)
    (family / "rules.py").write_text(RULES.format(count=count // 2))
    (family / "many.py").write_text(KERNEL)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as scratch:
        name = sys.argv[2] if len(sys.argv) > 2 else scratch
        folder, output = Path(name) / "checkout", Path(name) / "output"
        shutil.rmtree(folder, ignore_errors=True)
        checkout(folder, count)
        command = [
            sys.executable,
            str(folder / "tasks.py"),
            "build",
            "--arch",
            "gfx908",
        ]
        command += [
            "--no-verify",
            "--profile",
            "full",
            "--output",
            str(output),
            "--cache",
            str(Path(name) / "cache"),
            "--json",
        ]
        first, printed = seconds(command)
        images = json.loads(printed)["images"]
        times = []
        for _ in range(RUNS):
            took, printed = seconds(command)
            assert json.loads(printed)["fresh"] is False
            times.append(took)
        shutil.rmtree(output)
        again, printed = seconds(command)
        made = json.loads(printed)
        assert made["compiled"] == 0
        assert made["cached"] == images
        floor = statistics.median(seconds([sys.executable, "-c", "import tasks"])[0] for _ in range(RUNS))
    middle = statistics.median(times)
    print(f"images                     {images}, load {os.getloadavg()[0]:.1f}")
    print(f"first build                {first:.1f} s")
    print(
        f"build with nothing changed {middle:.2f} s (target {TARGET_SECONDS}), worst of {RUNS} "
        f"{max(times):.2f} s"
    )
    print(f"floor, task runner alone   {floor:.2f} s: {middle / floor:.1f} x")
    print(
        f"output gone, images cached {again:.2f} s: every image read, hashed, packed and put into tarballs "
        "again"
    )


if __name__ == "__main__":
    main()
