"""The files of a checkout: those that git knows or would take; without git, all that .gitignore does not
name."""

import os
import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from aotforge.base.git import run_git


def project_files(root: Path) -> Iterator[str]:
    """Names relative to `root`."""
    if shutil.which("git"):
        listed = run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        if listed.returncode == 0:  # a git before 2.38 takes no checkout of another user
            return filter(None, listed.stdout.split("\0"))
    return _files_not_ignored(root)


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
