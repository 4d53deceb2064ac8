"""Whether a checkout's sources are those of a commit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.errors import ReleaseError, ToolchainError
from aotforge.release.record import NO_COMMIT, source_commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "releases").mkdir()
    for name in ("source.py", "other.py", "releases/README.md"):
        (tmp_path / name).write_text("1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_a_clean_checkout_and_new_records(root: Path) -> None:
    head = git(root, "rev-parse", "HEAD")
    assert source_commit(root, development=False) == head
    (root / "releases" / "0.11.2b-r1.json").write_text("{}")
    (root / "releases" / "README.md").write_text("changed\n")
    assert source_commit(root, development=False) == head
    assert source_commit(root, development=True) == head


@pytest.mark.parametrize("how", ["changed", "staged", "new", "deleted", "moved in", "moved out"])
def test_other_sources_than_the_commit_s(root: Path, how: str) -> None:
    if how in {"changed", "staged"}:
        (root / "source.py").write_text("2\n")
    if how == "staged":
        git(root, "add", "source.py")
    elif how == "new":
        (root / "source.py.orig").write_text("")
    elif how == "deleted":
        (root / "source.py").unlink()
    elif how == "moved in":
        git(root, "mv", "source.py", "releases/source.py")
    elif how == "moved out":
        git(root, "mv", "releases/README.md", "source.py.new")
    with pytest.raises(ReleaseError, match=r"source\.py"):
        source_commit(root, development=False)
    assert source_commit(root, development=True) == NO_COMMIT


def test_what_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ReleaseError, match="not a git checkout"):
        source_commit(tmp_path, development=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="git does not run"):
        source_commit(tmp_path, development=False)
    assert source_commit(tmp_path, development=True) == NO_COMMIT
