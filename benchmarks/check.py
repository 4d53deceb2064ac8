"""`./dev check` on a release: seconds with nothing cached and again, beside the compilers' own time for the
same programs.

    python -m benchmarks.check [RELEASE FOLDER]

The peer is the necessary work: PyTorch's calls compiled once by the newest GCC and clang in both standards,
one after the other,
by hand. CPU seconds are reported beside elapsed seconds because this machine is usually shared.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aotforge.conformance.candidate import newest_release, open_candidate
from aotforge.conformance.check_release import check_release
from aotforge.conformance.checks.calls import make_program
from aotforge.conformance.compilers import STANDARDS, find_compilers, find_hip
from aotforge.conformance.matrix import load_matrix

ROOT = Path(__file__).parents[1]
TARGET_SECONDS = 60.0


def cpu() -> float:
    """User and system seconds of this process and of those that it waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def compile_by_hand(release: Path, folder: Path) -> int:
    """Number of compilations."""
    prefix = open_candidate(release, folder / "unpacked").prefix()
    compilers = find_compilers()
    hip = find_hip(ROOT)
    (folder / "program.cpp").write_text(make_program(load_matrix(ROOT).calls, "2.9-2.12").source)
    includes = [f"-I{prefix / 'include'}", *([f"-I{hip.include}"] if hip.include else [])]
    library = str(prefix / "lib" / "libaotriton_v2.so")
    for compiler in compilers:
        for standard in STANDARDS:
            command = [
                str(compiler.path),
                compiler.standard(standard),
                *hip.flags,
                *includes,
                "program.cpp",
                library,
                "-o",
                "program",
            ]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return len(compilers) * len(STANDARDS)


def main() -> int:
    """Prints the times; status 1 when a check failed or the target was missed."""
    release = Path(sys.argv[1]) if len(sys.argv) > 1 else newest_release(ROOT / "releases" / "dist")
    times = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "unpacked").mkdir()
        started, used = time.monotonic(), cpu()
        count = compile_by_hand(release, folder)
        times["peer"] = (time.monotonic() - started, cpu() - used)
        ok = True
        for run in ("cold", "warm"):
            started, used = time.monotonic(), cpu()
            report = check_release(release, checkout=ROOT, cache=folder / "cache", jobs=2, development=True)
            times[run] = (time.monotonic() - started, cpu() - used)
            ok = ok and report.ok
    counts = ", ".join(f"{len(report.of(status))} {status}" for status in ("passed", "failed", "not run"))
    print(f"{report.release}: {counts}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    peer, used = times["peer"]
    print(f"peer: {count} compilations one after the other: {peer:.1f} s ({used:.1f} s CPU)")
    for run in ("cold", "warm"):
        elapsed, used = times[run]
        ratio = f"{elapsed / peer:.2f} x of the peer; target {TARGET_SECONDS:.0f} s"
        print(f"check, {run} cache: {elapsed:.1f} s ({used:.1f} s CPU), {ratio}")
    return 0 if ok and times["cold"][0] < TARGET_SECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
