"""kill -9 at any moment: nothing is lost or done twice, and the bytes are those of any build."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from tests.e2e.checkouts import (
    HOME,
    build_json,
    command,
    copy_checkout,
    environment,
    share_interpreter,
    shrink_smoke,
    tarballs,
)

pytestmark = pytest.mark.compiler


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_a_build_killed_often_ends_as_if_undisturbed(kills: int, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    shrink_smoke(checkout)
    undisturbed = build_json(checkout, "--profile", "smoke", "--cache", str(HOME / "cache"))
    cache = tmp_path / "cache"
    # library and interpreter are built already: the kills hit kernels, verdicts, packing and assembly
    share_interpreter(cache)
    library = build_runtime(LibraryRequest(root=checkout, cache=HOME / "cache"))
    assert not library.fresh
    shutil.copytree(library.prefix.parent, cache / "runtime" / library.inputs, symlinks=True)
    arguments = ("--profile", "smoke", "--cache", str(cache), "--output", str(tmp_path / "out"))
    dice = random.Random()  # the moments are random on purpose; what must hold, holds at every one
    done: set[str] = set()
    made_at: dict[str, int] = {}
    for _ in range(kills):
        killed(checkout, arguments, seconds=dice.uniform(0.3, 2.0))
        entries = {path.name: path.stat().st_mtime_ns for path in (cache / "images-1").glob("??/*")}
        assert set(entries) >= done
        # an entry is written once: the runs after it never made it again
        assert all(entries[name] == made_at[name] for name in made_at)
        done, made_at = set(entries), entries
    final = build_json(checkout, *arguments)
    if final["fresh"]:
        assert (final["cached"], final["compiled"]) == (len(done), final["images"] - len(done))
    else:  # a late kill came after the end of its build
        assert len(done) == final["images"]
    assert final["damaged"] == []
    assert tarballs(final) == tarballs(undisturbed)


def killed(checkout: Path, arguments: tuple[str, ...], seconds: float) -> None:
    """Start a build, kill its process after a while, and see that every process it started is gone too."""
    process = subprocess.Popen(
        command("build", "--arch", "gfx908", "--json", *arguments),
        cwd=checkout,
        env=environment(checkout),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(seconds)
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not alive, [child.cmdline() for child in alive]
