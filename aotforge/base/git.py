"""Git on this checkout or a clone of it, also of another user: the checkout's code is executed anyway."""

import subprocess
from pathlib import Path

from aotforge.base.child_processes import run_child
from aotforge.errors import ToolchainError

_UPLOAD = "git -c 'safe.directory=*' upload-pack"
"""The process that reads a repository, which does not inherit the settings of the command line."""


def run_git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs git in the repository of `root`, not of a calling hook. Raises ToolchainError without git."""
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *arguments]
    try:
        return run_child(command, capture_output=True)
    except OSError as error:
        raise ToolchainError(f"git does not run: {error.strerror}", hint="apt-get install git") from error


def clone(root: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Clones the repository of `root` without a working tree, sharing its objects. Raises as `run_git`."""
    options = ("--quiet", "--no-checkout", "--shared", "--upload-pack", _UPLOAD)
    return run_git(root, "clone", *options, "--", str(root.absolute()), str(target.absolute()))


def first_line(done: subprocess.CompletedProcess[str]) -> str:
    """What git complains of."""
    return (done.stderr.strip().splitlines() or ["no message"])[0]
