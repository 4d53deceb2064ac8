"""Tasks for the root filesystems of build steps."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json import dumps
from typing import Annotated

from aotforge.base.child_processes import fixed_environment, run_child
from aotforge.base.progress import LineObserver, Observer, progress
from aotforge.cli.flags import command
from aotforge.cli.output import Json, print_result, print_status
from aotforge.cli.settings import ROOT
from aotforge.cli.values import Cache, cache_folder

Name = Annotated[str, "a root filesystem of docker/"]


@contextmanager
def _observer(*, quiet: bool) -> Iterator[Observer]:
    """A line on stderr per stage, with the seconds since the start."""
    start = time.monotonic()
    if quiet:
        with progress(quiet=True) as shown:
            yield shown
    else:
        yield LineObserver(lambda text: print_status(f"[{time.monotonic() - start:5.1f} s] {text}"))


@command("containers.lock")
def lock(
    name: Annotated[Sequence[str] | None, "a root filesystem (may be repeated; default: all)"] = None,
    keep: Annotated[bool, "keep the locked files, and record the digest of the result"] = False,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Resolve definitions against the current mirrors and package index, and write locks."""
    from aotforge.run.rootfs.definitions import rootfs_names
    from aotforge.run.rootfs.lock import lock_rootfs

    for one in name or rootfs_names(ROOT):
        with _observer(quiet=json) as observer:
            spec, made = lock_rootfs(
                ROOT,
                one,
                cache=cache_folder(cache),
                environment=os.environ,
                observer=observer,
                keep=keep,
            )
        values = {"name": one, "digest": made.digest, "file": str(spec.lock_file)}
        print_result(dumps(values) if json else "  ".join(values.values()))


@command("containers.shell")
def shell(
    name: Name,
    run: Annotated[str, "a command line instead of an interactive shell"] = "",
    cache: Cache = None,
) -> None:
    """A shell in a root filesystem by bubblewrap: read-only, without network, with an empty /tmp."""
    from aotforge.run.processes import shell_command
    from aotforge.run.rootfs.cache import find_rootfs

    with _observer(quiet=False) as observer:
        rootfs = find_rootfs(ROOT, name, cache=cache_folder(cache), environment=os.environ, observer=observer)
        words = shell_command(rootfs, run)
    if code := run_child(words, environment=fixed_environment({"PATH": os.defpath}, "TERM")).returncode:
        sys.exit(code)
