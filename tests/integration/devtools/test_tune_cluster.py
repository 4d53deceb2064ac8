"""`./dev tune --scheduler`: workers estimate settings as this machine does, and a shared cache has what they
found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tasks  # noqa: F401 - registers the tasks
from aotforge.cli.program import run
from aotforge.devtools.tune import search as tool
from aotforge.devtools.tune.space import candidates
from aotforge.publish.keys import create_keys
from tests.support.cluster import HOME, local_cluster
from tests.support.publishing import NOW, ROOT

pytestmark = [pytest.mark.compiler, pytest.mark.slow]
pytest.importorskip("distributed", reason="the packages of --scheduler are not installed")

TUNE = ("tune", "add.add", "--key", "dtype=fp16", "--shape", "n=4096", "--json", "--budget", "2h")


def tuned(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    capsys.readouterr()
    run([*TUNE, *flags])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def ranking(found: dict[str, Any]) -> list[tuple[float, dict[str, int], Any]]:
    return [(one["ratio"], one["values"], one["estimates"]) for one in found["ranked"]]


def test_a_cluster_finds_what_one_machine_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "candidates", lambda setting, target: candidates(setting, target)[:6])
    create_keys(tmp_path / "keys", now=NOW, repository=ROOT, root_keys=1, threshold=1)
    caches = [tmp_path / name for name in ("alone", "cluster", "later")]
    for cache in caches:
        cache.mkdir(mode=0o700)
        for name in ("emulator-1", "allocator-1"):
            if (HOME / "cache" / name).is_dir():
                (cache / name).symlink_to(HOME / "cache" / name)
    alone = tuned(capsys, "--cache", str(caches[0]))
    place = ("--cache-to", str(tmp_path / "place"), "--cache-keys", str(tmp_path / "keys"))
    with local_cluster() as address:
        found = tuned(capsys, "--cache", str(caches[1]), *place, "--scheduler", address)
    assert ranking(found) == ranking(alone) and len(found["tried"]) == 6
    assert (found["known"], alone["known"]) == (0, 0)
    shutil.rmtree(caches[1])
    root = ("--cache-root", str(tmp_path / "keys" / "roots" / "1.root.json"))
    later = tuned(capsys, "--cache", str(caches[2]), "--cache-from", str(tmp_path / "place"), *root)
    assert ranking(later) == ranking(alone) and later["known"] == 7
