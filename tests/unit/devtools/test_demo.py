"""The demo's own parts: unpacking, choosing calls, the report."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aotforge.deliver.extract import unpack
from aotforge.devtools.demo.client import ClientRunner
from aotforge.devtools.demo.demo_report import CallResult, DemoReport, OutputResult
from aotforge.devtools.demo.run_demo import problems_of, python_folders
from aotforge.errors import ExecutionError, ReleaseError, UnsupportedError, VerifyError
from aotforge.plan.planner import plan_project
from aotforge.run.release_programs import ReleasePrograms
from kernels.flash.call import Case

ROOT = Path(__file__).resolve().parents[3]


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> Callable[[tarfile.TarFile], None]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, 2 if kind == tarfile.REGTYPE else 0
    return lambda tar: tar.addfile(info, io.BytesIO(b"ab"))


def archive(path: Path, *members: Callable[[tarfile.TarFile], None]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for add in members:
            add(tar)
    return path


def test_release_trees_are_unpacked(tmp_path: Path) -> None:
    members = (
        member("aotriton/lib", tarfile.DIRTYPE),
        member("aotriton/lib/x.so.1"),
        member("aotriton/lib/x.so", tarfile.SYMTYPE, "x.so.1"),
    )
    prefix = unpack([archive(tmp_path / "t.tar.gz", *members)], tmp_path / "out")
    assert prefix == tmp_path / "out" / "aotriton"
    assert (prefix / "lib" / "x.so").read_bytes() == b"ab"


@pytest.mark.parametrize(
    "bad",
    [
        member("../x"), member("/x"), member("aotriton/../../x"), member("torch/x"),
        member("aotriton/x", tarfile.SYMTYPE, "../y"), member("aotriton/x", tarfile.SYMTYPE, "y/z"),
        member("aotriton/x", tarfile.LNKTYPE, "y"), member("aotriton/x", tarfile.FIFOTYPE),
        member("aotriton/x", tarfile.SYMTYPE, ".."), member("aotriton/x", tarfile.SYMTYPE, "."),
    ],
)  # fmt: skip
def test_anything_else_is_refused(tmp_path: Path, bad: Callable[[tarfile.TarFile], None]) -> None:
    with pytest.raises(ReleaseError):
        unpack([archive(tmp_path / "t.tar.gz", member("aotriton/a"), bad)], tmp_path / "out")
    assert not (tmp_path / "x").exists()


def test_no_file_goes_through_a_link_out_of_the_folder(tmp_path: Path) -> None:
    members = member("aotriton/a", tarfile.SYMTYPE, "b"), member("aotriton/a/escaped")
    with pytest.raises(ReleaseError, match="below an entry that is not a folder"):
        unpack([archive(tmp_path / "t.tar.gz", *members)], tmp_path / "out")
    assert not (tmp_path / "escaped").exists()


def test_truncated_archives_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "t.tar.gz", member("aotriton/a"), member("aotriton/b"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ReleaseError, match="cannot be unpacked"):
        unpack([path], tmp_path / "out")


def test_calls_are_those_that_the_profile_serves() -> None:
    found = problems_of([plan_project(ROOT, archs=["gfx908"], profile="core").kernels])
    assert [(p.dtype, p.window_right, p.head_dim) for p in found] == [
        ("fp16", None, 64), ("fp16", 0, 64), ("bf16", None, 64), ("bf16", 0, 64),
    ]  # fmt: skip
    profiles = (("gfx908", "core"), ("gfx90a", "smoke"))
    both = [plan_project(ROOT, archs=[arch], profile=p).kernels for arch, p in profiles]
    assert {(p.dtype, p.head_dim) for p in problems_of(both)} == {("fp16", 32)}
    with pytest.raises(UnsupportedError):
        problems_of([both[0], ()])


@pytest.mark.parametrize("record", [b"[" * 100_000, b"{}\n" * 400_000])
def test_a_record_that_fills_the_memory_is_refused(tmp_path: Path, record: bytes) -> None:
    """The release's library is in the process that writes it."""

    class Programs:
        def run(self, command: list[str], **_: object) -> SimpleNamespace:
            (Path(command[2]).parent / "record").write_bytes(record)
            return SimpleNamespace(status=0, stdout="forward 1\nbackward 1\n", stderr="")

    runner = ClientRunner(
        client=tmp_path / "client", folder=tmp_path, programs=cast(ReleasePrograms, Programs()), settings={}, readable=(), cache=tmp_path,
    )  # fmt: skip
    with pytest.raises(ExecutionError, match=r"a record of 1200000 bytes|nested too deeply"):
        runner.run(Case(), 0, "gfx908")


def test_one_element_beyond_its_bound_fails_the_demo() -> None:
    outputs = [
        OutputResult(name=n, largest_error=0.1, largest_value=1.0, of_bound=b)
        for n, b in (("out", 1.0), ("dq", 1.01))
    ]
    result = CallResult(
        arch="gfx908", problem=Case(), outputs=tuple(outputs), forward_seconds=1.0, backward_seconds=2.0,
        preparing_seconds=0.5, served=(("attn_fwd", "ab" * 32, 7, 0.1),),
    )  # fmt: skip
    report = DemoReport(release="r", tarballs=("a.tar.gz",), results=(result,))
    assert "AN OUTPUT IS WRONG" in report.lines()[-1]
    with pytest.raises(VerifyError, match=r"gfx908 dq \(1.01 times"):
        report.require_passed()


def test_a_home_that_python_is_installed_in_is_not_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bin", "lib", ".ssh"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    found = python_folders(ROOT)
    assert {tmp_path / "bin", tmp_path / "lib", ROOT / "kernels"} <= found
    assert not [one for one in found if (tmp_path / ".ssh").is_relative_to(one)]
