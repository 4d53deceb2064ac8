"""The command line: help of every task without running it, errors of parsing, the list, the version."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tasks  # noqa: F401 - registers every task
from aotforge.cli import command
from aotforge.cli.command import ROOT, TASKS
from aotforge.cli.flags import REQUIRED, SHORT, Flag, Task, parse_flags
from aotforge.cli.program import GROUPS, main
from aotforge.errors import UsageError
from aotforge.formats.archive import sha256_file
from aotforge.release.model import load_release_manifest
from aotforge.release.release_json import FORMAT


def flag(parameter: str, kind: type[Any] = str, default: object = None) -> Flag:
    return Flag(parameter=parameter, kind=kind, default=default, help=f"the {parameter}")


def task(*flags: Flag, positional: Sequence[str] = ()) -> Task:
    return Task(name="sample", body=lambda: None, flags=flags, positional=tuple(positional))


def outcome(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
        raise SystemExit(0)
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


HELP = [("--help",), ("-h",), ("a", "--help"), ("--arch", "-h")]
LINES = [(name, *words) for name in sorted(TASKS) for words in HELP if name != "emulator" or len(words) == 1]
"""The emulator's subcommands have help of their own."""


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_help_after_a_task_never_runs_it(
    line: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *words = line
    task, ran = TASKS[name], []
    if name != "emulator":
        stopped = Task(
            name=name, body=lambda **_: ran.append(name), flags=task.flags, positional=task.positional
        )
        monkeypatch.setitem(TASKS, name, stopped)
    code, out, _ = outcome(capsys, name, *words)
    assert (code, ran) == (0, [])
    assert out.lower().startswith(f"usage: ./dev {name}")
    assert all(
        f"--{one.name}" in out or f"--[no-]{one.name}" in out for one in task.flags if not task.forwards
    )


def test_help_of_a_task_can_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    _, expected, _ = outcome(capsys, "build", "--help")
    for words in (("--help", "build"), ("-h", "build"), ("help", "build")):
        assert outcome(capsys, *words) == (0, expected, "")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["buidl", "--arch", "gfx908"], ["buidl is not a task", "did you mean build?", "./dev build --help"]),
        (["xyzzy"], ["xyzzy is not a task", "./dev --list"]),
        (["images"], ["tasks of images: images.cat, images.ls"]),
        (["--verison"], ["--verison", "perhaps you meant --version"]),
        (["build", "gfx908"], ["build takes no argument 'gfx908'", "./dev build --arch gfx908"]),
        (["build", "--arch", "gfx908", "verify"], ["no argument 'verify'", "./dev build --help"]),
        (["build", "--arch", "gfx908", "--jobs", "many"], ["--jobs many is not an integer", "worker processes"]),
        (["build", "--arch", "gfx908", "--jobs", "0"], ["--jobs 0", "at least 1"]),
        (["build", "--arch", "gfx908", "-j", "-3"], ["--jobs -3", "at least 1"]),
        (["build", "--arch"], ["--arch needs a value"]),
        (["build", "--arch", "--quiet"], ["--arch needs a value"]),
        (["build", "--quiet=yes"], ["--quiet takes no value"]),
        (["build", "--arch", "gfx908", "--arch", "gfx90a"], ["--arch is given twice", "joined by commas"]),
        (["build", "--profle", "quick"], ["build has no flag --profle", "perhaps you meant --profile"]),
        (["release.dropin", "--pytorch-lib", "L", "--prefix", "X"], ["release.dropin has no flag --prefix"]),
        (["compat.which", "--pytorch", "2.9"], ["compat.which needs --arch", "--pytorch PYTORCH --arch ARCH"]),
        (["release.publish", "folder"], ["release.publish needs --to", "./dev release.publish FOLDER --to TO"]),
        (["coverage"], ["coverage needs PACK", "PACK is missing: ", "./dev coverage PACK"]),
        (["release.yank", "0.11.2b-r1"], ["release.yank needs --to", "s3://BUCKET/PREFIX"]),
    ],
)  # fmt: skip
def test_errors_of_parsing_are_named(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(capsys, *words)
    assert (code, out) == (UsageError.exit_code, "")
    assert (
        (err.startswith("error: ") and "Next step: ./dev" in err)
        or "Next step: pass it once" in err
        or "omit" in err
    )
    assert all(part in err for part in parts), err
    assert "Traceback" not in err


def test_an_error_of_parsing_is_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "buidl", "--json")
    assert (code, json.loads(out)["error"]["kind"]) == (2, "usage")


