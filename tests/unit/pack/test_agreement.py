"""A pack's files agree: signature, dispatch data and containers; each disagreement alone is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from aotforge.errors import PackError
from aotforge.pack.dispatch import decode_dispatch, encode_dispatch
from aotforge.pack.model import DISPATCH_FILE, SIGNATURE_FILE, DispatchTable, ImagePack
from aotforge.pack.reader import open_files
from aotforge.pack.signature import ContainerRecord, Signature, decode_signature, encode_signature
from aotforge.pack.writer import write_pack
from tests.unit.pack.samples import sample

PACK = write_pack(*sample(), release="0.0-r1")
COPY, FIRST = "demo.copy.aoti", "demo.first.aoti"


def signed(change: Callable[[Signature], dict[str, Any]], files: dict[str, bytes] | None = None) -> ImagePack:
    """The pack with other fields in its signature, and other files."""
    signature = decode_signature(PACK.files[SIGNATURE_FILE], file="it")
    new = encode_signature(signature.model_copy(update=change(signature)))
    return ImagePack(name=PACK.name, files={**PACK.files, **(files or {}), SIGNATURE_FILE: new})


def dispatched(change: Callable[[DispatchTable], DispatchTable]) -> ImagePack:
    """The pack with other dispatch data, which its signature names."""
    table = decode_dispatch(PACK.files[DISPATCH_FILE], file="it")
    data = encode_dispatch(change(table), file="it")
    return signed(lambda _: {"dispatch": hashlib.sha256(data).hexdigest()}, {DISPATCH_FILE: data})


def record(**changes: Any) -> Callable[[Signature], dict[str, Any]]:
    """Another record of one container."""

    def change(signature: Signature) -> dict[str, Any]:
        old = signature.containers[FIRST]
        return {"containers": {**signature.containers, FIRST: old.model_copy(update=changes)}}

    return change


def image_number(number: Callable[[int], int]) -> Callable[[DispatchTable], DispatchTable]:
    """Another image in the choices of the copy kernel."""

    def change(table: DispatchTable) -> DispatchTable:
        kernels = tuple(
            replace(
                kernel,
                functionals=tuple(
                    replace(f, choices=tuple(replace(c, image=number(c.image)) for c in f.choices))
                    for f in kernel.functionals
                ),
            )
            if kernel.container == COPY
            else kernel
            for kernel in table.kernels
        )
        return replace(table, kernels=kernels)

    return change


def without_copy() -> ImagePack:
    """A signature that lacks a container of the dispatch data, and so does the folder."""

    def change(signature: Signature) -> dict[str, Any]:
        lost = signature.containers[COPY]
        containers: dict[str, ContainerRecord] = {k: v for k, v in signature.containers.items() if k != COPY}
        return {"containers": containers, "images": signature.images - lost.images}

    pack = signed(change)
    return replace(pack, files={name: data for name, data in pack.files.items() if name != COPY})


DISAGREEMENTS: dict[str, tuple[Callable[[], ImagePack], str]] = {
    "other archs": (lambda: signed(lambda s: {"archs": s.archs[:1]}),
        "names other archs or operators than the dispatch data"),
    "other operators": (
        lambda: signed(lambda s: {"operators": dict.fromkeys(s.operators, "0" * 64)}),
        "names other archs or operators than the dispatch data",
    ),
    "a container less": (without_copy, "names other containers than __signature__"),
    "another container": (
        lambda: signed(lambda _: {}, {FIRST: PACK.files[COPY]}),
            "is not the container that the dispatch data names",
    ),
    "another container ID": (lambda: signed(record(id="0" * 64)),
        f"names another {FIRST} than the dispatch data"),
    "another count": (lambda: signed(record(images=7)), f"counts the images of {FIRST} differently"),
    "another sum": (lambda: signed(lambda s: {"images": s.images + 1}), "does not add up its images"),
    "other dispatch data": (
        lambda: signed(lambda _: {"dispatch": "0" * 64}), "is not the dispatch data that __signature__ names",
    ),
    "an image beyond the last": (lambda: dispatched(image_number(lambda n: n + 1)),
        "is called for and missing"),
    "an image without a choice": (lambda: dispatched(image_number(lambda n: 0)),
        "there and never called for"),
    "a file more": (
        lambda: signed(lambda _: {}, {"README": b""}), "is not part of the pack by its __signature__",
    ),
}  # fmt: skip


def test_the_pack_itself_is_read() -> None:
    open_files(signed(lambda _: {}))
    open_files(dispatched(lambda table: table))


@pytest.mark.parametrize("why", DISAGREEMENTS)
def test_a_disagreement_is_refused(why: str) -> None:
    make, reason = DISAGREEMENTS[why]
    with pytest.raises(PackError) as caught:
        open_files(make())
    assert reason in caught.value.what
