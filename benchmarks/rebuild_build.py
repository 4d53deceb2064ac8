"""`./dev build` with nothing changed, as a complete process; the floor is the same interpreter importing the
task runner.

    python -m benchmarks.rebuild_build [PROFILE]

The first build is not timed (it compiles what the cache lacks). Output and cache are the project's own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNS = 7
TARGET_SECONDS = 0.8


def seconds(command: list[str]) -> tuple[float, str]:
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return time.monotonic() - start, done.stdout


def main() -> None:
    profile = sys.argv[1] if len(sys.argv) > 1 else "quick"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "tasks.py", "build", "--arch", "gfx908", "--profile", profile]
        command += ["--output", folder, "--json"]
        made = json.loads(seconds(command)[1])
        times, before = [], os.times()
        for _ in range(RUNS):
            took, output = seconds(command)
            assert json.loads(output)["fresh"] is False
            times.append(took)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        floor = statistics.median(seconds([sys.executable, "-c", "import tasks"])[0] for _ in range(RUNS))
    middle = statistics.median(times)
    print(f"images                     {made['images']}, load {os.getloadavg()[0]:.1f}")
    print(
        f"build with nothing changed {middle:.2f} s (target {TARGET_SECONDS}, {profile}), worst "
        f"{max(times):.2f} s"
    )
    print(f"CPU of it, on average      {cpu / RUNS:.2f} s")
    print(f"floor, task runner alone   {floor:.2f} s: {middle / floor:.1f} x")


if __name__ == "__main__":
    main()
