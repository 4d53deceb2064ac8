"""Messages between a build and its workers, and what a build refuses before it connects."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from aotforge.base.object_cache import NOT_SHARED
from aotforge.compile.pool import WorkerLimits
from aotforge.errors import ToolchainError, UnknownNameError, UnsupportedError
from aotforge.pipeline.cluster import engine
from aotforge.pipeline.cluster.engine import open_cluster
from aotforge.pipeline.cluster.messages import (
    Admission,
    Identity,
    Order,
    Reference,
    Result,
    Session,
    difference,
    resource_name,
)
from aotforge.pipeline.requests import CachedRequest
from aotforge.pipeline.shared_cache import cluster_of
from aotforge.publish.cache.session import SharedCache
from aotforge.toolchain.triton import Toolchain

COMPILER = Toolchain(
    triton_version="3.9.0",
    triton_digest="a" * 64,
    llvm_revision="rev",
    environment=(("A", "1"),),
    allocator="b" * 64,
)
IDENTITY = Identity(toolchain=COMPILER, sources=(("verifier", "c" * 64), ("kernels", "d" * 64)), numpy="2.4")
SESSION = Session(
    identity=IDENTITY, limits=WorkerLimits(), verify_seconds=1.5, instructions=((64, ("s_nop", "v_add_f32")),)
)


def request_of(**values: object) -> CachedRequest:
    return CachedRequest(root=Path("/none"), cache=Path("/none/cache"), engine="dask", **values)  # type: ignore[arg-type]


def test_messages_survive_the_way() -> None:
    assert Session.decode(SESSION.encode()) == SESSION
    order = Order(
        kind="compile",
        key="k",
        label="label",
        place="/place",
        session=Reference.to(b"session"),
        body={"image": Reference.to(b"image"), "pairs": (("a", 1),)},
        replace=True,
    )
    sent = {"image": asdict(Reference.to(b"image")), "pairs": [["a", 1]]}
    assert Order.decode(order.encode()) == replace(order, body=sent)
    done = Result(state="done", worker="host:1", object=Reference.to(b"data"), seconds=1.0)
    for result in (done, Result(state="lost", worker="host:1", detail="why")):
        assert Result.decode(result.encode()) == result
    assert Admission.decode(Admission(worker="host:1", slots=3).encode()).slots == 3


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (replace(IDENTITY, toolchain=replace(COMPILER, triton_digest="e" * 64)), "triton_digest eeeeeeeeeeee, not aaaaaaaaaaaa"),
        (replace(IDENTITY, toolchain=replace(COMPILER, environment=())), 'environment [], not [["A", "1"]]'),
        (replace(IDENTITY, sources=(("verifier", "c" * 64), ("kernels", "e" * 64))), "other sources of: kernels"),
        (replace(IDENTITY, sources=(("kernels", "d" * 64),)), "other sources of: verifier"),
        (replace(IDENTITY, numpy="2.5"), "it has numpy 2.5, not 2.4"),
    ],
)  # fmt: skip
def test_a_difference_is_named(other: Identity, text: str) -> None:
    assert text in difference(IDENTITY, other)
    assert resource_name(other, "/place") != resource_name(IDENTITY, "/place")


def test_no_difference() -> None:
    assert difference(IDENTITY, replace(IDENTITY)) == ""
    assert resource_name(IDENTITY, "/other") != resource_name(IDENTITY, "/place")


def test_a_cluster_needs_a_scheduler_a_place_and_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(UnsupportedError, match="needs the address of a scheduler"),
        open_cluster(request_of(), NOT_SHARED, print),
    ):
        pass
    request = request_of(scheduler="tcp://127.0.0.1:1")
    with pytest.raises(UnsupportedError, match="needs --cache-to"), open_cluster(request, NOT_SHARED, print):
        pass
    with (
        pytest.raises(UnsupportedError, match="needs --cache-to"),
        open_cluster(request, SharedCache(print), print),
    ):
        pass
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="needs the Python package distributed") as raised:
        engine.require_dask()
    assert "requirements/dask.txt" in raised.value.hint


def test_an_unknown_engine_is_named() -> None:
    with (
        pytest.raises(UnknownNameError, match="unknown engine 'dusk'"),
        cluster_of(replace(request_of(), engine="dusk"), NOT_SHARED, print),
    ):
        pass
