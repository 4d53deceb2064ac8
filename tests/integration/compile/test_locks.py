"""Locks of the cache between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aotforge.compile.cache import LockFile


def test_locks_end_with_their_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from aotforge.compile.cache import LockFile;"
        "lock = LockFile(Path(sys.argv[1])); assert lock.acquire('x'); print('held', flush=True); "
        "sys.stdin.read()"
    )
    path = tmp_path / "locks"
    lock = LockFile(path)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    assert not lock.acquire("x")
    assert lock.acquire("y")
    process.kill()
    process.wait()
    assert lock.acquire("x", wait=True)
    lock.close()
    lock.close()
