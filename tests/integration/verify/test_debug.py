"""`./dev debug`: breakpoints in kernel source through a pipe, comparison with the reference, planted
faults."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from aotforge.devtools.debug_kernel import DebugReport, debug, list_cases
from aotforge.devtools.selection import find_case
from aotforge.errors import AotforgeError, UnknownNameError, UnsupportedError, VerifyError
from aotforge.verify.interpreter.number_formats import DTYPES
from aotforge.verify.invocation import Case
from tests.e2e.pages import listings
from tests.support.families import PROJECT


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("kernels", "manifests", "requirements"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def change(root: Path, file: str, old: str, new: str) -> None:
    path = root / "kernels" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def line_of(file: str, text: str) -> int:
    lines = (PROJECT / "kernels" / file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def run(root: Path = PROJECT, kernel: str = "add", **fields: object) -> DebugReport:
    given = {"keys": {}, "constants": {}, **fields}
    return debug(root, kernel, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", ["attn_fwd", "bwd_preprocess", "bwd_dk_dv", "bwd_dq"])
def test_every_attention_kernel_is_right(kernel: str) -> None:
    report = run(kernel=kernel, case="few rows", keys={"width": "32"})
    report.require_passed()
    assert report.outputs and all(0 < one.element <= 1 for one in report.outputs)
    assert not report.quit


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in {"fp16", "bf16", "fp32"}])
def test_every_element_type_is_right(root: Path, dtype: str) -> None:
    types = PROJECT / "tests" / "fixtures" / "kernels_types" / "types"
    shutil.copytree(types, root / "kernels" / "types", ignore=shutil.ignore_patterns("__pycache__"))
    report = run(root, kernel="twice", case="n=600, aligned", keys={"dtype": dtype})
    report.require_passed()
    assert {output.name for output in report.outputs} == {"out", "positive"}


@pytest.mark.parametrize(("bound", "passed"), [("0", True), ("0.5", False)])
def test_types_within_a_kernel(root: Path, bound: str, passed: bool) -> None:
    for name, text in listings("kernel-family.md").items():
        if name.startswith("kernels/codes/"):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
    change(root, "codes/codes.py", "value > 0, mask", f"value > {bound}, mask")
    report = run(root, kernel="codes", case="rows=3, columns=100, aligned")
    assert len(report.outputs) == 6
    assert len(report.failures) == (0 if passed else 1)
    assert passed or "positive is wrong in " in report.failures[0]


def test_keys_and_constants_choose_what_is_run() -> None:
    report = run(
        kernel="flash.attn_fwd",
        case="few rows, top-left",
        keys={"dtype": "bf16", "mask": "window", "width": "32"},
        constants={"BLOCK_M": "16", "BLOCK_N": "16"},
    )
    assert report.functional["dtype"] == "bf16" and report.functional["mask"] == "window"
    assert (report.constants["BLOCK_M"], report.constants["BLOCK_N"]) == (16, 16)
    assert report.lines()[-1] == "passed" and any(line.startswith("Out ") for line in report.lines())


def test_a_breakpoint_by_line_shows_tensors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = line_of("flash/forward.py", "correction = tl.exp2(row_max")
    typed(monkeypatch, "show row_max", "show nothing", "show 3 + 4", "program", "clear 1", "continue")
    report = run(
        kernel="attn_fwd",
        case="few rows",
        keys={"width": "32"},
        breaks=(f"forward.py:{line}",),
        program=(0, 1, 0),
    )
    out = capsys.readouterr().out
    assert f"forward.py({line})_attend()" in out
    assert "fp32 16\n[-inf -inf" in out
    assert "NameError" in out
    assert "(0, 1, 0)" in out
    report.require_passed()


def test_breakpoint_in_the_kernel_itself(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change(root, "add/add.py", "    right = tl.load", "    breakpoint()\n    right = tl.load")
    typed(monkeypatch, "show left", "next", "show right.shape", "continue", "continue")
    hook = sys.breakpointhook
    report = run(root, case="1000 elements, aligned", keys={"dtype": "bf16"})
    out = capsys.readouterr().out
    assert out.count("add()") == 2
    assert "fp32 2048" in out
    report.require_passed()
    assert sys.breakpointhook is hook
    assert sys.gettrace() is None or "pytest" in repr(sys.gettrace()) or "cov" in repr(sys.gettrace())


def test_leaving_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for lines in (["quit"], []):
        typed(monkeypatch, *lines)
        report = run(breaks=(f"add.py:{line_of('add/add.py', 'left = ')}",))
        assert report.quit and not report.outputs
        report.require_passed()
    report = run(case="1000 elements, aligned")  # and the next run has no breakpoints
    assert not report.quit


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("left + right)", "left - right)", "out"),
        ("tl.store(out + start + lane, ", "tl.store(x + start + lane, ", "x"),
        ("mask = lane < n - start", "mask = lane < n - start - 1", "out"),
    ],
)
def test_wrong_kernels_are_reported(root: Path, old: str, new: str, wrong: str) -> None:
    change(root, "add/add.py", old, new)
    report = run(root, case="1003 elements, unaligned")
    with pytest.raises(VerifyError, match=rf"source is wrong on .*\b{wrong}\b"):
        report.require_passed()


def test_an_access_out_of_bounds_is_reported(root: Path) -> None:
    change(root, "add/add.py", "tl.load(x + start", "tl.load(x + 100000 + start")
    with pytest.raises(AotforgeError, match="outside its buffers"):
        run(root)


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"kernel": "attn_fwt"}, UnknownNameError, "unknown kernel"),
        ({"arch": "gfx1"}, UnknownNameError, "unknown arch"),
        ({"keys": {"dtpe": "fp16"}}, UnknownNameError, "no choice dtpe"),
        ({"keys": {"dtype": "fp17"}}, UnknownNameError, "does not offer"),
        ({"case": "2048"}, UnsupportedError, "several cases"),
        ({"case": "nine"}, UnknownNameError, "unknown case"),
        ({"constants": {"BLOK": "3"}}, UnknownNameError, "no setting BLOK"),
        ({"constants": {"BLOCK": "x"}}, UnsupportedError, "is not an integer"),
        ({"breaks": ("add.py",)}, UnsupportedError, "not a valid location"),
        ({"breaks": ("sub.py:3",)}, UnknownNameError, "no file sub.py"),
        ({"breaks": ("add.py:1",)}, UnknownNameError, "no code to stop at"),
        (
            {"kernel": "attn_fwd", "keys": {"width": "33"}},
            UnknownNameError,
            "does not offer width = 33",
        ),
    ],
)
def test_mistakes_are_reported(fields: dict[str, object], kind: type[AotforgeError], message: str) -> None:
    with pytest.raises(kind, match=message):
        run(**fields)  # type: ignore[arg-type]


def test_cases_by_name() -> None:
    names = list_cases(PROJECT, "attn_fwd", {"mask": "window"})
    assert "bottom-right" in names and "ragged" not in names
    nothing: Any = lambda: None  # noqa: E731
    made = [Case(name=name, make=nothing) for name in ("one", "one more", "two")]
    assert find_case(made, "one") is made[0]
    assert find_case(made, "t") is made[2]
    assert find_case(made, None) is made[0]
