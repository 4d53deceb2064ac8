"""The script `dev`, before any of this project's Python runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.dev_home import VERSION, stamp_of
from tests.support.families import PROJECT
from tests.support.other_user import as_other_user

PYTHON = f"""#!/bin/sh
echo "$*" >>"${{AOTFORGE_HOME%/}}/../calls"
case "$*" in
*" -m venv "*) for folder; do :; done; mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python" ;;
*" -m pip "*) test ! -e "${{AOTFORGE_HOME%/}}/../no-index" ;;
*tasks.py*) echo "ran $*" ;;
*version_info*) echo {VERSION} ;;
esac
"""
"""Notes how it is called; the environment that it makes is a copy of itself; nothing else is real."""


def run_dev(home: Path | str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """`./dev` with that home, from its folder, with the machine's cmake and ninja or without."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AOTFORGE_")}
    return subprocess.run(
        [str(PROJECT / "dev"), *arguments],
        env=kept | {"AOTFORGE_HOME": str(home), "CI": "1"} | settings,
        cwd=Path(home).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip


def made_home(folder: Path, *lists: str) -> Path:
    """A home whose environment is complete and has these lists; its Python is PYTHON."""
    home = folder / "home"
    binaries = home / f"venv-{VERSION}" / "bin"
    binaries.mkdir(parents=True)
    new_python(binaries)
    (binaries.parent / ".made").write_text(f"{VERSION}\n")
    for name in lists:
        (binaries.parent / f".{name}.sha256").write_text(stamp_of(name))
    return home


def new_python(folder: Path) -> Path:
    path = folder / "python"
    path.write_text(PYTHON)
    path.chmod(0o755)
    return path


def calls(folder: Path, word: str) -> list[str]:
    """How Python was called, where the command has that word."""
    return [line for line in (folder / "calls").read_text().splitlines() if word in line.split()]


def test_the_first_run_makes_the_environment_and_later_ones_do_not_call_pip(tmp_path: Path) -> None:
    python = new_python(tmp_path)
    first = run_dev(tmp_path / "home", "plan", "--arch", "x", AOTFORGE_PYTHON=str(python))
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"ran {PROJECT / 'tasks.py'} plan --arch x\n"
    made = tmp_path / "home" / f"venv-{VERSION}"
    assert (made / ".made").read_text() == f"{VERSION}\n"
    assert (made / ".build.sha256").read_text() == stamp_of("build")
    for command in calls(tmp_path, "pip"):
        assert "--require-hashes --only-binary :all: -r " in command
    (tmp_path / "calls").unlink()
    assert run_dev(tmp_path / "home", "plan").returncode == 0
    assert not calls(tmp_path, "pip") and not calls(tmp_path, "venv")
    (made / ".made").unlink()  # as an interrupted run leaves it
    (made / "left-over").touch()
    assert run_dev(tmp_path / "home", "plan", AOTFORGE_PYTHON=str(python)).returncode == 0
    assert calls(tmp_path, "venv") and not (made / "left-over").exists()


@pytest.mark.parametrize(
    ("command", "settings", "name"),
    [
        ("plan", {}, "build"), ("lint", {}, "test"), ("release.list x", {}, "release"),
        ("cache", {}, "release"), ("python -m distributed", {}, "dask"),
        ("python -m dask scheduler", {}, "dask"), ("build --cache-to=x", {}, "release"),
        ("build", {"AOTFORGE_CACHE_FROM": "x"}, "release"),
    ],
)  # fmt: skip
def test_the_list_that_a_task_needs(
    tmp_path: Path, command: str, settings: dict[str, str], name: str
) -> None:
    home = made_home(tmp_path, "tools")
    assert run_dev(home, *command.split(), **settings).returncode == 0
    installed = [line.split(" -r ")[1].split()[0] for line in calls(tmp_path, "pip")]
    wanted = [name, *(["torch"] if name == "test" else [])]
    assert installed == [str(PROJECT / "requirements" / f"{one}.txt") for one in wanted]


def test_without_an_index_the_list_is_named_and_only_the_reference_may_be_missing(tmp_path: Path) -> None:
    home = made_home(tmp_path, "tools", "test")
    (tmp_path / "no-index").touch()
    done = run_dev(home, "build")
    assert done.returncode == 3 and "installing requirements/build.txt" in done.stderr
    assert "Next step: check the network or pip's index settings" in done.stderr and not done.stdout
    done = run_dev(home, "test")
    assert done.returncode == 0 and "its tests will be skipped" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--list",), ("--version",), ("build", "-h"), ("lint", "--help")])
def test_help_installs_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    home = tmp_path / "home"
    done = run_dev(home, *arguments)
    assert done.returncode == 0 and done.stdout and not home.exists()
    made_home(tmp_path)
    assert run_dev(home, *arguments).stdout.startswith("ran ")
    assert not calls(tmp_path, "pip")


def test_a_python_that_is_not_supported_is_named(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\ncase "$*" in --version) echo "Python 3.9.2" ;; *) echo 3.9 ;; esac\n')
    old.chmod(0o755)
    done = run_dev(tmp_path / "home", "plan", AOTFORGE_PYTHON=str(old))
    assert done.returncode == 3
    assert (
        f"AOTFORGE_PYTHON={old} is not a Python 3.11 to 3.15" in done.stderr and "Python 3.9.2" in done.stderr
    )
    (tmp_path / "programs").mkdir()
    for name in ("bash", "env", "readlink", "dirname", "mkdir", "flock", "cat", "head"):
        (tmp_path / "programs" / name).symlink_to(shutil.which(name) or pytest.fail(name))
    done = run_dev(tmp_path / "home", "plan", PATH=str(tmp_path / "programs"))
    assert done.returncode == 3 and "apt-get install python3.11" in done.stderr
    assert "dev: no program on PATH is a Python 3.11 to 3.15" in done.stderr


