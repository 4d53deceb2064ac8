"""Folders of candidates: whose they are, what they may name, consent, and how they are written."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotforge.compile.model import KernelImage
from aotforge.devtools.cost.candidates import find_candidates
from aotforge.devtools.tune import run_tune, sources
from aotforge.devtools.tune.run_tune import OnDevice, TuneRequest, prepare, tune
from aotforge.devtools.tune.sources import open_folder
from aotforge.errors import DeviceError, ExecutorError, OutputError, UnsupportedError
from aotforge.toolchain import backend_options
from aotforge.toolchain.triton import Toolchain
from tests.support.families import PROJECT
from tests.unit.verify.test_verdicts import RESOURCES

BINARY = b"image"
DIGEST = hashlib.sha256(BINARY).hexdigest()
TOOLCHAIN = Toolchain(triton_version="3.9.0", triton_digest="1" * 64, llvm_revision="2", environment=())
SETTING = {"BLOCK": 512, "num_warps": 4}


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuneRequest:
    """Of a `prepare` that compiles nothing: every image is `BINARY`; the library is a text."""

    def compiled(candidates: Any, request: Any) -> list[KernelImage]:
        return [
            KernelImage(
                key=one.job.key, digest=DIGEST, symbol="add", binary=BINARY, asm="", resources=RESOURCES, arguments=()
            )
            for one in candidates
        ]  # fmt: skip

    library = tmp_path / "libaotriton_v2.so.0.11.2"
    library.write_text("library")
    monkeypatch.setattr(sources, "compiled", compiled)
    monkeypatch.setattr(sources, "compile_together", lambda candidates, request: None)
    monkeypatch.setattr(run_tune, "candidates", lambda setting, target: [SETTING])
    monkeypatch.setattr(run_tune, "build_runtime", lambda request: SimpleNamespace(library=library))
    return TuneRequest(
        root=PROJECT,
        cache=tmp_path / "cache",
        kernel="add.add",
        arch="gfx908",
        keys={"dtype": "fp16"},
        shapes=(),
        seconds=10.0,
    )


def never(done: int, total: int) -> None:
    pass


@pytest.fixture
def folder(request_of: TuneRequest, tmp_path: Path) -> Path:
    prepare(request_of, tmp_path / "folder", on_tried=never)
    return tmp_path / "folder"


def edit(folder: Path, change: Callable[[Any], object]) -> None:
    index = json.loads((folder / "candidates.json").read_text())
    change(index)
    (folder / "candidates.json").write_text(json.dumps(index))


def entries(change: dict[str, Any]) -> Callable[[Any], object]:
    return lambda index: [one.update(change) for one in index["candidates"]]


def images(change: dict[str, Any]) -> Callable[[Any], object]:
    return lambda index: [
        image.update(change) for one in index["candidates"] for image in one["images"].values()
    ]


def test_candidates_are_planned_from_this_checkout_for_the_compiler_that_made_them(
    folder: Path, request_of: TuneRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_folder(folder)
    cost = replace(
        request_of.of("add.add", request_of.keys),
        restricted=True,
        settings=({n: str(v) for n, v in SETTING.items()},),
    )
    (found,) = opened.find(cost)
    (image,) = opened.images(found, cost).values()
    assert (image.key, image.binary, found.folder) == (found.job.key, BINARY, "add")
    assert opened.library().read_text() == "library" and opened.offered([{"BLOCK": 1}, SETTING]) == [SETTING]
    edit(folder, lambda index: index.update(toolchain=asdict(TOOLCHAIN)))
    other = open_folder(folder)
    (changed,) = other.find(cost)
    assert changed.plan.toolchain == TOOLCHAIN
    with pytest.raises(UnsupportedError, match=r"has no image of add\.add:gfx908"):
        other.images(changed, cost)
    (folder / "images" / DIGEST).write_bytes(b"another")
    with pytest.raises(UnsupportedError, match="has another SHA-256 than its name"):
        opened.images(found, cost)


def test_a_plan_needs_no_triton(request_of: TuneRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for kernels whose settings have options of a back end."""
    keys = {"dtype": "fp16", "width": "64"}
    cost = replace(request_of.of("flash.attn_fwd", keys), arch="sm_90", toolchain=TOOLCHAIN)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    backend_options._annotations.cache_clear()
    (found,) = find_candidates(cost)
    assert found.plan.toolchain == TOOLCHAIN


@pytest.mark.parametrize(
    "change",
    [
        entries({"folder": "/elsewhere"}),
        entries({"plan": {"pack": "../../elsewhere"}}),
        entries({"images": {"../key": {}}}),
        entries({"values": {"BLOCK": "1"}}),
        entries({"refused": "\x1b[2J"}),
        images({"digest": "/etc/passwd"}),
        images({"digest": "../../" + "0" * 58}),
        images({"resources": {**asdict(RESOURCES), "threads": 1 << 70}}),
        images({"arguments": [{"offset": -1, "size": 8, "kind": "by_value"}]}),
        lambda index: index.update(schema=1),
        lambda index: index.update(toolchain=[]),
        lambda index: index.update(candidates={}),
    ],
)
def test_an_index_with_other_names_or_values_is_refused(
    folder: Path, change: Callable[[Any], object]
) -> None:
    edit(folder, change)
    with pytest.raises(UnsupportedError, match="has no candidates") as caught:
        open_folder(folder)
    assert len(caught.value.cause) < 500


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "null", '{"schema": 2}', "\x00"])
def test_an_index_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / "candidates.json").write_text(text)
    with pytest.raises(UnsupportedError, match="has no candidates"):
        open_folder(folder)


def test_what_is_there_is_kept(folder: Path, request_of: TuneRequest, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is not empty"):
        prepare(request_of, folder, on_tried=never)


def test_candidates_are_executed_with_consent(
    folder: Path, request_of: TuneRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reached(*_: object, **__: object) -> None:
        raise DeviceError("no GPU")

    monkeypatch.setattr(run_tune, "choose_device", reached)
    monkeypatch.setenv("AOTFORGE_KEY_TARGETS", "secret")
    wanted = replace(request_of, candidates=folder, device=OnDevice())
    with pytest.raises(ExecutorError, match="they are code of others") as caught:
        tune(wanted)
    assert "--unsandboxed" in caught.value.hint
    with pytest.raises(DeviceError, match="no GPU"):
        tune(replace(wanted, unsandboxed=True))
