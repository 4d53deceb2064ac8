"""Groups of sources: what is in a digest, what is not, and that a renamed folder is an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.base.source_groups import GROUPS, ROOT, group_digest, group_files
from aotforge.errors import ToolchainError


def _copy_sources(folder: Path) -> None:
    for name in ("aotforge", "vgpu", "ttcpu", "manifests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_every_pattern_matches_and_renaming_any_file_group_is_an_error(group: str, tmp_path: Path) -> None:
    assert group_files(group)
    _copy_sources(tmp_path)
    before = group_digest(group, tmp_path)
    assert before == group_digest(group)
    for pattern in GROUPS[group]:
        folder = tmp_path / pattern.removeprefix("!").split("/*")[0]
        folder.rename(tmp_path / "renamed")
        with pytest.raises(ToolchainError, match="matches no file"):
            group_digest(group, tmp_path)
        (tmp_path / "renamed").rename(folder)
    assert group_digest(group, tmp_path) == before


@pytest.mark.parametrize("package", ["compile", "formats", "pack", "release"])
def test_the_stamp_of_a_release_covers_each_package_that_makes_its_bytes(package: str) -> None:
    """A stale release would otherwise be found made already."""
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "aotforge" / package).glob("*.py")}
    assert modules and modules <= set(group_files("release"))


@pytest.mark.parametrize(
    ("group", "seen", "unseen"),
    [
        ("verifier", "vgpu/emulator/native/run.h", "aotforge/verify/report.py"),
        ("verifier", "vgpu/emulator/program.py", "vgpu/emulator/debugger/shell.py"),
        ("verifier", "vgpu/memory.py", "vgpu/hip/blob.py"),
        ("verifier", "aotforge/verify/interpreter/memory.py", "aotforge/verify/interpreter/breakpoints.py"),
        ("verifier", "aotforge/verify/compare.py", "aotforge/verify/report.py"),
        ("verifier", "vgpu/code_object.py", "aotforge/compile/scheduler.py"),
        ("verifier", "manifests/architectures.yaml", "manifests/profiles.yaml"),
        ("native verifier", "ttcpu/image.py", "ttcpu/lowering.py"),
        ("CPU compiler", "ttcpu/lowering.py", "ttcpu/driver.py"),
        ("release", "aotforge/pipeline/build_release.py", "aotforge/cli/build.py"),
        ("release", "aotforge/release/licences/zstd.txt", "aotforge/verify/report.py"),
        ("cluster", "aotforge/pipeline/cluster_worker.py", "aotforge/pipeline/parts.py"),
        ("compile worker", "aotforge/toolchain/native/heap.c", "aotforge/cli/build.py"),
        ("compile worker", "ttcpu/lowering.py", "vgpu/emulator/program.py"),
    ],
)
def test_a_digest_changes_with_its_group_only(group: str, seen: str, unseen: str, tmp_path: Path) -> None:
    _copy_sources(tmp_path)
    before = group_digest(group, tmp_path)
    with (tmp_path / unseen).open("a") as file:
        file.write("\n")
    assert group_digest(group, tmp_path) == before
    with (tmp_path / seen).open("a") as file:
        file.write("\n")
    assert group_digest(group, tmp_path) != before
