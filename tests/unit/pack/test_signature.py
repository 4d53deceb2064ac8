"""`__signature__`: bounds of every field, names of containers, and where the first fault is."""

from __future__ import annotations

from typing import Any

import pytest

from aotforge.errors import PackError
from aotforge.pack.model import SIGNATURE_FILE, ImagePack
from aotforge.pack.reader import open_files
from aotforge.pack.signature import SIZE_LIMIT, Signature, decode_signature, encode_signature
from aotforge.pack.writer import write_pack
from tests.unit.pack.samples import sample

PACK = write_pack(*sample(), release="0.0-r1")
SIGNATURE = decode_signature(PACK.files[SIGNATURE_FILE], file="it")
FIRST = "demo.first.aoti"


def encoded(**changes: Any) -> bytes:
    """With other values, which are not checked."""
    return encode_signature(SIGNATURE.model_copy(update=changes))


def container(name: str = FIRST, **changes: Any) -> dict[str, Any]:
    """Fields of a signature with one container, under this name and with these changes."""
    return {"containers": {name: SIGNATURE.containers[FIRST].model_copy(update=changes)}}


LONG = "x" * 255
RIGHT: dict[str, dict[str, Any]] = {
    "the longest names": {"pack": LONG, "profile": LONG, "release": LONG, "archs": (LONG,)},
    "the shortest names": {"pack": "a", "profile": "b", "release": "c", "archs": ("d",)},
    "one image": container(images=1) | {"images": 1},
    "65,536 images": container(images=65_536),
    "a container's shortest name": container("a"),
    "text that is not ASCII": {"compressor": "zstd \u00e9 \U0001f600"},
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_within_bounds_comes_back(what: str) -> None:
    found = decode_signature(encoded(**RIGHT[what]), file="it")
    assert found == Signature.model_construct(**{**dict(SIGNATURE), **RIGHT[what]})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name of 256 characters": ({"pack": LONG + "x"}, "it: pack: "),
    "an empty name": ({"release": ""}, "it: release: "),
    "an arch without a name": ({"archs": ("gfx908", "")}, "it: archs.1: "),
    "another format": ({"format": 2}, "it: format: "),
    "no images": ({"images": 0}, "it: images: "),
    "an empty container": (container(images=0), f"it: containers.{FIRST}.images: "),
    "65,537 images in a container": (container(images=65_537), f"it: containers.{FIRST}.images: "),
    "a short ID": (container(id="0" * 63), f"it: containers.{FIRST}.id: "),
    "a digest in capitals": ({"source": "A" * 64}, "it: source: "),
    "a path": (container("../up.aoti"), "it: '../up.aoti' is not a valid file name of a pack"),
    "a hidden file": (container(".aoti"), "it: '.aoti' is not a valid file name of a pack"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_out_of_bounds_is_refused_with_its_place(what: str) -> None:
    changes, reason = WRONG[what]
    with pytest.raises(PackError) as caught:
        decode_signature(encoded(**changes), file="it")
    assert caught.value.what.startswith(reason)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", PACK.files[SIGNATURE_FILE][:-2]])
def test_bytes_that_are_no_object_are_refused(data: bytes) -> None:
    with pytest.raises(PackError, match=r"^it: "):
        decode_signature(data, file="it")


@pytest.mark.parametrize(
    "change",
    [lambda text: text + b"\n", lambda text: text.replace(b"\n ", b"\n  "),
        lambda text: text.replace(b"amd", b"\\u0061md")],
)  # fmt: skip
def test_another_form_of_the_same_content_is_refused(change: Any) -> None:
    with pytest.raises(PackError, match="is not in canonical form"):
        decode_signature(change(PACK.files[SIGNATURE_FILE]), file="it")


def test_the_form_is_sorted_keys_with_an_indent_of_one_space() -> None:
    assert PACK.files[SIGNATURE_FILE].startswith(
        b'{\n "archs": [\n  "gfx906",\n  "gfx908"\n ],\n "complete": true,\n'
    )


def test_the_file_may_have_a_mebibyte() -> None:
    assert SIZE_LIMIT == 2**20
    for size, reason in ((2**20, ""), (2**20 + 1, "has 1048577 bytes, 1048576 are allowed")):
        pack = ImagePack(name=PACK.name, files={**PACK.files, SIGNATURE_FILE: b" " * size})
        with pytest.raises(PackError, match=reason):
            open_files(pack)
