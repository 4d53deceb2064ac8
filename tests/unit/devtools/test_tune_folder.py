"""Folders of candidates: what is planned, compiled and found again."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.devtools.cost.candidates import find_candidates
from aotforge.devtools.tune import run_tune, sources
from aotforge.devtools.tune.run_tune import TuneRequest, prepare
from aotforge.devtools.tune.sources import Compiled, open_folder
from aotforge.errors import CompileError, UnsupportedError
from aotforge.toolchain import backend_options
from aotforge.toolchain.triton import Toolchain
from tests.support.families import PROJECT

TOOLCHAIN = Toolchain(triton_version="3.9.0", triton_digest="1" * 64, llvm_revision="2", environment=())
SETTING, REFUSED = {"BLOCK": 512, "num_warps": 4}, {"BLOCK": 512, "num_warps": 16}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a `prepare` that compiles nothing; one of two settings has no images."""

    def images(self: Compiled, one: Any, request: Any) -> dict[str, Any]:
        if one.setting.get("num_warps") == "16":
            raise CompileError("it does not compile")
        return {}

    library = tmp_path / "libaotriton_v2.so.0.11.2"
    library.write_text("library")
    monkeypatch.setattr(Compiled, "images", images)
    monkeypatch.setattr(sources, "compile_together", lambda candidates, request: None)
    monkeypatch.setattr(run_tune, "candidates", lambda setting, target: [SETTING, REFUSED])
    monkeypatch.setattr(run_tune, "build_runtime", lambda request: SimpleNamespace(library=library))
    lines = prepare(wanted(tmp_path), tmp_path / "folder", on_tried=lambda done, total: None)
    assert lines[0].startswith("1 of 2 settings compiled")
    return tmp_path / "folder"


def wanted(folder: Path) -> TuneRequest:
    return TuneRequest(
        root=PROJECT,
        cache=folder / "cache",
        kernel="add.add",
        arch="gfx908",
        keys={"dtype": "fp16"},
        shapes=(),
        seconds=10.0,
    )


def test_candidates_are_planned_from_this_checkout_for_the_compiler_that_made_them(folder: Path) -> None:
    request = wanted(folder)
    cost = replace(request.of("add.add", request.keys), restricted=True)
    opened = open_folder(folder)
    assert opened.library().read_text() == "library"
    assert opened.offered([{"BLOCK": 1}, SETTING, REFUSED]) == [SETTING]
    index = json.loads((folder / "candidates.json").read_text())
    index["toolchain"] |= {"triton_digest": "1" * 64}
    (folder / "candidates.json").write_text(json.dumps(index))
    (changed,) = open_folder(folder).find(cost)
    assert changed.plan.toolchain.triton_digest == "1" * 64
    with pytest.raises(UnsupportedError, match=r"has candidates of add\.add gfx908 dtype=fp16"):
        opened.find(replace(cost, arch="gfx90a"))


def test_a_plan_needs_no_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for kernels whose settings have options of a back end."""
    keys = {"dtype": "fp16", "width": "64"}
    cost = replace(wanted(tmp_path).of("flash.attn_fwd", keys), arch="sm_90", toolchain=TOOLCHAIN)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    backend_options._annotations.cache_clear()
    (found,) = find_candidates(cost)
    assert found.plan.toolchain == TOOLCHAIN


@pytest.mark.parametrize("text", ["[]", "null", '{"schema": 2}', "\x00"])
def test_another_index_is_refused(folder: Path, text: str) -> None:
    (folder / "candidates.json").write_text(text)
    with pytest.raises(UnsupportedError, match="has no candidates"):
        open_folder(folder)
