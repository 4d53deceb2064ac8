"""The command line: help of every task without running it, errors of parsing, the list, the version."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tasks
from aotforge.cli.flags import SHORT, TASKS
from aotforge.cli.program import main
from aotforge.cli.settings import ROOT
from aotforge.errors import UsageError
from aotforge.release.model import load_release_manifest

MOST_TASKS, MOST_FLAGS_OF_BUILD = 40, 14


def outcome(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(tasks.namespace, words)
        raise SystemExit(0)
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


@pytest.mark.parametrize("name", sorted(TASKS))
def test_help_after_a_task_never_runs_it(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TASKS[name], "body", lambda **_: pytest.fail(f"{name} ran"))
    expected = outcome(capsys, "--help", name)
    assert expected[0] == 0 and expected[1].startswith(f"Usage: ./dev [--core-opts] {name}")
    for words in (["--help"], ["-h"], ["a", "--help"], ["--arch", "-h"]):
        assert outcome(capsys, name, *words) == expected
    names = [one.names[0] for one in TASKS[name].get_arguments()]
    assert all(f"--{one}" in expected[1] or f"--[no-]{one}" in expected[1] for one in names)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["buidl", "--arch", "gfx908"], ["buidl is not a task", "did you mean build?", "./dev --list"]),
        (["xyzzy"], ["xyzzy is not a task", "./dev --list"]),
        (["--verison"], ["--verison is not a flag", "did you mean --version?"]),
        (["verify", "gfx908"], ["verify takes no argument 'gfx908'", "./dev verify --arch ARCH"]),
        (["build", "--jobs", "many"], ["--jobs many is not an integer", "worker processes"]),
        (["build", "--arch", "gfx908", "-j", "-3"], ["--jobs -3", "at least 1"]),
        (["build", "--arch"], ["--arch needs a value"]),
        (["build", "--arch", "--quiet"], ["--arch needs a value"]),
        (["verify", "--arch", "--wrong"], ["--arch needs a value, not --wrong"]),
        (["verify", "--quiet=yes"], ["verify takes no argument 'yes'"]),
        (["build", "--arch", "gfx908", "--arch", "gfx90a"], ["no argument 'gfx90a'", "given once"]),
        (["build", "--profle", "quick"], ["build has no flag --profle", "did you mean --profile?"]),
        (["build", "--progress", "fast"], ["--progress fast is not valid", "auto, json"]),
        (["dropin", "--prefix", "X"], ["dropin has no flag --prefix"]),
        (["coverage"], ["coverage needs --pack", "./dev coverage --help"]),
        (["coverage", "--cals", "x"], ["coverage has no flag --cals", "did you mean --calls?"]),
        (["release.yank", "0.11.2b-r1"], ["release.yank needs --to"]),
        (["release.publish", "--to", "x"], ["--folder, --from and --renew is needed"]),
    ],
)  # fmt: skip
def test_errors_of_parsing_are_named(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(capsys, *words)
    assert (code, out) == (UsageError.exit_code, "")
    assert err.startswith("error: ") and all(part in err for part in parts), err
    assert "Next step: " in err and "Traceback" not in err


def test_an_error_of_parsing_is_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "buidl", "--json")
    assert (code, json.loads(out)["error"]["kind"]) == (2, "usage")


ARCH_TASKS = {
    "build": [], "plan": [], "verify": [], "compile": [], "demo": [],
    "debug": ["add"], "cost": ["add"], "tune": ["add"], "install": ["--prefix", "p"],
    "compat": ["--pytorch", "2.9"], "dropin": ["--pytorch-lib", "l", "--release", "r"],
    "release": ["0.11.2b"],
    "hardware.check": [],
}  # fmt: skip


@pytest.mark.parametrize("name", ARCH_TASKS)
@pytest.mark.parametrize(
    ("arch", "message"),
    [
        ("gfx900", "error: no kernels for gfx900 yet\n"),
        ("MI25", "error: no kernels for gfx900 (MI25) yet\n"),
        ("gfx9o8", "error: unknown arch gfx9o8\nNext step: perhaps you meant gfx908\n"),
    ],
)
def test_one_mistake_has_one_wording_in_every_task(
    name: str, arch: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(capsys, name, *ARCH_TASKS[name], "--arch", arch)
    assert (code, out) == (2, "") and err.startswith(message)


def test_a_product_is_understood_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys, "plan", "--arch", "AMD Instinct MI100", "--profile", "smoke")
    assert (code, err) == (0, "note: AMD Instinct MI100 is gfx908\n")
    assert out == outcome(capsys, "plan", "--arch", "gfx908", "--profile", "smoke")[1]


def test_tasks_and_flags_are_few() -> None:
    assert SHORT == {"jobs": "j", "quiet": "q"}
    assert len(TASKS) <= MOST_TASKS
    assert len(TASKS["build"].get_arguments()) <= MOST_FLAGS_OF_BUILD


def test_the_list_has_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = outcome(capsys, "--list")
    listed = {name.strip("()") for line in out.splitlines() for name in line.split()[:2]}
    assert listed >= TASKS.keys()


def test_alone_it_shows_the_common_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys)
    named = {line.split()[1] for line in out.splitlines() if line.startswith("  ./dev")}
    assert code == 0 and {"build", "demo", "compat", "dropin"} <= named <= TASKS.keys()
    assert "./dev TASK --help" in out and "./dev --list" in out


def test_the_version_names_release_level_and_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = load_release_manifest(ROOT / "manifests" / "release.yaml")
    level = manifest.api_level
    _, out, _ = outcome(capsys, "--version")
    assert out.startswith(f"aotforge {level}-r{manifest.revision} (API level {level}, Triton 3.")


def test_completion_is_of_invoke(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "--complete" in outcome(capsys, "--print-completion-script", shell)[1]
    _, out, _ = outcome(capsys, "--complete", "--", "dev build --ca")
    assert "--cache" in out.split()


def test_a_name_that_is_too_long_or_a_full_disk_is_a_named_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, text = outcome(capsys, "images", "a" * 300)
    assert code == 3 and "File name too long\nLikely cause: a path on the command line" in text

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")

    monkeypatch.setattr(TASKS["lint"], "body", full)
    code, _, text = outcome(capsys, "lint")
    assert code == 3 and "cannot use /tmp/x: No space left on device\nLikely cause: the disk is full" in text


def test_a_user_without_a_home() -> None:
    """`docker run -u NUMBER`: no entry in the system's list of users, and no HOME."""
    program = (
        "import sys, pwd; pwd.getpwuid = lambda _: (_ for _ in ()).throw(KeyError())\n"
        "import tasks; tasks.main(tasks.namespace, sys.argv[1:])"
    )
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "PYTHONPATH"}}
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


@pytest.mark.parametrize("task", ["demo", "cache", "verify"])
def test_a_cache_whose_name_other_programs_interpret_is_refused(
    task: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The loader takes `a:b` in LD_LIBRARY_PATH for two folders, the second one in the current folder."""
    code, out, text = outcome(capsys, task, "--cache", str(tmp_path / "a:b"))
    assert (code, out) == (3, "") and "has ':' in its path" in text
    assert not [*tmp_path.iterdir()]


def test_events_and_quiet_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = outcome(
        capsys, "release.publish", "--renew", "--to", "/x", "--progress", "json", "--quiet"
    )
    assert (code, out) == (2, "") and "--progress json and --quiet exclude each other" in error


@pytest.mark.parametrize("spelling", [("--progress", "json"), ("--progress=json",)], ids=" ".join)
def test_errors_among_events_are_events(capsys: pytest.CaptureFixture[str], spelling: Sequence[str]) -> None:
    code, out, error = outcome(capsys, "release.publish", "--json", "--form", "here", *spelling)
    event = json.loads(error)
    assert (code, event["event"]) == (2, "error")
    assert event["error"] == json.loads(out)["error"]
    _, _, plain = outcome(capsys, "release.publish", "--form", "here")
    assert plain.startswith("error: ")
