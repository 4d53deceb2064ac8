"""Job lines of AOTriton's generator: recorded ones of three layouts, and what is refused."""

from pathlib import Path

import pytest

from aotforge.errors import UnsupportedError
from aotforge.plan.closure import SourceTree
from aotforge.upstream.jobs import parse_job_lines, read_functionals, stage_sources
from tests.unit.cli.test_program import outcome

FIXTURE = Path(__file__).parents[2] / "fixtures" / "aotriton"
LINES = FIXTURE / "lines"


@pytest.mark.parametrize("layout", ["0.11.2b", "0.13b", "main"])
def test_lines_of_three_layouts(layout: str) -> None:
    jobs = parse_job_lines((LINES / f"{layout}.txt").read_text())
    assert [job.kernel for job in jobs] == ["attn_fwd", "bwd_kernel_dq", "bwd_preprocess"]
    for job in jobs:
        assert job.arch == "gfx90a" and job.types[0] == "*fp16:16"
        assert dict(job.options).keys() == {"num_warps", "num_stages", "waves_per_eu"}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (";gfx90a;", ";8;gfx90a;", "11 fields instead of 10"),
        ("*fp16:16", "*fp8e5", "type '*fp8e5'"),
        ("*fp16:16", "*fp16:4", "type '*fp16:4'"),
        (", True", ", 0.5", "type '0.5'"),
        (";bwd_preprocess;4;", ";bwd_preprocess;four;", "'four'"),
        (";bwd_preprocess;4;", ";bwd-preprocess;4;", "'bwd-preprocess'"),
    ],
)
def test_unknown_lines_are_refused_by_name(old: str, new: str, named: str) -> None:
    line = ";".join(
        (*["default", "/python", "/build/a.hsaco", "/source/flash.py", "bwd_preprocess"], "4;1;2;gfx90a")
    )
    line += ";*fp16:16, u64:8, 64, True"
    parse_job_lines(line)
    with pytest.raises(UnsupportedError) as raised:
        parse_job_lines(line.replace(old, new))
    assert named in raised.value.what and "line 1" in raised.value.what


def test_files_outside_of_the_build_folder_are_refused(tmp_path: Path) -> None:
    names = tmp_path / "aotriton.images" / "amd-gfx90a" / "flash" / "attn_fwd.nsv"
    names.parent.mkdir(parents=True)
    for file in (tmp_path / "a.aks2", tmp_path / ".." / "a.aks2"):
        names.write_text(f"{file}\0name\0\n")
        (tmp_path / "a.nsv").write_text("/etc/image.hsaco\0entry\0\n")
        file.with_suffix(".nsv").write_text("/etc/image.hsaco\0entry\0\n")
        (tmp_path / "Bare.flatzip").write_text(f"amd-gfx90a;flash;attn_fwd;{file}\n")
        with pytest.raises(UnsupportedError, match="outside of the build folder"):
            read_functionals(tmp_path)


def test_invalid_flags_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("upstream.images", "checkout", "--arch", "gfx90a", "--output", "packs")
    code, _, err = outcome(capsys, *given, "--head-dims", "64,wide")
    assert code == 2 and "--head-dims 64,wide is not a list of numbers" in err
    code, _, err = outcome(capsys, *given, "--only", "(")
    assert code == 2 and "--only ( is not a regular expression" in err


def test_siblings_are_imported_relatively(tmp_path: Path) -> None:
    tree = stage_sources(FIXTURE / "modules" / "flash" / "kernel", tmp_path)
    assert "from .sequences import kept, sequence_of" in (tmp_path / "aotriton" / "forward.py").read_text()
    assert tree.closure("aotriton/forward.py") == (
        "aotriton/__init__.py",
        "aotriton/forward.py",
        "aotriton/sequences.py",
    )
    assert isinstance(tree, SourceTree)
