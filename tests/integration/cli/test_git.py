"""Git as the project calls it: in any checkout, also of another user."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from aotforge.base.git import clone, first_line, run_git
from aotforge.errors import ToolchainError
from tests.support.other_user import USER

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def repository(folder: Path) -> Path:
    """With one commit of one file."""
    folder.mkdir()
    assert run_git(folder, "init", "-q").returncode == 0
    (folder / "file").write_text("content")
    assert run_git(folder, "add", "file").returncode == 0
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    assert run_git(folder, *names, "commit", "-qm", "one").returncode == 0
    return folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_checkout_of_another_user(tmp_path: Path) -> None:
    root = repository(tmp_path / "root")
    for path in (root, *root.rglob("*")):
        os.chown(path, USER, USER)
    assert run_git(root, "ls-files").stdout == "file\n"
    assert clone(root, tmp_path / "clone").returncode == 0
    assert run_git(tmp_path / "clone", "checkout", "-q", "HEAD").returncode == 0
    assert (tmp_path / "clone" / "file").read_text() == "content"


def test_a_repository_that_a_hook_names_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, other = repository(tmp_path / "root"), repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert run_git(root, "rev-parse", "--absolute-git-dir").stdout.strip() == str(root / ".git")


def test_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not a git repository" in first_line(run_git(tmp_path, "status"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="git does not run: No such file"):
        run_git(tmp_path, "status")
