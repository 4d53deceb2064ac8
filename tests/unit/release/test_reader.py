"""Release folders as they are read back: content by pack, and the named refusal of each fault."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aotforge.compile.model import Resources
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.windows import check_windows
from aotforge.errors import ReleaseError
from aotforge.formats.sums import SUMS, sums_bytes
from aotforge.formats.zip_archive import write_zip
from aotforge.release.contents import PackContents, ReleaseContents, ReleasedImage
from aotforge.release.release import Release, ReleasedPack
from tests.support.hostile import member, tar_bytes, zipped
from tests.support.publishing import ROOT

ROW = {field.name: number for number, field in enumerate(fields(Resources), 3)}
RESOURCES = {
    "images": [
        {"digest": "aa", **ROW},
        {"digest": "bb", **ROW, "threads": 64},
    ]
}


def image(digest: str, *labels: str) -> ReleasedImage:
    return ReleasedImage(labels=labels, jobs=labels, digest=digest, verdict=None)


def pack(name: str, *images: ReleasedImage) -> PackContents:
    return PackContents(name=name, profile="core", images=images)


CONTENTS = ReleaseContents(
    release="0.11.2b-r1",
    verified=False,
    development=(),
    platform="linux_x86_64",
    tarballs={},
    packs=(pack("amd-b", image("aa", "first", "second"), image("aa", "third"), image("bb")), pack("amd-c")),
)


def archive(files: Mapping[str, bytes]) -> bytes:
    return zipped(tar_bytes(*((member(f"aotriton/{name}", len(data)), data) for name, data in files.items())))


def names(pack: str) -> tuple[str, str]:
    return f"aotriton-0.11.2b-r1-images-{pack}.tar.gz", f"aotriton-0.11.2b-r1-asm-{pack}.tar.gz"


def content(pack: str, resources: Any = None) -> dict[str, bytes]:
    """Both archives of a pack."""
    images, texts = names(pack)
    folder = f"share/aotriton/asm/{pack}/"
    document = json.dumps(RESOURCES if resources is None else resources).encode()
    below = f"lib/aotriton.images/{pack}/"
    return {
        images: archive(
            {
                f"{below}dispatch.aotd": b"data",
                f"{below}f.k.aoti": b"images",
                "share/licenses/aotriton/LICENSE": b"text",
            }
        ),
        texts: archive({f"{folder}aa.s": b"\xffone\n", f"{folder}resources.json": document}),
    }


def release(folder: Path, files: Mapping[str, bytes], sums: Mapping[str, bytes] | None = None) -> Path:
    """A folder of `files` whose sums are of `sums`, else of `files`."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    listed = files if sums is None else sums
    (folder / SUMS).write_bytes(sums_bytes({k: hashlib.sha256(v).hexdigest() for k, v in listed.items()}))
    return folder


def complete(**changes: bytes) -> dict[str, bytes]:
    contents = CONTENTS.encoded()
    return {**content("amd-b"), **content("amd-a"), "MANIFEST.json": contents, "release.txt": b"", **changes}


def test_every_pack_is_read_by_name(tmp_path: Path) -> None:
    first, second = Release.open(release(tmp_path, complete())).packs()
    assert (first.pack.name, second.pack.name) == ("amd-a", "amd-b")
    assert second == ReleasedPack(
        pack=second.pack,
        assembly={"aa": "\N{REPLACEMENT CHARACTER}one\n"},
        labels={"aa": ("first", "second", "third"), "bb": ()},
        resources={"aa": Resources(**ROW), "bb": Resources(**{**ROW, "threads": 64})},
    )
    assert second.pack.files == {"dispatch.aotd": b"data", "f.k.aoti": b"images"}
    assert first.labels == {}  # the manifest does not list it


WINDOWS = "aotriton-0.11.2b-r1-win_amd64-shared-amd-a+amd-b.zip"
PACKED = {
    f"aotriton/lib/aotriton.images/{pack}/{name}": data
    for pack in ("amd-a", "amd-b")
    for name, data in {"dispatch.aotd": b"data", "f.k.aoti": b"images"}.items()
}


def findings_about_names(folder: Path, file: str) -> str:
    """What `check` finds about the name of a Windows archive of this release."""
    candidate = SimpleNamespace(
        release=SimpleNamespace(name="0.11.2b-r1"), windows=(folder / file,), packs=dict
    )
    checked = cast(CheckContext, SimpleNamespace(candidate=candidate, checkout=ROOT))
    return "".join(
        one.evidence
        for one in check_windows(checked)
        if "states its release" in one.what and one.status == "failed"
    )


