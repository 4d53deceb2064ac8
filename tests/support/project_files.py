"""The files of a checkout: those that git knows or would take; without git, all that .gitignore does not name."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path


def project_files(root: Path) -> Iterator[str]:
    """Names relative to `root`."""
    return _files_of_git(root) if shutil.which("git") else _files_not_ignored(root)


def _files_of_git(root: Path) -> Iterator[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout.decode()
    return filter(None, listed.split("\0"))


def _files_not_ignored(root: Path) -> Iterator[str]:
    lines = (root / ".gitignore").read_text(encoding="utf-8").split()
    ignored = {".git", *(line.strip("/") for line in lines)}
    for folder, folders, files in os.walk(root):
        place = Path(folder).relative_to(root)
        folders[:] = [
            name
            for name in folders
            if not any(fnmatch(text, pattern) for text in (name, f"{place / name}") for pattern in ignored)
        ]
        yield from (str(place / name) for name in files if name not in ignored)
