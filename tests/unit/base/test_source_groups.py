"""Groups of sources: what is in a digest, what is not, and that a renamed folder is an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.base.source_groups import GROUPS, PACKAGE, group_digest, group_files
from aotforge.errors import ToolchainError
from tests.support.families import PROJECT


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_every_pattern_matches_and_renaming_any_file_group_is_an_error(group: str, tmp_path: Path) -> None:
    assert group_files(group)
    package = tmp_path / "aotforge"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PROJECT / "manifests", tmp_path / "manifests")
    before = group_digest(group, package)
    assert before == group_digest(group)
    for pattern in GROUPS[group]:
        folder = package / pattern.removeprefix("!").split("/*")[0]
        folder.rename(tmp_path / "renamed")
        with pytest.raises(ToolchainError, match="matches no file"):
            group_digest(group, package)
        (tmp_path / "renamed").rename(folder)
    assert group_digest(group, package) == before


@pytest.mark.parametrize("package", ["compile", "formats", "pack", "release"])
def test_the_stamp_of_a_release_covers_each_package_that_makes_its_bytes(package: str) -> None:
    """A stale release would otherwise be found made already."""
    modules = {str(path.relative_to(PACKAGE)) for path in (PACKAGE / package).glob("*.py")}
    assert modules and modules <= set(group_files("release"))


@pytest.mark.parametrize(
    ("group", "seen", "unseen"),
    [
        ("verifier", "virtual_gpu/emulator/native/run.h", "verify/report.py"),
        ("verifier", "virtual_gpu/interpreter/memory.py", "virtual_gpu/emulator/debugger/shell.py"),
        ("verifier", "verify/compare.py", "verify/report.py"),
        ("verifier", "formats/code_object.py", "compile/scheduler.py"),
        ("verifier", "../manifests/architectures.yaml", "../manifests/profiles.yaml"),
        ("release", "pipeline/build_release.py", "cli/build.py"),
        ("release", "release/licences/zstd.txt", "verify/report.py"),
        ("cluster", "pipeline/cluster_worker.py", "pipeline/parts.py"),
        ("virtual HIP", "virtual_gpu/hip/blob.py", "verify/compare.py"),
        ("compile worker", "toolchain/native/heap.c", "compile/../cli/build.py"),
    ],
)
def test_a_digest_changes_with_its_group_only(group: str, seen: str, unseen: str, tmp_path: Path) -> None:
    package = tmp_path / "aotforge"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PROJECT / "manifests", tmp_path / "manifests")
    before = group_digest(group, package)
    with (package / unseen).open("a") as file:
        file.write("\n")
    assert group_digest(group, package) == before
    with (package / seen).open("a") as file:
        file.write("\n")
    assert group_digest(group, package) != before