def test_a_python_without_ensurepip_names_its_package(tmp_path: Path) -> None:
    python = new_python(tmp_path)
    python.write_text(PYTHON.replace('case "$*" in', 'case "$*" in\n*ensurepip*) exit 1 ;;', 1))
    done = run_dev(tmp_path / "home", "plan", AOTFORGE_PYTHON=str(python))
    assert done.returncode == 3 and f"apt-get install python{VERSION}-venv" in done.stderr


def test_of_two_first_runs_one_installs(tmp_path: Path) -> None:
    home = made_home(tmp_path, "tools")
    with (home / ".dev.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [str(PROJECT / "dev"), "plan"], env=os.environ | {"AOTFORGE_HOME": str(home), "CI": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert second.stderr and "waiting for another run" in second.stderr.readline()
        made = home / f"venv-{VERSION}"
        (made / ".build.sha256").write_text(stamp_of("build"))
        # who installs nothing does not wait
        assert run_dev(home, "plan").returncode == 0
    assert second.communicate()[0].startswith("ran ") and not calls(tmp_path, "pip")


def test_a_home_that_cannot_be_written_and_one_that_need_not_be() -> None:
    def check(folder: Path) -> None:
        done = run_dev(folder / "home", "plan")
        assert done.returncode == 3 and f"cannot write {folder / 'home'}" in done.stderr
        assert "Next step: AOTFORGE_HOME=/some/folder ./dev plan" in done.stderr
        done = run_dev(folder / "made" / "home", "plan")
        assert done.returncode == 0 and done.stdout.startswith("ran ")

    def prepare(folder: Path) -> None:
        (folder / "home").mkdir(mode=0o555)
        made_home(folder / "made", "tools", "build")
        (folder / "made" / "calls").touch()
        (folder / "made" / "calls").chmod(0o666)
        (folder / "made" / "home").chmod(0o555)

    as_other_user(check, prepare=prepare)
