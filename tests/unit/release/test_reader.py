"""Release folders as they are read back: content by pack, and the named refusal of each fault."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aotforge.compile.model import Resources
from aotforge.conformance.candidate import unpack as unpack_candidate
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.windows import check_windows
from aotforge.deliver.extract import unpack
from aotforge.errors import ReleaseError
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import SUMS, sums_bytes
from aotforge.formats.zip_archive import write_zip
from aotforge.pipeline.build_windows import read_packs
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
        release="0.11.2b-r1",
        pack=second.pack,
        assembly={"aa": "\N{REPLACEMENT CHARACTER}one\n"},
        labels={"aa": ("first", "second", "third"), "bb": ()},
        resources={"aa": Resources(**ROW), "bb": Resources(**{**ROW, "threads": 64})},
        listed=frozenset({"aa", "bb"}),
        sums=hashlib.sha256((tmp_path / SUMS).read_bytes()).hexdigest(),
    )
    assert second.pack.files == {"dispatch.aotd": b"data", "f.k.aoti": b"images"}
    assert first.listed == frozenset()  # the manifest does not list it


IMAGES_ARCHIVE, TEXTS_ARCHIVE = names("amd-b")
RUNTIME = "aotriton-0.11.2b-r1-linux_x86_64-rocm7.0-shared.tar.gz"


@pytest.mark.parametrize(
    ("name", "member_name"),
    [
        (IMAGES_ARCHIVE, "lib/aotriton.images/amd-gfx90a/dispatch.aotd"),
        (IMAGES_ARCHIVE, "lib/aotriton.images/amd-b/more/dispatch.aotd"),
        (IMAGES_ARCHIVE, "lib/libamdhip64.so.7"),
        (IMAGES_ARCHIVE, "share/x/dispatch.aotd"),
        (TEXTS_ARCHIVE, "lib/aotriton.images/amd-b/dispatch.aotd"),
        (TEXTS_ARCHIVE, "share/aotriton/asm/amd-a/aa.s"),
        (RUNTIME, "lib/aotriton.images/amd-gfx90a/dispatch.aotd"),
        (RUNTIME, "lib/libamdhip64.so.7"),
        (RUNTIME, "bin/ls"),
    ],
)
def test_what_an_archive_of_its_kind_does_not_have_is_refused(
    tmp_path: Path, name: str, member_name: str
) -> None:
    """It would be installed, and a pack among it served: nothing verifies or lists it."""
    data = archive({member_name: b"data"})
    (tmp_path / name).write_bytes(data)
    expected = f"'aotriton/{member_name}' is not of an archive of kind"
    with pytest.raises(ReleaseError, match=expected):
        unpack([tmp_path / name], tmp_path / "unpacked")
    parsed = parse_artifact_name(name)
    assert parsed
    _, violations = unpack_candidate(tmp_path / name, parsed, tmp_path / "candidate")
    assert any(expected in violation for violation in violations)
    with pytest.raises(ReleaseError, match=expected):
        Release.open(release(tmp_path, complete(**{name: data}))).read(parsed)
    with pytest.raises(ReleaseError, match=expected):
        read_packs(tmp_path / name)


WINDOWS = "aotriton-0.11.2b-r1-win_amd64-shared-amd-a+amd-b.zip"
PACKED = {
    f"aotriton/lib/aotriton.images/{pack}/{name}": data
    for pack in ("amd-a", "amd-b")
    for name, data in {"dispatch.aotd": b"data", "f.k.aoti": b"images"}.items()
}


@pytest.mark.parametrize(
    ("member_name", "holds"),
    [
        ("aotriton/lib/aotriton.images/amd-a/dispatch.aotd", True),
        ("aotriton/lib/aotriton.images/amd-b/f.k.aoti", True),
        ("aotriton/lib/dl.dll", True),
        ("aotriton/lib/libaotriton_v2.dll.a", True),
        ("aotriton/include/dlfcn.h", True),
        ("aotriton/share/doc/aotriton/windows.txt", True),
        ("aotriton/lib/aotriton.images/amd-c/dispatch.aotd", False),
        ("aotriton/lib/aotriton.images/amd-a/more/dispatch.aotd", False),
        ("aotriton/lib/amdhip64_7.dll", False),
        ("aotriton/lib/aotriton_v2.so", False),
        ("lib/dl.dll", False),
    ],
)
def test_members_of_a_windows_archive(tmp_path: Path, member_name: str, holds: bool) -> None:
    write_zip(tmp_path / WINDOWS, {member_name: b"data", **PACKED}, epoch=0)
    folder = release(tmp_path, complete(**{WINDOWS: (tmp_path / WINDOWS).read_bytes()}))
    with (
        nullcontext() if holds else pytest.raises(ReleaseError, match=f"{member_name!r} is not of an archive")
    ):
        opened = Release.open(folder)
        (archive,) = opened.of("windows")
        assert len(opened.files(archive)) in {4, 5}
    checked = SimpleNamespace(
        candidate=SimpleNamespace(name="0.11.2b-r1", windows=(folder / WINDOWS,), packs=dict), checkout=ROOT
    )
    evidence = "".join(
        one.evidence for one in check_windows(cast(CheckContext, checked)) if "layout" in one.what
    )
    assert (f"{member_name!r} is not of an archive" in evidence) == (not holds)


def findings_about_names(folder: Path, file: str) -> str:
    """What `check` finds about the name of a Windows archive of this release."""
    candidate = SimpleNamespace(name="0.11.2b-r1", windows=(folder / file,), packs=dict)
    checked = cast(CheckContext, SimpleNamespace(candidate=candidate, checkout=ROOT))
    return "".join(
        one.evidence
        for one in check_windows(checked)
        if "states its release" in one.what and one.status == "failed"
    )


@pytest.mark.parametrize(
    ("file", "left_out", "missing"),
    [
        (WINDOWS, "", ""),
        (WINDOWS, "amd-b/f.k.aoti", "amd-b/f.k.aoti"),
        (WINDOWS, "amd-b/", "amd-b"),
        (WINDOWS.replace("amd-b", "amd-c"), "amd-b/", "amd-c"),
        (WINDOWS.replace("-amd-a+amd-b", ""), "amd-", ""),
        (WINDOWS.replace("0.11.2b-r1", "9.9.9b-r7"), "", "is not of 0.11.2b-r1"),
    ],
)
def test_a_windows_archive_has_the_packs_of_its_name(
    tmp_path: Path, file: str, left_out: str, missing: str
) -> None:
    """`check` passed one without images that was named for a pack, and one that was named for another
    release."""
    held = {name: data for name, data in PACKED.items() if not left_out or f"/{left_out}" not in name}
    write_zip(tmp_path / file, {"aotriton/lib/dl.dll": b"data", **held}, epoch=0)
    found = findings_about_names(tmp_path, file)
    # the files of a pack that is there are compared one by one
    assert (
        found == ""
        if left_out.endswith("aoti") or not missing
        else missing.split("/", maxsplit=1)[0] in found
    )


def test_a_file_that_has_the_name_of_a_pack_is_none(tmp_path: Path) -> None:
    held = {name: data for name, data in PACKED.items() if "/amd-b/" not in name}
    write_zip(tmp_path / WINDOWS, {**held, "aotriton/lib/aotriton.images/amd-b": b""}, epoch=0)
    assert "amd-b is not in it" in findings_about_names(tmp_path, WINDOWS)


def test_a_runtime_has_its_libraries_headers_and_packages(tmp_path: Path) -> None:
    files = (
        "lib/libaotriton_v2.so.0.11.2",
        "lib/libaotriton_v2.so",
        "lib/libaotforge_ops.a",
        "include/aotriton/v2/flash.h",
        "lib/cmake/aotforge_ops/aotforge_opsConfig.cmake",
        "share/licenses/aotriton/LICENSE.zstd",
    )
    (tmp_path / RUNTIME).write_bytes(archive(dict.fromkeys(files, b"data")))
    top = unpack([tmp_path / RUNTIME], tmp_path / "unpacked")
    assert {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()} == {*files}


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
    "a manifest of text": (
        with_files(**{"MANIFEST.json": b"no JSON"}),
        "MANIFEST.json is not of this format",
    ),
    "a manifest of a list": (with_files(**{"MANIFEST.json": b"[]"}), "MANIFEST.json is not of this format"),
    "a manifest without packs": (
        with_files(**{"MANIFEST.json": b"{}"}),
        "MANIFEST.json is not of this format",
    ),
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
    "resources of a list": (of_resources([]), "resources.json is missing or not of this format"),
    "resources without a digest": (of_resources({"images": [{**ROW}]}), "resources.json is missing"),
    "resources without a number": (of_resources({"images": [{"digest": "aa"}]}), "resources.json is missing"),
    "resources that are no numbers": (
        of_resources({"images": [{"digest": "aa", **ROW, "threads": "many"}]}),
        "resources.json is missing",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_refused_by_name(what: str, tmp_path: Path) -> None:
    make, reason = FAULTS[what]
    with pytest.raises(ReleaseError) as caught:
        Release.open(make(tmp_path)).packs()
    assert reason in caught.value.what
    assert caught.value.hint == "fetch the release again, or build it again"