def test_values_come_by_name_and_by_position() -> None:
    sample = task(
        flag("pack", default=REQUIRED), flag("arch", default=REQUIRED), flag("jobs", int), positional=["pack"]
    )
    expected = {"pack": "p", "arch": "a", "jobs": 3}
    for line in ("p --arch a -j 3", "--jobs=3 --pack p --arch=a", "p a --jobs 3"):
        assert parse_flags(sample, line.split()) == expected
    many = task(flag("break_", list), flag("verify", bool, default=True), flag("quiet", bool, default=False))
    assert parse_flags(many, ["--break", "a", "--break=b", "--no-verify", "-q"]) == {
        "break_": ["a", "b"],
        "verify": False,
        "quiet": True,
    }
    assert parse_flags(many, []) == {"break_": None, "verify": True, "quiet": False}


ARCH_TASKS = [
    "build", "plan", "verify", "compile.job job", "source.images --output o", "demo", "debug add", "cost add", "tune add", "virtual-hip",
    "compat.which --pytorch 2.9", "install --prefix p", "release.dropin --pytorch-lib l --release r",
    "release 0.11.2b", "ci.matrix", "compile", "hardware.check",
]  # fmt: skip


def test_the_list_of_tasks_with_archs_is_complete() -> None:
    assert {line.split()[0] for line in ARCH_TASKS} == {
        name for name, task in TASKS.items() if any(flag.name == "arch" for flag in task.flags)
    }


@pytest.mark.parametrize("line", ARCH_TASKS)
@pytest.mark.parametrize(
    ("arch", "code", "message"),
    [
        ("gfx900", 11, "error: no kernels for gfx900 yet\n"),
        ("MI25", 11, "error: no kernels for gfx900 (MI25) yet\n"),
        ("gfx980", 10, "error: unknown arch gfx980\n"),
        ("gfx9o8", 10, "error: unknown arch gfx9o8\nNext step: perhaps you meant gfx908\n"),
    ],
)
def test_one_mistake_has_one_wording_in_every_task(
    line: str, arch: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = outcome(capsys, *line.split(), "--arch", arch)
    assert (found, out) == (code, "")
    assert err.startswith(message)


def test_a_product_is_understood_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys, "plan", "--arch", "AMD Instinct MI100", "--profile", "smoke")
    assert (code, err) == (0, "note: AMD Instinct MI100 is gfx908\n")
    assert out == outcome(capsys, "plan", "--arch", "gfx908", "--profile", "smoke")[1]


def test_short_flags_are_few_and_mean_the_same_everywhere() -> None:
    assert SHORT == {"-j": "jobs", "-q": "quiet"}
    with pytest.raises(UsageError, match="verify has no flag -r"):
        parse_flags(TASKS["verify"], ["-r", "folder"])


def test_every_task_is_in_one_group_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(TASKS)
    _, out, _ = outcome(capsys, "--list")
    assert all(f"\n{group}\n" in f"\n{out}" for group in GROUPS)
    assert all(len(line) <= 110 for line in out.splitlines())
    assert json.loads(outcome(capsys, "--list", "--json")[1]).keys() == TASKS.keys()


def test_alone_it_shows_the_common_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys)
    named = {line.split()[1] for line in out.splitlines() if line.startswith("  ./dev")}
    assert code == 0 and named <= set(TASKS) and {"build", "demo", "compat.which", "release.dropin"} <= named
    assert "./dev TASK --help" in out and "./dev --list" in out


def test_the_version_names_release_level_and_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = load_release_manifest(ROOT / "manifests" / "release.yaml")
    found = json.loads(outcome(capsys, "--version", "--json")[1])
    assert found["release"] == f"{manifest.api_level}-r{manifest.revision}"
    assert found["api_level"] == manifest.api_level
    assert all(value in outcome(capsys, "--version")[1] for value in found.values())


def test_a_name_that_is_too_long_or_a_full_disk_is_a_named_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, text = outcome(capsys, "images.ls", "a" * 300)
    assert code == 17 and "File name too long\nLikely cause: a path on the command line" in text

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")

    monkeypatch.setattr("aotforge.cli.program._print_list", full)
    code, _, text = outcome(capsys, "--list")
    assert code == 17 and "cannot use /tmp/x: No space left on device\nLikely cause: the disk is full" in text


