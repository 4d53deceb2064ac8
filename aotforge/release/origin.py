"""The git commit of a release's sources, and the tools that took part."""

from __future__ import annotations

import platform
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.git import outside_environment
from aotforge.errors import ReleaseError, ToolchainError, listed
from aotforge.toolchain.triton import Toolchain

NO_COMMIT = "0" * 40
"""The commit of development releases from uncommitted sources."""


@dataclass(frozen=True, kw_only=True)
class BuildTools:
    """Tools whose output a release is. `roots`: rootfs images as (name, SHA-256 of the tar), none for a build on the
    host; `compiler` made the runtime; `zstd`: (file, SHA-256) of the sources compiled into it; `zlib` made the .gz."""

    toolchain: Toolchain
    python: str = ".".join(platform.python_version_tuple()[:2])
    compiler: str
    zstd: tuple[str, str]
    zlib: str = zlib.ZLIB_RUNTIME_VERSION
    executor: str
    roots: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The inputs that reproduce a release: commit, request, time of the archives' members, tools."""

    release: str
    commit: str
    archs: tuple[str, ...]
    profile: str
    platforms: tuple[str, ...]
    epoch: int
    tools: BuildTools


def source_commit(root: Path, *, development: bool) -> str:
    """The checkout's commit; NO_COMMIT for a `development` release from sources that differ from it.

    Raises ReleaseError when files differ and it is not a development release, ToolchainError without git.
    """
    head = _git(root, "rev-parse", "HEAD")
    status = _git(root, "status", "--porcelain", "--no-renames") if head else ""
    changed = [line[3:] for line in (status or "").splitlines() if not line[3:].startswith("releases/")]
    if head is not None and not changed:
        return head
    if development:
        return NO_COMMIT
    differing = f"the sources are not those of a commit: {listed(changed)}"
    raise ReleaseError(
        differing if changed else f"{root} is not a git checkout",
        cause="a release can only be reproduced from a commit",
        hint="commit or stash the changes, then release again; --development makes one for yourself",
    )


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, env=outside_environment(), capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolchainError(f"git does not run: {error.strerror}", hint="apt-get install git") from error
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
