"""Tasks for root filesystems of build steps, and for what killed executors left."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from aotforge.base.child_processes import fixed_environment, run_child
from aotforge.base.progress import LineObserver, Observer
from aotforge.cli.command import (
    ROOT,
    Json,
    cache_folder,
    cli_command,
    print_either,
    print_result,
    print_status,
)

Names = Annotated[
    Sequence[str] | None,
    "a root filesystem of manifests/containers.yaml (may be repeated; default: every one)",
]
Cache = Annotated[
    str | None, "folder of packages and root filesystems (default: AOTFORGE_CACHE, else .aotforge/cache)"
]


def _observer() -> Observer:
    """A line on stderr per stage, with the seconds since the start."""
    start = time.monotonic()
    return LineObserver(lambda text: print_status(f"[{time.monotonic() - start:5.1f} s] {text}"))


@cli_command("containers.lock")
def lock(
    name: Names = None,
    keep: Annotated[
        bool, "keep the locked packages and wheels, and record the digest of the result anew"
    ] = False,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Resolve definitions against the current mirrors and package index, and write locks."""
    from json import dumps

    from aotforge.run.rootfs.definitions import rootfs_names
    from aotforge.run.rootfs.lock import lock_rootfs

    for one in name or rootfs_names(ROOT):
        spec, made = lock_rootfs(
            ROOT,
            one,
            cache=cache_folder(cache),
            environment=os.environ,
            observer=_observer(),
            keep=keep,
        )
        values = {"name": one, "digest": made.digest, "file": str(spec.lock_file)}
        print_result(dumps(values) if json else f"{one}  {made.digest}  {spec.lock_file}")


@cli_command("containers.shell", positional=["name"])
def shell(
    name: Annotated[str, "a root filesystem of manifests/containers.yaml"],
    run: Annotated[str, "a command line instead of an interactive shell"] = "",
    cache: Cache = None,
) -> None:
    """A shell in a root filesystem by bubblewrap: read-only, without network, with an empty /tmp."""
    from aotforge.run.processes import shell_command
    from aotforge.run.rootfs.cache import find_rootfs

    rootfs = find_rootfs(ROOT, name, cache=cache_folder(cache), environment=os.environ, observer=_observer())
    command = shell_command(rootfs, run)
    if code := run_child(command, environment=fixed_environment({"PATH": os.defpath}, "TERM")).returncode:
        sys.exit(code)


@cli_command("containers.prune")
def prune(
    dry_run: Annotated[bool, "only list the files and folders that would be removed"] = False,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Remove packages and root filesystems that no lock names, and what killed builds left."""
    from aotforge.errors import ExecutorError
    from aotforge.run.choose import EXECUTORS, make_runner
    from aotforge.run.rootfs.cache import prune_rootfs

    files = list(map(str, prune_rootfs(ROOT, cache_folder(cache), dry_run=dry_run)))
    left = []
    for executor in () if dry_run else EXECUTORS[1:]:
        with suppress(ExecutorError):
            left += [
                f"{executor}: {name}" for name in make_runner(executor, cache=cache_folder(cache)).prune()
            ]
    lines = [*files, *left]
    done = "would be removed" if dry_run else "removed"
    print_either({"files": files, "left": left}, [*lines, f"{len(lines)} {done}"], json=json)