@pytest.mark.parametrize(
    ("file", "left_out", "added", "missing"),
    [
        (WINDOWS, "amd-b/f.k.aoti", "", ""),  # the files of a pack that is there are compared one by one
        (WINDOWS, "amd-b/", "", "amd-b is not in it"),
        (WINDOWS, "amd-b/", "lib/aotriton.images/amd-b", "amd-b is not in it"),
        (WINDOWS.replace("amd-b", "amd-c"), "amd-b/", "", "amd-c is not in it"),
        (WINDOWS.replace("-amd-a+amd-b", ""), "amd-", "", ""),
        (WINDOWS.replace("0.11.2b-r1", "9.9.9b-r7"), "-", "", "is not of 0.11.2b-r1"),
    ],
)
def test_a_windows_archive_has_the_packs_of_its_name(
    tmp_path: Path, file: str, left_out: str, added: str, missing: str
) -> None:
    held = {name: data for name, data in PACKED.items() if f"/{left_out}" not in name}
    write_zip(tmp_path / file, {f"aotriton/{added or 'lib/dl.dll'}": b"", **held}, epoch=0)
    found = findings_about_names(tmp_path, file)
    assert missing in found and bool(missing) == bool(found)


def without(name: str) -> Callable[[Path], Path]:
    """A file that the sums list is missing."""

    def make(folder: Path) -> Path:
        files = complete()
        return release(folder, {k: v for k, v in files.items() if k != name}, files)

    return make


def altered(name: str) -> Callable[[Path], Path]:
    """A file is not the one that the sums list."""

    def make(folder: Path) -> Path:
        files = complete()
        other = content("amd-b", {"images": []}) | {"MANIFEST.json": b'{"packs": []}'}
        if files[name] == other[name]:
            other[name] = archive({"share/licenses/aotriton/LICENSE": b"text"})
        return release(folder, {**files, name: other[name]}, files)

    return make


def with_files(**changes: bytes) -> Callable[[Path], Path]:
    return lambda folder: release(folder, complete(**changes))


def lacking(name: str) -> Callable[[Path], Path]:
    """Neither a file nor a sum of it."""
    return lambda folder: release(folder, {k: v for k, v in complete().items() if k != name})


def of_resources(value: Any) -> Callable[[Path], Path]:
    return lambda folder: release(folder, complete(**content("amd-b", value)))


IMAGES, TEXTS = names("amd-b")
FAULTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no pack": (lambda folder: release(folder, {"MANIFEST.json": CONTENTS.encoded()}), "has no image packs"),
    "no images": (lacking(IMAGES), "has no images archive for amd-b"),
    "no texts": (lacking(TEXTS), "has no asm archive for amd-b"),
    "lost images": (without(IMAGES), f"{IMAGES}: No such file or directory"),
    "lost texts": (without(TEXTS), f"{TEXTS}: No such file or directory"),
    "lost manifest": (without("MANIFEST.json"), "MANIFEST.json: No such file or directory"),
    "other images": (altered(IMAGES), f"{IMAGES} is not the file that SHA256SUMS names"),
    "other texts": (altered(TEXTS), f"{TEXTS} is not the file that SHA256SUMS names"),
    "another manifest": (altered("MANIFEST.json"), "MANIFEST.json is not the file that SHA256SUMS names"),
    "a manifest without a sum": (
        lambda folder: release(folder, complete(), content("amd-b")),
        "MANIFEST.json is not the file that SHA256SUMS names",
    ),
    **{
        f"a manifest of {text!r}": (
            with_files(**{"MANIFEST.json": text}),
            "MANIFEST.json is not of this format",
        )
        for text in (b"no JSON", b"[]", b"{}")
    },
    "another name": (
        with_files(**{"MANIFEST.json": CONTENTS.encoded().replace(b"0.11.2b-r1", b"../x")}),
        "not of this format: release",
    ),
    "a label with a terminal escape": (
        with_files(**{"MANIFEST.json": CONTENTS.encoded().replace(b"third", b"\\u001b[2K")}),
        "packs.0.images.1.labels.0: Value error, '\\x1b[2K' has control characters or line ends",
    ),
    "damaged images": (
        with_files(**{IMAGES: b"no archive"}),
        f"{IMAGES}: it is truncated or damaged (Not a gzipped file",
    ),
    "no resources": (
        with_files(**{TEXTS: archive({"share/licenses/aotriton/x": b""})}),
        "resources.json is missing or not of this format",
    ),
    **{
        f"resources without {what}": (of_resources(value), "resources.json is missing or not of this format")
        for what, value in {
            "images": [],
            "a digest": {"images": [{**ROW}]},
            "no numbers": {"images": [{"digest": "aa"}]},
            "numbers": {"images": [{"digest": "aa", **ROW, "threads": "many"}]},
        }.items()
    },
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_refused_by_name(what: str, tmp_path: Path) -> None:
    make, reason = FAULTS[what]
    with pytest.raises(ReleaseError) as caught:
        Release.open(make(tmp_path)).packs()
    assert reason in caught.value.what
    assert caught.value.hint == "fetch the release again, or build it again"