def test_a_value_of_a_release_is_one_line_of_differences(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("one", "two\nfile    SHA256SUMS: forged"):
        (tmp_path / name[:3]).mkdir()
        values = {"release": "1", "toolchain": {}, "packs": [], "files": [], "format": FORMAT}
        document = {"origin": {"commit": name}, **values}
        path = tmp_path / name[:3] / "release.json"
        path.write_text(json.dumps(document))
        path.with_name("SHA256SUMS").write_text(f"{sha256_file(path)}  release.json\n")
    code, out, err = outcome(capsys, "release.diff", str(tmp_path / "one"), str(tmp_path / "two"))
    assert code == 0 and out.count("\n") == 1 and "two\\nfile" in out, err


@pytest.mark.parametrize(
    ("place", "name"),
    [("TMPDIR", "a:b"), ("TMPDIR", "a;b"), ("TMPDIR", "$LIB"), ("sys.path", "a:b")],
)
def test_separators_in_the_path_of_modules_or_temporary_files_are_refused(
    place: str,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """PYTHONPATH of a child process would have the folder before the colon, and one of the current folder. The loader takes a semicolon
    for a colon, and $LIB for its value."""
    (folder := tmp_path / name).mkdir()
    if place == "TMPDIR":
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv("TMPDIR", str(folder))
    else:
        monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    code, _, text = outcome(capsys, "images.ls", "none")
    odd = re.sub(r"\w", "", name)
    assert code == 14 and f"{folder} has {odd!r} in its path\nLikely cause: PYTHONPATH" in text
    assert outcome(capsys, "images.ls", "--help")[0] == 0


def test_a_user_without_a_home() -> None:
    """`docker run -u NUMBER`: no entry in the system's list of users, and no HOME."""
    program = "import sys, pwd; pwd.getpwuid = lambda _: (_ for _ in ()).throw(KeyError()); from aotforge.cli.program import main; main(sys.argv[1:])"
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "PYTHONPATH"}}
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


def test_a_machine_without_a_folder_for_temporary_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", missing)
    assert outcome(capsys, "images.ls", "none")[0] not in (0, 14)


@pytest.mark.parametrize("task", ["virtual-hip", "demo", "cache.show", "build"])
def test_a_cache_whose_name_other_programs_interpret_is_refused(
    task: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The loader takes `a:b` in LD_LIBRARY_PATH for two folders, the second one in the current folder."""
    code, out, text = outcome(capsys, task, "--cache", str(tmp_path / "a:b"))
    assert (code, out) == (21, "") and "has ':' in its path" in text
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--progress", "fast"), "--progress fast is not valid"),
        (("--progress", "json", "--quiet"), "--progress json and --quiet exclude each other"),
    ],
    ids=["unknown", "quiet"],
)
def test_kinds_of_progress(capsys: pytest.CaptureFixture[str], words: Sequence[str], what: str) -> None:
    line = ("release.mirror", "--from", "/nowhere", "--to", "/nowhere/either", *words)
    code, out, error = outcome(capsys, *line)
    assert (code, out) == (2, "")
    assert what in error


def test_every_task_that_can_be_quiet_has_events() -> None:
    named = {name: {one.name for one in task.flags} for name, task in TASKS.items()}
    assert [name for name, flags in named.items() if "quiet" in flags and "progress" not in flags] == []


@pytest.mark.parametrize("spelling", [("--progress", "json"), ("--progress=json",)], ids=" ".join)
def test_errors_among_events_are_events(capsys: pytest.CaptureFixture[str], spelling: Sequence[str]) -> None:
    code, out, error = outcome(capsys, "release.mirror", "--json", "--form", "here", *spelling)
    event = json.loads(error)
    assert (code, event["event"]) == (2, "error")
    assert event["error"] == json.loads(out)["error"]
    _, _, plain = outcome(capsys, "release.mirror", "--form", "here")
    assert plain.startswith("error: ")


def test_a_long_result_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 2 GiB at once Linux writes 2 GiB."""
    written: list[str] = []
    monkeypatch.setattr(command, "_PIECE", 4)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=written.append, flush=lambda: None))
    command.print_result("0123456789")
    assert written == ["0123", "4567", "89", "\n"]
