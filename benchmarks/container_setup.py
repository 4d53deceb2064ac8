"""How long containers take to set up: all roots with an empty cache, one root beside mmdebstrap, and a root that is there already.

    python -m benchmarks.container_setup [--peer]

`cold` makes every rootfs of manifests/containers.yaml in an empty cache, downloads included (pip's own cache is off). `warm` is a complete process
that opens an existing rootfs. With --peer, mmdebstrap (root, same mirrors) makes a tar of the runtime root's packages, after our own cold run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aotforge.base.manifest_reader import load
from aotforge.base.progress import LineObserver
from aotforge.sandbox.rootfs.definitions import Definition, rootfs_definitions
from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs

ROOT = Path(__file__).parents[1]
COLD_TARGET = 360.0
WARM_TARGET = 1.0
WARM = (
    "import os, sys; from pathlib import Path; from aotforge.base.progress import LineObserver; "
    "from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs; "
    "ensure_rootfs(Path.cwd(), sys.argv[1], cache=Path(sys.argv[2]), environment=os.environ, observer=LineObserver(print))"
)


def cold(cache: Path) -> dict[str, Any]:
    os.environ["PIP_NO_CACHE_DIR"] = "1"
    seconds = {}
    for name in rootfs_definitions(ROOT):
        start = time.monotonic()
        ensure_rootfs(
            ROOT,
            name,
            cache=cache,
            environment={},
            observer=LineObserver(lambda text: print(text, file=sys.stderr)),
        )
        seconds[name] = round(time.monotonic() - start, 2)
    return {"each": seconds, "all": round(sum(seconds.values()), 2)}


def warm(cache: Path, runs: int = 7) -> dict[str, dict[str, float]]:
    """Elapsed seconds of complete processes, best and worst, and the CPU seconds of one: elapsed time is the machine's load as well."""
    found = {}
    for name in rootfs_definitions(ROOT):
        before, taken = os.times(), []
        for _ in range(runs):
            start = time.monotonic()
            subprocess.run([sys.executable, "-c", WARM, name, str(cache)], cwd=ROOT, check=True)
            taken.append(time.monotonic() - start)
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        found[name] = {
            "best": round(min(taken), 3),
            "worst": round(max(taken), 3),
            "cpu": round(spent / runs, 3),
        }
    return found


def peer(folder: Path) -> float:
    definition = load(ROOT / "docker" / "rocm" / "runtime.yaml", Definition)
    command = [
        "mmdebstrap", "--quiet", "--variant=essential", f"--include={','.join(definition.packages)}", "bullseye",
        str(folder / "peer.tar"), "http://deb.debian.org/debian",
    ]  # fmt: skip
    start = time.monotonic()
    subprocess.run(command, check=True)
    return round(time.monotonic() - start, 2)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        found: dict[str, Any] = {
            "load": os.getloadavg()[0],
            "cold": cold(folder),
            "warm": warm(folder),
        }
        if "--peer" in sys.argv and shutil.which("mmdebstrap"):
            found["mmdebstrap_runtime"] = peer(folder)
            found["runtime_against_mmdebstrap"] = round(
                found["cold"]["each"]["rocm-runtime"] / found["mmdebstrap_runtime"], 3
            )
    found["cold_target_met"] = found["cold"]["all"] <= COLD_TARGET
    found["warm_target_met"] = max(entry["worst"] for entry in found["warm"].values()) <= WARM_TARGET
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
