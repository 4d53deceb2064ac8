"""Hostile archives: nothing is written outside of the folder, every violation is reported."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.conformance.candidate import _tar_violations, check_folder, open_candidate, unpack
from aotforge.conformance.findings import (
    CheckReport,
    failed,
    finding_from,
    not_run,
    passed,
    report_fields,
    report_lines,
    require_ok,
)
from aotforge.errors import CompatError, ReleaseError
from aotforge.formats.archive import Link, Member, write_tar_gz
from aotforge.formats.sums import sums_bytes
from aotforge.release.contents import PackContents, ReleaseContents
from aotforge.release.release import Release

GOOD: dict[str, Member | Link] = {
    "aotriton/lib/libaotriton_v2.so": Link(target="libaotriton_v2.so.0.11.2"),
    "aotriton/lib/libaotriton_v2.so.0.11.2": Member(content=b"x", executable=True),
}


def test_our_own_archives_are_in_form(tmp_path: Path) -> None:
    tar = write_tar_gz(tmp_path / "a.tar.gz", GOOD, epoch=1)
    assert unpack(tmp_path / "a.tar.gz", tmp_path / "out") == (tar, ())
    assert (tmp_path / "out" / "aotriton" / "lib" / "libaotriton_v2.so").read_bytes() == b"x"


def member(name: str, content: bytes = b"", **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    return info


LINK = {"type": tarfile.SYMTYPE}
HOSTILE: dict[str, tuple[list[tarfile.TarInfo], str]] = {
    "second top": ([member("aotriton/a"), member("other/b")], "other/b is outside of aotriton/"),
    "absolute": ([member("/tmp/escaped")], "absolute path"),
    "parent": ([member("aotriton/../../escaped")], "outside its folder"),
    "link below": ([member("aotriton/l", linkname="lib/x", **LINK)], "leads to another folder"),
    "link out": ([member("aotriton/l", linkname="../../escaped", **LINK)], "outside its folder"),
    "absolute link": ([member("aotriton/l", linkname="/etc/passwd", **LINK)], "absolute path"),
    "behind a link": (
        [member("aotriton/l", linkname="lib", **LINK), member("aotriton/l/x")],
        "is not a folder",
    ),
    "hard link": ([member("aotriton/h", type=tarfile.LNKTYPE, linkname="aotriton/x")], "a hard link"),
    "device": ([member("aotriton/d", type=tarfile.CHRTYPE)], "a special file"),
    "pipe": ([member("aotriton/p", type=tarfile.FIFOTYPE)], "a special file"),
    "owner": ([member("aotriton/a", uid=1000, uname="builder")], "belongs to builder"),
    "set-user-ID": ([member("aotriton/a", mode=0o4755)], "mode 4755"),
    "folder that anyone writes": ([member("aotriton/a", type=tarfile.DIRTYPE, mode=0o777)], "mode 777"),
    "twice": ([member("aotriton/a"), member("aotriton/a")], "out of order"),
    "unsorted": ([member("aotriton/b"), member("aotriton/a")], "out of order"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_archives(tmp_path: Path, what: str) -> None:
    members, violation = HOSTILE[what]
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(b""))
    path = tmp_path / "bad.tar.gz"
    path.write_bytes(gzip.compress(data.getvalue(), mtime=0))
    _, violations = unpack(path, tmp_path / "deep" / "out")
    assert any(violation in text for text in violations), violations
    outside = [
        p
        for p in tmp_path.rglob("*")
        if p.is_file() and p != path and tmp_path / "deep" / "out" not in p.parents
    ]
    assert outside == []


@pytest.mark.parametrize(
    ("damage", "violation"),
    [
        (lambda data: data[:-20], "cannot be unpacked"),
        (lambda data: b"no gzip", "cannot be unpacked"),
        (lambda data: data[:4] + b"\1\1\1\1" + data[8:], "holds a name or a time"),
        (lambda data: data[:40] + bytes([data[40] ^ 255]) + data[41:], "cannot be unpacked"),
    ],
)
def test_damaged_archives(tmp_path: Path, damage: Callable[[bytes], bytes], violation: str) -> None:
    path = tmp_path / "a.tar.gz"
    write_tar_gz(path, GOOD, epoch=1)
    path.write_bytes(damage(path.read_bytes()))
    _, violations = unpack(path, tmp_path / "out")
    assert any(violation in text for text in violations), violations


CONTENTS = ReleaseContents(
    release="0.11.2b-r1",
    verified=True,
    development=(),
    platform="linux_x86_64",
    tarballs={"a.tar": "1", "b.tar": "2"},
    packs=(PackContents(name="amd-a", profile="core", images=()),),
)


def write_release(folder: Path, contents: bytes, *files: str, listed: bool = True) -> Path:
    """A folder with a manifest, and files that are in the sums, if `listed`."""
    (folder / "MANIFEST.json").write_bytes(contents)
    for name in files:
        (folder / name).write_bytes(b"x")
    names = ["MANIFEST.json", *(files if listed else ())]
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "SHA256SUMS").write_bytes(sums_bytes(sums))
    return folder


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"packs": None}, "packs: "),
        ({"packs": [5]}, "packs.0: "),
        ({"packs": [{"name": "a", "images": 5}]}, "packs.0."),
        ({"tarballs": [1]}, "tarballs: "),
        ({"release": 5}, "release: "),
        ({"verified": 1}, "verified: "),
    ],
)
def test_values_of_another_type_in_the_manifest(
    tmp_path: Path, changes: dict[str, object], where: str
) -> None:
    data = json.dumps(json.loads(CONTENTS.encoded()) | changes).encode()
    with pytest.raises(ReleaseError, match=f"MANIFEST.json is not of this format: {where}"):
        open_candidate(write_release(tmp_path, data), tmp_path / "work")


def test_a_manifest_that_is_not_json(tmp_path: Path) -> None:
    for data in (b"[" * 100_000, b"\xff", b"[]", b""):
        with pytest.raises(ReleaseError, match=r"MANIFEST\.json is not of this format"):
            open_candidate(write_release(tmp_path, data), tmp_path / "work")


@pytest.mark.parametrize(
    "name", ["aotforge_attention-99.0.tar.gz", "x.zip", "index.html", ".x.html", "numpy-9.0-py3-none-any.whl"]
)
@pytest.mark.parametrize("listed", [True, False])
def test_files_that_no_release_has_are_named(tmp_path: Path, name: str, listed: bool) -> None:
    """Of `--find-links FOLDER` pip takes source archives, whose code it executes, and the links of pages."""
    write_release(tmp_path, CONTENTS.encoded(), name, listed=listed)
    found = next(check_folder(open_candidate(tmp_path, tmp_path.parent / f"{tmp_path.name}-work"), ()))
    expected = "has not the name of a release's file" if listed else "not in both"
    assert found.status == "failed" and name in found.evidence and expected in found.evidence


def test_what_the_manifest_lists_is_there(tmp_path: Path) -> None:
    release = Release.open(write_release(tmp_path, CONTENTS.encoded()))
    (tmp_path / "SHA256SUMS.uncompressed").write_bytes(
        sums_bytes({"a.tar": "1" * 64, "MANIFEST.json": release.sums["MANIFEST.json"]})
    )
    found = _tar_violations(release, {"a.tar": "1"})
    assert found == ["b.tar.gz is missing", "SHA256SUMS.uncompressed lists other archives"]
    assert (
        _tar_violations(release, {"a.tar": "3"})[0] == "a.tar.gz holds another tar than MANIFEST.json lists"
    )
    _, missing, *_ = check_folder(open_candidate(tmp_path, tmp_path / "work"), ())
    assert "the image pack amd-a is missing" in missing.evidence


def test_a_report_collects_everything_before_it_fails() -> None:
    findings = (
        passed("elf", "RELRO"),
        failed("calls", "compiles", "no member", row="upstream 2.9"),
        finding_from("names", "links", ["a is missing", "b is missing"]),
        not_run("calls", "with gcc 9", "not installed"),
    )
    report = CheckReport(release="0.11.2b-r1", folder="/r", findings=findings, seconds=1.0)
    assert not report.ok
    with pytest.raises(CompatError) as raised:
        require_ok(report)
    assert raised.value.exit_code == 1
    assert "calls: upstream 2.9: compiles: no member" in str(raised.value)
    assert "a is missing; b is missing" in str(raised.value) and "2 of 4" in str(raised.value)
    fields = report_fields(report)
    assert fields["ok"] is False and "error" in fields
    lines = report_lines(report)
    assert lines[-1].startswith("0.11.2b-r1: 1 passed, 2 failed, 1 not run")
    assert lines[3].startswith("not run")
    good = CheckReport(release="r", folder="/r", findings=(passed("a", "b"), not_run("c", "d")), seconds=0)
    require_ok(good)
    assert "error" not in report_fields(good)
