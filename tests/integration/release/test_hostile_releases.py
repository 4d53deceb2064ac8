"""Every reader of release folders reads one whose files are links."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from aotforge.conformance.candidate import open_candidate
from aotforge.release.compare import compare_archives
from aotforge.release.release import Release
from tests.support.hostile import BELOW, IMAGES, hostile_release, member, refit, tar_bytes, zipped

READERS: tuple[Callable[[Path], object], ...] = (
    lambda folder: Release.open(folder).packs(),
    lambda folder: open_candidate(folder, folder.parent / "candidate"),
    lambda folder: Release.open(folder).unpack(Release.open(folder).of("images"), folder.parent / "unpacked"),
    lambda folder: compare_archives(folder / IMAGES, folder / IMAGES),
)


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
    for read in READERS:
        read(folder)
