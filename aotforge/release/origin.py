"""Where the sources of a release stand in git, and which tools took part."""

from __future__ import annotations

import platform
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

from aotforge.base.git import outside_environment
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.library.library_manifest import load_runtime_manifest
from aotforge.plan.model import Plan
from aotforge.release.attestations import BuildTools, Origin

NO_COMMIT = "0" * 40
"""Stands for sources that no commit holds, in development releases."""


def source_commit(root: Path, *, development: bool) -> str:
    """The commit that the checkout is at. Raises ReleaseError when files differ from it, unless `development`, which then gives NO_COMMIT;
    ToolchainError without git."""
    head = _git(root, "rev-parse", "HEAD")
    changed = [] if head is None else (_git(root, "status", "--porcelain", "--no-renames") or "").splitlines()
    changed = [line[3:] for line in changed if not line[3:].startswith("releases/")]
    if head is not None and not changed:
        return head
    if development:
        return NO_COMMIT
    listed = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
    raise ReleaseError(
        f"the sources are not those of a commit: {listed}" if changed else f"{root} is no git checkout",
        cause="a release can only be made again from a commit",
        hint="commit or stash the changes, then release again; --development makes one for yourself",
    )


def gather_origin(
    root: Path,
    *,
    release: str,
    plans: Sequence[Plan],
    platforms: Sequence[str],
    epoch: int,
    commit: str,
    compiler: str,
    executor: str,
    roots: Sequence[tuple[str, str]],
) -> Origin:
    """The facts of a build in one value. Raises ManifestError."""
    pin = load_runtime_manifest(root / "manifests").zstd
    return Origin(
        release=release,
        commit=commit,
        archs=tuple(arch for plan in plans for arch in plan.archs),
        profile=plans[0].profile,
        platforms=tuple(platforms),
        epoch=epoch,
        tools=BuildTools(
            toolchain=plans[0].toolchain,
            python=".".join(platform.python_version_tuple()[:2]),
            compiler=compiler,
            zstd=(pin.file, pin.sha256),
            zlib=zlib.ZLIB_RUNTIME_VERSION,
            executor=executor,
            roots=tuple(roots),
        ),
    )


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            env=outside_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise ToolchainError(f"git does not run: {error.strerror}", hint="apt-get install git") from error
    return done.stdout.rstrip("\n") if done.returncode == 0 else None
