"""A build as a process of its own: `python -m tests.integration.compile.driver ROOT CACHE [JOBS]`.

Writes one JSON line per event, then one with the digest of every image.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import compile_plan
from aotforge.compile.model import CompileEvent
from tests.support.families import architectures, plan_of


def write_event(event: CompileEvent) -> None:
    sys.stdout.write(json.dumps(asdict(event)) + "\n")
    sys.stdout.flush()


def main() -> None:
    # a shell starts background jobs with SIGINT ignored, and they hand that down: the tests may run in one
    signal.signal(signal.SIGINT, signal.default_int_handler)
    root, folder = Path(sys.argv[1]), Path(sys.argv[2])
    jobs = int(sys.argv[3]) if len(sys.argv) > 3 else None
    plan = plan_of(root)
    with Cache(folder) as cache:
        images = compile_plan(
            plan,
            kernels_root=root,
            architectures=architectures(),
            cache=cache,
            jobs=jobs,
            on_event=write_event,
        )
        digests = {key: images.digest(key) for key in images}
    sys.stdout.write(json.dumps({"digests": digests}) + "\n")


if __name__ == "__main__":
    main()
