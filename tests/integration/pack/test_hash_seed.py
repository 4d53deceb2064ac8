"""Packs written by processes with other hash seeds."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from aotforge.pack.writer import write_pack
from tests.unit.pack.samples import sample

PACK = write_pack(*sample(), release="0.0-r1")


def test_processes_with_other_hash_seeds_write_the_same_bytes() -> None:
    program = (
        "import hashlib; from tests.unit.pack.samples import sample; "
        "from aotforge.pack.writer import write_pack\n"
        "files = write_pack(*sample(), release='0.0-r1').files\n"
        "print(hashlib.sha256(b''.join(n.encode() + d for n, d in sorted(files.items()))).hexdigest())"
    )
    root = Path(__file__).parents[3]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }  # fmt: skip
    expected = hashlib.sha256(b"".join(n.encode() + d for n, d in sorted(PACK.files.items()))).hexdigest()
    assert outputs == {expected + "\n"}
