"""Tasks for the root filesystems of build steps."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Annotated

from aotforge.base.child_processes import ENGINE, child_environment, fixed_environment, run_child
from aotforge.base.progress import LineObserver, Observer, progress
from aotforge.cli.flags import command
from aotforge.cli.output import Output, print_result, print_status
from aotforge.cli.settings import ROOT
from aotforge.cli.values import Cache, absolute, cache_folder

Names = Annotated[
    Sequence[str] | None,
    "a root filesystem of manifests/containers.yaml (may be repeated; default: every one)",
]


@contextmanager
def _observer(output: Output) -> Iterator[Observer]:
    """A line on stderr per stage, with the seconds since the start; or events."""
    start = time.monotonic()
    if output.events or output.silent:
        with progress(quiet=output.silent, events=output.events) as shown:
            yield shown
    else:
        yield LineObserver(lambda text: print_status(f"[{time.monotonic() - start:5.1f} s] {text}"))


@command("containers.build")
def build(
    output: Output,
    name: Names = None,
    source: Annotated[
        Sequence[str] | None,
        "folder or URL that is tried for packages and wheels first, by SHA-256 or name (may be repeated)",
    ] = None,
    export: Annotated[
        str | None, "also copy every locked file into this folder, which then serves as a --source"
    ] = None,
    shell: Annotated[
        str | None, "then a command line in it, e.g. bash: read-only, no network, an empty /tmp"
    ] = None,
    cache: Cache = None,
) -> None:
    """Build root filesystems from their locks: what is missing is downloaded, what is in the cache is kept.

    ./dev containers.build --export /srv/packages
    ./dev containers.build --name kernels --shell bash
    """
    from aotforge.sandbox.rootfs.definitions import rootfs_definitions
    from aotforge.sandbox.rootfs.image import shell_command
    from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs, export_store

    folder, out = cache_folder(cache), absolute(export)
    for one in name or rootfs_definitions(ROOT):
        with _observer(output) as observer:
            rootfs = ensure_rootfs(
                ROOT, one, cache=folder, environment=os.environ, sources=source or (), observer=observer
            )
        if out:
            export_store(ROOT, one, cache=folder, folder=out)
        values = {"name": rootfs.name, "digest": rootfs.digest, "tar": str(rootfs.tar)}
        if not shell:
            print_result(dumps(values) if output.json else "  ".join(values.values()))
            continue
        words = shell_command(rootfs, cache=folder, run=shell, terminal=sys.stdin.isatty())
        bwrap = Path(words[0]).name == "bwrap"
        own = fixed_environment({"PATH": os.defpath}, "TERM") if bwrap else child_environment(keep=ENGINE)
        if code := run_child(words, environment=own).returncode:
            sys.exit(code)


@command("containers.lock")
def lock(
    output: Output,
    name: Names = None,
    keep: Annotated[
        bool,
        "keep the locked packages and wheels; record their result again after a change of the definition",
    ] = False,
    cache: Cache = None,
) -> None:
    """Resolve definitions against the current mirrors and package index, and write locks and member lists."""
    from aotforge.sandbox.rootfs.definitions import rootfs_definitions
    from aotforge.sandbox.rootfs.resolve_lock import lock_rootfs

    for one in name or rootfs_definitions(ROOT):
        with _observer(output) as observer:
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
        print_result(
            dumps(values)
            if output.json
            else "\n".join([f"{made.name}  {made.digest}  {made.file}", *changes])
        )
