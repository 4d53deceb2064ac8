"""Readers of releases and shards on files of others: a named error for each, in bounded memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.conformance.candidate import open_candidate
from aotforge.deliver.extract import unpack
from aotforge.errors import AotforgeError, ReleaseError
from aotforge.publish.release_dir import read_release_folder
from aotforge.release.compare import compare_archives
from aotforge.release.reader import read_release
from tests.support.hostile import (
    ASM,
    BELOW,
    IMAGES,
    bomb_tar,
    hostile_release,
    member,
    pax_tar,
    refit,
    sparse_tar,
    tar_bytes,
    zipped,
)

MEMORY_LIMIT = 400 << 20
FITTING = zipped(tar_bytes((member(f"{BELOW}x", 1), b"x")))
CHILD = """
import json, re, sys
from pathlib import Path
from tests.integration.release.test_hostile_releases import READERS, outcome
found = [{name: outcome(read, Path(folder)) for name, read in READERS.items()} for folder in sys.argv[1:]]
# not getrusage: its maximum has the parent's memory, from before exec
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps([found, peak]))
"""


def _candidate(folder: Path) -> None:
    candidate = open_candidate(folder, folder.parent / "candidate")
    found = [text for archive in candidate.archives for text in archive.violations if "cannot be" in text]
    if found:
        raise ReleaseError(found[0])


READERS: dict[str, Callable[[Path], object]] = {
    "read_release": read_release,
    "open_candidate": _candidate,
    "unpack": lambda folder: unpack([folder / IMAGES], folder.parent / "unpacked"),
    "read_release_folder": read_release_folder,
    "compare_archives": lambda folder: compare_archives(folder / IMAGES, folder / IMAGES),
}


def outcome(read: Callable[[Path], object], folder: Path) -> str:
    """The named error of a reader; any other exception is a failure of the test."""
    try:
        read(folder)
    except AotforgeError as error:
        return f"{error.kind}: {error.what}"
    return "accepted"


def test_memory_is_bounded(tmp_path: Path) -> None:
    """The sparse member claims 3 GiB in a file of 200 bytes; the bomb has 24 MiB of zeros in 24 kB."""
    sparse = hostile_release(tmp_path / "1/release", zipped(sparse_tar(f"{BELOW}x")))
    bomb = hostile_release(tmp_path / "2/release", zipped(bomb_tar(f"{BELOW}x", 24 << 20)))
    command = [sys.executable, "-c", CHILD, str(sparse), str(bomb)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    (of_sparse, of_bomb), peak = json.loads(done.stdout)
    assert all("is a sparse file" in text for text in of_sparse.values()), of_sparse
    # the publisher compares the digest of the tar and keeps nothing of it
    assert of_bomb.pop("read_release_folder").startswith("publish: ")
    assert all("more than the expected" in text for text in of_bomb.values()), of_bomb
    assert peak < MEMORY_LIMIT, f"{peak >> 20} MiB"
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < MEMORY_LIMIT


def test_bytes_behind_a_bomb(tmp_path: Path) -> None:
    """The size of the file allowed 280 MiB; its data are 128 kB."""
    folder = hostile_release(tmp_path / "release", zipped(bomb_tar(f"{BELOW}x", 128 << 20)))
    for name in (ASM, IMAGES):
        with (folder / name).open("ab") as file:
            file.write(b"x" * (7 << 20))
    refit(folder)
    for reader in ("read_release", "open_candidate", "unpack", "compare_archives"):
        assert re.search(r"its first \d+ bytes unpack to more", outcome(READERS[reader], folder)), reader
    (folder / ASM).unlink()
    refit(folder)
    assert re.search(r"its first \d+ bytes unpack to more", outcome(read_release_folder, folder))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 100 << 20


def test_a_release_folder_of_links(tmp_path: Path) -> None:
    """As Nix, Bazel and git-annex lay files out."""
    row = json.dumps({"images": []}).encode()
    asm = tar_bytes((member("aotriton/share/aotriton/asm/amd-gfx908/resources.json", len(row)), row))
    made = hostile_release(tmp_path / "store/release", FITTING, asm=zipped(asm))
    folder = tmp_path / "release"
    folder.mkdir()
    for path in made.iterdir():
        (folder / path.name).symlink_to(os.path.relpath(path, folder))
    assert [pack.pack.name for pack in read_release(folder)] == ["amd-gfx908"]
    for name, read in READERS.items():
        found = outcome(read, folder)
        assert found == outcome(read, made).replace(str(made), str(folder)), name
        assert name != "open_candidate" or found == "accepted"


@pytest.mark.parametrize(
    ("tar", "message"),
    [
        (pax_tar(f"{BELOW}x", b"aotriton/a\0b"), "is an extended header"),
        (tar_bytes((member(f"{BELOW}x", kind=tarfile.FIFOTYPE), b"")), "is a named pipe"),
        (tar_bytes((member(f"{BELOW}x", kind=tarfile.LNKTYPE, link="/etc/passwd"), b"")), "is a hard link"),
        (tar_bytes((member(f"{BELOW}../../x", 1), b"x")), "is outside its folder"),
        (tar_bytes((member("aotriton/share/licenses/aotriton/x", 1), b"x"))[:700], "truncated"),
    ],
    ids=["pax", "pipe", "hard", "climbing", "cut"],
)
def test_archives_that_no_build_makes(tar: bytes, message: str, tmp_path: Path) -> None:
    folder = hostile_release(tmp_path / "release", zipped(tar))
    for name, read in READERS.items():
        assert message in outcome(read, folder), name
