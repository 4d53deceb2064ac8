"""`./dev tune --scheduler`: workers estimate settings as this machine does, and a shared cache has what they
found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tasks
from aotforge.cli import settings
from aotforge.cli.program import run
from aotforge.devtools.tune import search as tool
from aotforge.devtools.tune.search import candidates
from aotforge.publish.keys import create_keys
from tests.support.cluster import HOME, local_cluster
from tests.support.publishing import NOW, ROOT

pytestmark = [pytest.mark.compiler, pytest.mark.slow]
pytest.importorskip("distributed", reason="the packages of dask are not installed")

TUNE = ("tune", "add.add", "--key", "dtype=fp16", "--shape", "n=4096", "--json", "--budget", "2h")


def tuned(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    capsys.readouterr()
    run(tasks.namespace, [*TUNE, *flags])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def set_settings(monkeypatch: pytest.MonkeyPatch, folder: Path, **values: object) -> None:
    """An aotforge.toml for the next commands."""
    (folder / "aotforge.toml").write_text("".join(f"{name} = '{value}'\n" for name, value in values.items()))
    monkeypatch.setattr(settings, "ROOT", folder)
    settings.load_settings.cache_clear()


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
    place = tmp_path / "place"
    with local_cluster() as address:
        set_settings(
            monkeypatch,
            tmp_path,
            **{"cache-to": place, "cache-keys": tmp_path / "keys", "scheduler": address},
        )
        found = tuned(capsys, "--cache", str(caches[1]))
    assert ranking(found) == ranking(alone) and len(found["tried"]) == 6
    assert (found["known"], alone["known"]) == (0, 0)
    shutil.rmtree(caches[1])
    root = tmp_path / "keys" / "roots" / "1.root.json"
    set_settings(monkeypatch, tmp_path, **{"cache-from": place, "cache-root": root})
    later = tuned(capsys, "--cache", str(caches[2]))
    assert ranking(later) == ranking(alone) and later["known"] == 7
