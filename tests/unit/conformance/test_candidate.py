"""Hostile archives: nothing is written outside of the folder, every violation is reported."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.conformance.candidate import unpack
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
from aotforge.errors import CompatError
from aotforge.formats.archive import Link, Member, write_tar_gz

GOOD: dict[str, Member | Link] = {
    "aotriton/lib/libx.so.1": Member(content=b"x"),
    "aotriton/lib/libx.so": Link(target="libx.so.1"),
}


def test_our_own_archives_are_in_form(tmp_path: Path) -> None:
    digests = write_tar_gz(tmp_path / "a.tar.gz", GOOD, epoch=1)
    assert unpack(tmp_path / "a.tar.gz", tmp_path / "out") == (digests.tar, ())
    assert (tmp_path / "out" / "aotriton" / "lib" / "libx.so").read_bytes() == b"x"


def member(name: str, content: bytes = b"", **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    return info


LINK = {"type": tarfile.SYMTYPE}
HOSTILE: dict[str, tuple[list[tarfile.TarInfo], str]] = {
    "second top": ([member("aotriton/a"), member("other/b")], "2 top entries"),
    "other top": ([member("torch/a")], "1 top entries (torch)"),
    "absolute": ([member("/tmp/escaped")], "absolute path"),
    "parent": ([member("aotriton/../../escaped")], "outside its folder"),
    "link below": ([member("aotriton/l", linkname="lib/x", **LINK)], "leads to another folder"),
    "link out": ([member("aotriton/l", linkname="../../escaped", **LINK)], "outside its folder"),
    "absolute link": ([member("aotriton/l", linkname="/etc/passwd", **LINK)], "absolute path"),
    "behind a link": (
        [member("aotriton/l", linkname="lib", **LINK), member("aotriton/l/x")],
        "below an entry that is not a folder",
    ),
    "hard link": ([member("aotriton/h", type=tarfile.LNKTYPE, linkname="aotriton/x")], "a hard link"),
    "device": ([member("aotriton/d", type=tarfile.CHRTYPE)], "a character device"),
    "pipe": ([member("aotriton/p", type=tarfile.FIFOTYPE)], "a named pipe"),
    "owner": ([member("aotriton/a", uid=1000, uname="builder")], "belongs to builder"),
    "set-user-ID": ([member("aotriton/a", mode=0o4755)], "mode 4755"),
    "twice": ([member("aotriton/a"), member("aotriton/a")], "occurs twice"),
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
    assert raised.value.exit_code == 32
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
