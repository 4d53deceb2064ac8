"""Programs of a release see neither network, keys, files of the caller nor other processes."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from aotforge.errors import ToolchainError
from aotforge.run import release_programs
from aotforge.run.release_programs import ProgramResult, available_programs

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def run(line: str, readable: tuple[Path, ...] = (), writable: tuple[Path, ...] = ()) -> ProgramResult:
    programs = available_programs()
    return programs.run(
        ["/bin/sh", "-c", line], environment={}, readable=readable, writable=writable, seconds=300
    )


@needs_bubblewrap
def test_neither_keys_nor_files_of_the_caller_are_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTFORGE_KEY_TARGETS", "planted-key")
    (tmp_path / "key.pem").write_text("planted-file")
    (tmp_path / "work").mkdir()
    line = f"cat /proc/*/environ; cat {tmp_path}/key.pem /etc/shadow /root/.bashrc; "
    line += "ls /home /root /work; echo; id -u"
    done = run(line, readable=(tmp_path / "work",))
    assert "planted" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == str(os.geteuid())
    assert done.stderr.count("No such file") >= 3


@needs_bubblewrap
def test_only_writable_folders_can_be_written(tmp_path: Path) -> None:
    readable, writable = tmp_path / "readable", tmp_path / "writable"
    readable.mkdir()
    writable.mkdir()
    line = f"echo 1 > {writable}/file; echo 1 > {readable}/file; "
    line += "echo 1 > /usr/planted; echo 1 > /dev/shm/x; true"
    assert run(line, (readable,), (writable,)).status == 0
    assert (writable / "file").read_text() == "1\n" and not (readable / "file").exists()
    assert not Path("/usr/planted").exists() and not Path("/dev/shm/x").exists()


@needs_bubblewrap
def test_there_is_no_network_and_no_other_process(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        done = run(
            f'/usr/bin/python3 -c "{connect}" 2>&1; wc -l < /proc/net/dev; '
            f"kill -9 {os.getpid()}; ls -d /proc/[0-9]* | wc -l"
        )
    assert "Connection refused" in done.stdout
    assert int(done.stdout.splitlines()[-2]) <= 3  # two lines of headings, and perhaps the loopback device
    assert int(done.stdout.splitlines()[-1]) < 8 and "No such process" in done.stderr


@needs_bubblewrap
def test_capabilities_and_time_are_bounded() -> None:
    text = run("grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status").stdout
    assert {line.split()[1].lstrip("0") for line in text.splitlines()} == {"", "1"}, text
    programs = available_programs()
    ended = programs.run(["/bin/sleep", "30"], environment={}, readable=(), seconds=0.3)
    assert ended.status is None


def test_a_compiler_that_does_not_end_or_start(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"sleep ran for more than 0\.2 s"):
        available_programs().compile(["sleep", "60"], readable=(), seconds=0.2)
    done = available_programs().compile(
        ["cat"], readable=(), seconds=300, text="on stdin\n", folder=Path("/usr")
    )
    assert (done.status, done.stdout) == (0, "on stdin\n")


def test_messages_of_compilers_are_kept_in_part() -> None:
    """300 kB of a header made 7 MB of them, up to 256 MB, for each of dozens of compilations."""
    command = ["/bin/sh", "-c", "yes | head -c 3000000; yes | head -c 3000000 >&2"]
    programs = available_programs()
    done = programs.compile(command, readable=(), seconds=300)
    assert (done.status, len(done.stdout), len(done.stderr)) == (0, 1 << 20, 1 << 20)
    done = programs.compile(command, readable=(), seconds=300, output_limit=release_programs.FILE_LIMIT)
    assert (len(done.stdout), len(done.stderr)) == (3_000_000, 3_000_000)
