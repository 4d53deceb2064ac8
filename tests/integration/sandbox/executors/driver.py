"""A process that runs steps until it is killed: `python -m tests.integration.sandbox.executors.driver EXECUTOR CACHE ROOTFS SECONDS`.

ROOTFS is a JSON file; the step sleeps for SECONDS, by which it can be found. It prints a line for every piece of output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from aotforge.base.progress import LineObserver
from aotforge.sandbox.executors.choose import choose_executor
from aotforge.sandbox.executors.step import RootFS, Step, StepLimits


def report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(name: str, cache: str, rootfs: str, seconds: str) -> None:
    fields = json.loads(Path(rootfs).read_text())
    tree, archive = Path(fields.pop("tree")), Path(fields.pop("archive"))
    root = RootFS(**fields, environment=(), unpacked=lambda: tree, archive=lambda: archive)
    runner = choose_executor(name, cache=Path(cache), observer=LineObserver(report))
    step = Step(
        name="killed step", command=("/bin/sh", "-c", f"sleep {seconds} & while true; do echo tick; sleep 0.05; done"), inputs=b"",
        environment={"PATH": "/usr/bin:/bin"}, limits=StepLimits(memory_bytes=256 << 20, seconds=300),
    )  # fmt: skip
    report("start")
    runner.run(step, root, on_output=lambda stream, data: report(stream))


if __name__ == "__main__":
    main(*sys.argv[1:])
