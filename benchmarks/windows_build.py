"""What the library costs to build for Windows, beside the same sources for Linux in the same run.

    python -m benchmarks.windows_build

Both into an empty cache with the archives already there ("warm"), so configuration, zstd's decoder, dl,
checks and the zip file count.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aotforge.base.progress import SILENT
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.library.sources import load_runtime_manifest, unpack_zstd
from aotforge.pipeline.build_windows import build_windows
from aotforge.pipeline.requests import WindowsRequest

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("AOTFORGE_CACHE") or ROOT / ".aotforge" / "cache")
TARGET_SECONDS = 90


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Elapsed and CPU seconds of work and of everything that it starts."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    work()
    after, elapsed = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"elapsed_s": round(elapsed, 1), "cpu_s": round(cpu, 1)}


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name) / "cache"
        unpack_zstd(
            load_runtime_manifest(ROOT / "manifests").zstd,
            cache=CACHE,
            folder=Path(name) / "zstd",
            environment=os.environ,
        )
        shutil.copytree(CACHE / "sources", cache / "sources")
        request = WindowsRequest(
            root=ROOT, output=Path(name) / "out", cache=cache, jobs=None, environment=dict(os.environ)
        )
        linux = measured(lambda: build_runtime(LibraryRequest(root=ROOT, cache=cache)))
        windows = measured(lambda: build_windows(request, observer=SILENT))
    ratio = windows["cpu_s"] / linux["cpu_s"]
    result = {"linux": linux, "windows": windows, "cpu_ratio": round(ratio, 2), "load": os.getloadavg()}
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return int(windows["elapsed_s"] > TARGET_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
