"""Root filesystems that steps of a build run in: locked, made, listed, entered, cleared."""

from __future__ import annotations

import json as json_
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from aotforge.base.progress import LineObserver
from aotforge.cli.command import JSON, ROOT, cache_folder, door, say

NAME = "a root of manifests/containers.yaml (may be repeated; default: every one)"
CACHE = "folder of packages and roots (default: AOTFORGE_CACHE, else .aotforge/cache)"


def _notes(quiet: bool) -> LineObserver:
    """A line on stderr per stage, with the seconds since the start."""
    start = time.monotonic()

    def note(text: str) -> None:
        if not quiet:
            sys.stderr.write(f"[{time.monotonic() - start:5.1f} s] {text}\n")
            sys.stderr.flush()

    return LineObserver(note)


@task(
    iterable=["name", "source"],
    help={
        "name": NAME,
        "source": "folder or URL that is asked for packages and wheels first, by SHA-256 or name (may be repeated)",
        "export": "also copy every locked file into this folder, which then serves as a --source",
        "cache": CACHE,
        "json": JSON,
        "quiet": "no progress",
    },
)
@door
def build(
    c: Context,
    name: Sequence[str] | None = None,
    source: Sequence[str] | None = None,
    export: str | None = None,
    cache: str | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Make root filesystems from their locks: what is missing is fetched, what is in the cache is kept."""
    from aotforge.sandbox.rootfs.definitions import rootfs_definitions  # noqa: PLC0415
    from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs, export_store  # noqa: PLC0415

    folder = cache_folder(cache)
    for one in name or rootfs_definitions(ROOT):
        root = ensure_rootfs(
            ROOT,
            one,
            cache=folder,
            environment=os.environ,
            sources=source or (),
            observer=_notes(quiet or json),
        )
        if export:
            export_store(ROOT, one, cache=folder, folder=Path(export).absolute())
        found = {"name": root.name, "digest": root.digest, "tar": str(root.tar)}
        say(json_.dumps(found) if json else f"{root.name}  {root.digest}  {root.tar}")


@task(help={"cache": CACHE, "json": JSON})
@door
def list_(c: Context, cache: str | None = None, json: bool = False) -> None:
    """Name, digest, size and packages of every root, and what of it is in the cache."""
    from aotforge.sandbox.rootfs import cache_gc  # noqa: PLC0415

    found = cache_gc.entries(ROOT, cache_folder(cache))
    if json:
        say(json_.dumps([cache_gc.fields(entry) for entry in found], indent=1))
        return
    for line in cache_gc.lines(found):
        say(line)


@task(
    iterable=["name"],
    help={
        "name": NAME,
        "keep": "keep the locked packages and wheels; record anew what they come to after a change of the definition or the assembler",
        "cache": CACHE,
        "json": JSON,
        "quiet": "no progress",
    },
)
@door
def lock(
    c: Context,
    name: Sequence[str] | None = None,
    keep: bool = False,
    cache: str | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Resolve definitions against what mirrors and package index have now, and write their locks and member lists."""
    from aotforge.sandbox.rootfs.definitions import rootfs_definitions  # noqa: PLC0415
    from aotforge.sandbox.rootfs.resolve_lock import lock_rootfs  # noqa: PLC0415

    for one in name or rootfs_definitions(ROOT):
        made = lock_rootfs(
            ROOT,
            one,
            cache=cache_folder(cache),
            environment=os.environ,
            observer=_notes(quiet or json),
            keep=keep,
        )
        if json:
            say(json_.dumps({"name": made.name, "digest": made.digest, "changes": made.changes}))
            continue
        say(f"{made.name}  {made.digest}  {made.file}")
        for line in made.changes or ("unchanged",):
            say(f"  {line}")


@task(
    positional=["name"],
    help={
        "name": "a root of manifests/containers.yaml",
        "run": "a command line instead of an interactive shell",
        "cache": CACHE,
    },
)
@door
def shell(c: Context, name: str, run: str = "", cache: str | None = None) -> None:
    """A shell inside a root: read-only, without network, with an empty /tmp."""
    from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs  # noqa: PLC0415
    from aotforge.sandbox.rootfs.shell import shell_command  # noqa: PLC0415

    folder = cache_folder(cache)
    root = ensure_rootfs(ROOT, name, cache=folder, environment=os.environ, observer=_notes(quiet=False))
    command = shell_command(root, cache=folder, run=run, terminal=sys.stdin.isatty())
    if code := subprocess.run(command, check=False).returncode:
        raise Exit(code=code)


@task(help={"dry-run": "only say what would be removed", "cache": CACHE, "json": JSON})
@door
def prune(c: Context, dry_run: bool = False, cache: str | None = None, json: bool = False) -> None:
    """Remove packages and roots that no lock of this checkout names."""
    from aotforge.sandbox.rootfs import cache_gc  # noqa: PLC0415

    found = cache_gc.unreferenced(ROOT, cache_folder(cache))
    if not dry_run:
        for path, _ in found:
            cache_gc.remove(path)
    if json:
        say(json_.dumps([{"path": str(path), "bytes": size} for path, size in found]))
        return
    for path, size in found:
        say(f"{size / 1e6:8.1f} MB  {path}")
    done = "would be removed" if dry_run else "removed"
    say(f"{sum(size for _, size in found) / 1e6:.1f} MB in {len(found)} files and folders {done}")


TASKS = (
    ("containers", "build", build),
    ("containers", "list", list_),
    ("containers", "lock", lock),
    ("containers", "shell", shell),
    ("containers", "prune", prune),
)
