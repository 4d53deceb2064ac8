"""Every reader of release folders refuses archives that no build makes, by a named error."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.conformance.candidate import open_candidate
from aotforge.deliver.extract import unpack
from aotforge.errors import AotforgeError, ReleaseError
from aotforge.publish.upload import read_release_folder
from aotforge.release.compare import compare_archives
from aotforge.release.release import Release
from tests.support.hostile import (
    BELOW,
    IMAGES,
    hostile_release,
    member,
    pax_tar,
    refit,
    sparse_tar,
    tar_bytes,
    zipped,
)


def _candidate(folder: Path) -> None:
    candidate = open_candidate(folder, folder.parent / "candidate")
    found = [text for archive in candidate.archives for text in archive.violations if "cannot be" in text]
    if found:
        raise ReleaseError(found[0])


READERS: dict[str, Callable[[Path], object]] = {
    "read": lambda folder: Release.open(folder).packs(),
    "check": _candidate,
    "unpack": lambda folder: unpack([folder / IMAGES], folder.parent / "unpacked"),
    "publish": read_release_folder,
    "compare": lambda folder: compare_archives(folder / IMAGES, folder / IMAGES),
}


def outcome(read: Callable[[Path], object], folder: Path) -> str:
    """The named error of a reader; any other exception is a failure of the test."""
    try:
        read(folder)
    except AotforgeError as error:
        return f"{error.kind}: {error.what}"
    return "accepted"


@pytest.mark.parametrize(
    ("tar", "message"),
    [
        (pax_tar(f"{BELOW}x", b"aotriton/a\0b"), "is not a plain path"),
        (sparse_tar(f"{BELOW}x"), "is a sparse file"),
        (tar_bytes((member(f"{BELOW}x", kind=tarfile.FIFOTYPE), b"")), "is a special file"),
        (tar_bytes((member(f"{BELOW}x", kind=tarfile.LNKTYPE, link="/etc/passwd"), b"")), "is a hard link"),
        (tar_bytes((member(f"{BELOW}../../x", 1), b"x")), "is outside its folder"),
        (tar_bytes((member("aotriton/share/licenses/aotriton/x", 1), b"x"))[:700], "truncated"),
    ],
    ids=["pax", "sparse", "pipe", "hard", "climbing", "cut"],
)
def test_archives_that_no_build_makes(tar: bytes, message: str, tmp_path: Path) -> None:
    folder = hostile_release(tmp_path / "release", zipped(tar))
    for name, read in READERS.items():
        assert message in outcome(read, folder), name


def test_a_release_folder_of_links(tmp_path: Path) -> None:
    """As Nix, Bazel and git-annex lay files out."""
    asm = tar_bytes((member("aotriton/share/aotriton/asm/amd-gfx908/resources.json", 14), b'{"images": []}'))
    made = hostile_release(
        tmp_path / "store/release", zipped(tar_bytes((member(f"{BELOW}x", 1), b"x"))), asm=zipped(asm)
    )
    refit(made)
    folder = tmp_path / "release"
    folder.mkdir()
    for path in made.iterdir():
        (folder / path.name).symlink_to(os.path.relpath(path, folder))
    for name in ("read", "check", "unpack", "compare"):
        assert outcome(READERS[name], folder) == "accepted", name
