"""The scripts of CI, with stand-ins for what needs root or a network."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def stand_in(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def test_no_command_line_has_passwords(tmp_path: Path) -> None:
    """Every user of a machine can read command lines, and bubblewrap's is there until the end."""
    stand_in(tmp_path, "id", "echo 0")
    stand_in(tmp_path, "debootstrap", "mkdir -p ${@: -1}/etc")
    stand_in(tmp_path, "git", "mkdir -p ${@: -1}")
    stand_in(
        tmp_path, "bwrap", f"printf '%s\\n' \"$@\" >{tmp_path}/words; tr '\\0' '\\n' <&3 >{tmp_path}/more"
    )
    secrets = {"PIP_INDEX_URL": "https://ci:hidden-1@host/simple", "https_proxy": "http://me:hidden-2@host"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    subprocess.run([ROOT / ".ci/bare", "true"], env=environment | secrets, check=True)
    words = (tmp_path / "words").read_text()
    assert words.endswith("--args\n3\n--chdir\n/home/user/aotforge\ntrue\n")
    assert "hidden" not in words
    given = (tmp_path / "more").read_text().splitlines()
    assert given[0] == "--clearenv"
    for name, value in secrets.items():
        assert given[given.index(name) - 1 :][:3] == ["--setenv", name, value]


def test_the_paths_of_pip_alone_are_in_the_sandbox(tmp_path: Path) -> None:
    """The address of an index has a path, too, and its first part may be a folder here: /root."""
    wheels, certificate, index = tmp_path / "wheels", tmp_path / "keys" / "ca.pem", tmp_path / "index"
    for folder in (wheels, certificate.parent, index, tmp_path / "root"):
        folder.mkdir()
    certificate.touch()
    settings = [
        f"global.index-url='https://host:3141{tmp_path}/root/simple/'",
        f"global.extra-index-url='https://host{tmp_path}/root file://{index}'",
        f":env:.cert='{certificate}'",
        f"global.find-links='{wheels} https://host{tmp_path}/root'",
        f"global.cache-dir='{tmp_path}/root'",
    ]
    stand_in(tmp_path, "id", "echo 0")
    stand_in(
        tmp_path, "debootstrap", f'printf "%s\\n" "$@" >{tmp_path}/debootstrap.words; mkdir -p ${{@: -1}}/etc'
    )
    stand_in(tmp_path, "git", "mkdir -p ${@: -1}")
    stand_in(tmp_path, "python3", "\n".join(f'echo "{line}"' for line in settings))
    stand_in(tmp_path, "bwrap", f"tr '\\0' '\\n' <&3 >{tmp_path}/more")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    subprocess.run([ROOT / ".ci/bare", "true"], env=environment, check=True)
    given = (tmp_path / "more").read_text().splitlines()
    bound = {given[at + 1] for at, word in enumerate(given) if word == "--ro-bind"}
    assert {one for one in bound if one.startswith(str(tmp_path))} == {
        str(wheels),
        str(certificate),
        str(index),
    }
    words = (tmp_path / "debootstrap.words").read_text().split()
    assert (
        "--force-check-gpg" in words and "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg" in words
    )


@pytest.mark.parametrize("name", ["run", "bare", "older-compilers"])
def test_package_managers_have_a_limit_of_time(tmp_path: Path, name: str) -> None:
    """A mirror may send without end; `timeout` and what installs packages are stand-ins, and no package is installed."""
    programs, scratch = tmp_path / "programs", tmp_path / "scratch"
    for folder in (programs, scratch):
        folder.mkdir()
    for program in ("mktemp", "chmod", "mkdir", "rm", "cp", "cat", "dirname", "env", "grep", "touch"):
        (programs / program).symlink_to(shutil.which(program) or program)
    stand_in(programs, "id", "echo 0")
    stand_in(programs, "timeout", 'bounded=1 exec "${@:2}"')
    stand_in(programs, "apt-get", f'echo "${{bounded:-unbounded}}" >>{tmp_path}/calls')
    stand_in(programs, "dpkg", "echo amd64")
    for program in ("curl", "sha256sum", "dpkg-deb", "dpkg-query", "update-ca-certificates"):
        stand_in(programs, program, "exit 0")
    script = tmp_path / "checkout" / ".ci" / name
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / name, script)
    stand_in(script.parents[1], "dev", "exit 0")
    if name == "run":
        stand_in(script.parent, "older-compilers", "exit 0")
    environment = {"PATH": str(programs), "TMPDIR": str(scratch)}
    subprocess.run(["/bin/bash", script], env=environment, check=False, capture_output=True)
    assert set((tmp_path / "calls").read_text().split()) == {"1"}
