"""Tasks for root filesystems of build steps, and for what killed executors left."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from aotforge.base.child_processes import ENGINE, child_environment, fixed_environment, run_child
from aotforge.base.progress import LineObserver, Observer, progress
from aotforge.cli.command import (
    ROOT,
    Json,
    ProgressKind,
    Quiet,
    absolute,
    cache_folder,
    cli_command,
    print_either,
    print_result,
    print_status,
    progress_events,
)
from aotforge.cli.command import Cache as BuildCache

Names = Annotated[
    Sequence[str] | None,
    "a root filesystem of manifests/containers.yaml (may be repeated; default: every one)",
]
Cache = Annotated[
    str | None, "folder of packages and root filesystems (default: AOTFORGE_CACHE, else .aotforge/cache)"
]


@contextmanager
def _observer(*, quiet: bool, events: bool = False) -> Iterator[Observer]:
    """A line on stderr per stage, with the seconds since the start; or events."""
    start = time.monotonic()
    if events or quiet:
        with progress(quiet=quiet, events=events) as shown:
            yield shown
    else:
        yield LineObserver(lambda text: print_status(f"[{time.monotonic() - start:5.1f} s] {text}"))


@cli_command("containers.build")
def build(
    name: Names = None,
    source: Annotated[
        Sequence[str] | None,
        "folder or URL that is tried for packages and wheels first, by SHA-256 or name (may be repeated)",
    ] = None,
    export: Annotated[
        str | None, "also copy every locked file into this folder, which then serves as a --source"
    ] = None,
    cache: Cache = None,
    json: Json = False,
    quiet: Quiet = False,
    progress: ProgressKind = "auto",
) -> None:
    """Build root filesystems from their locks: what is missing is downloaded, what is in the cache is kept."""
    from aotforge.sandbox.rootfs.definitions import rootfs_definitions
    from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs, export_store

    folder, out = cache_folder(cache), absolute(export)
    events = progress_events(progress, quiet=quiet)
    for one in name or rootfs_definitions(ROOT):
        with _observer(quiet=quiet or json, events=events) as observer:
            rootfs = ensure_rootfs(
                ROOT,
                one,
                cache=folder,
                environment=os.environ,
                sources=source or (),
                observer=observer,
            )
        if out:
            export_store(ROOT, one, cache=folder, folder=out)
        values = {"name": rootfs.name, "digest": rootfs.digest, "tar": str(rootfs.tar)}
        _print_row(values, [f"{rootfs.name}  {rootfs.digest}  {rootfs.tar}"], json=json)


def _print_row(values: object, lines: Sequence[str], *, json: bool) -> None:
    """One of several results: JSON on a line of its own."""
    from json import dumps

    print_result(dumps(values) if json else "\n".join(lines))


@cli_command("containers.list")
def list_(cache: Cache = None, json: Json = False) -> None:
    """Name, digest, size and packages of every root filesystem, and what of it is in the cache."""
    from aotforge.sandbox.rootfs import cache_gc

    found = cache_gc.entries(ROOT, cache_folder(cache))
    print_either([cache_gc.fields(entry) for entry in found], cache_gc.lines(found), json=json)


@cli_command("containers.lock")
def lock(
    name: Names = None,
    keep: Annotated[
        bool,
        "keep the locked packages and wheels; record their result anew after a change of the definition or the assembler",
    ] = False,
    cache: Cache = None,
    json: Json = False,
    quiet: Quiet = False,
    progress: ProgressKind = "auto",
) -> None:
    """Resolve definitions against the current mirrors and package index, and write locks and member lists."""
    from aotforge.sandbox.rootfs.definitions import rootfs_definitions
    from aotforge.sandbox.rootfs.resolve_lock import lock_rootfs

    events = progress_events(progress, quiet=quiet)
    for one in name or rootfs_definitions(ROOT):
        with _observer(quiet=quiet or json, events=events) as observer:
            made = lock_rootfs(
                ROOT,
                one,
                cache=cache_folder(cache),
                environment=os.environ,
                observer=observer,
                keep=keep,
            )
        changes = [f"  {line}" for line in made.changes or ("unchanged",)]
        values = {"name": made.name, "digest": made.digest, "changes": made.changes}
        _print_row(values, [f"{made.name}  {made.digest}  {made.file}", *changes], json=json)


@cli_command("containers.shell", positional=["name"])
def shell(
    name: Annotated[str, "a root filesystem of manifests/containers.yaml"],
    run: Annotated[str, "a command line instead of an interactive shell"] = "",
    cache: Cache = None,
) -> None:
    """A shell inside a root filesystem: read-only, without network, with an empty /tmp."""
    from aotforge.sandbox.rootfs.image import shell_command
    from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs

    folder = cache_folder(cache)
    with _observer(quiet=False) as observer:
        rootfs = ensure_rootfs(ROOT, name, cache=folder, environment=os.environ, observer=observer)
    command = shell_command(rootfs, cache=folder, run=run, terminal=sys.stdin.isatty())
    bwrap = Path(command[0]).name == "bwrap"
    own = fixed_environment({"PATH": os.defpath}, "TERM") if bwrap else child_environment(keep=ENGINE)
    if code := run_child(command, environment=own).returncode:
        sys.exit(code)


@cli_command("containers.prune")
def prune(
    dry_run: Annotated[bool, "only list what would be removed"] = False,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Remove packages and root filesystems that no lock of this checkout names."""
    from aotforge.sandbox.rootfs import cache_gc

    found: list[tuple[Path, int]] = cache_gc.unreferenced(ROOT, cache_folder(cache))
    for path, _ in () if dry_run else found:
        cache_gc.remove(path)
    done = "would be removed" if dry_run else "removed"
    total = sum(size for _, size in found) / 1e6
    lines = [f"{size / 1e6:8.1f} MB  {path}" for path, size in found]
    _print_row(
        [{"path": str(path), "bytes": size} for path, size in found],
        [*lines, f"{total:.1f} MB in {len(found)} files and folders {done}"],
        json=json,
    )


@cli_command("containers.reap")
def reap(
    kept: Annotated[bool, "also containers of --keep, unless their build still runs"] = False,
    cache: BuildCache = None,
    json: Json = False,
) -> None:
    """Remove containers, control groups and work folders of builds that were killed; every build does it for its executor."""
    from aotforge.sandbox.executors.choose import reap_all

    removed = reap_all(cache=cache_folder(cache), kept=kept)
    lines = [f"{executor}: {', '.join(names) or 'nothing to remove'}" for executor, names in removed.items()]
    print_either(removed, lines, json=json)
