"""Git on this checkout or a clone of it, also of another user: the checkout's code is executed anyway."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from aotforge.base.child_processes import child_environment, run_child_bytes
from aotforge.errors import ToolchainError

_ANY_OWNER = ("git", "-c", "safe.directory=*")

_CLONE = (
    *("clone", "--quiet", "--no-checkout"),
    # the process that reads the repository does not inherit the settings of the command line
    *("--upload-pack", "git -c 'safe.directory=*' upload-pack"),
)


def run_git(
    root: Path, *arguments: str, given: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs git in the repository of `root`, not of a calling hook. Raises ToolchainError without git."""
    command = [*_ANY_OWNER, "-C", str(root), *arguments]
    try:
        return run_child_bytes(command, environment=child_environment(base=given), capture_output=True)
    except OSError as error:
        raise ToolchainError(f"git does not run: {error.strerror}", hint="apt-get install git") from error


def clone(root: Path, target: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Clones the repository of `root` without a working tree. Raises ToolchainError without git."""
    return run_git(root, *_CLONE, *options, "--", str(root.absolute()), str(target.absolute()))


def first_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """What git complains of."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else "no message"
