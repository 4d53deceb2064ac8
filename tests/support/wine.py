"""Windows programs under Wine, without a display: one prefix for every session and worker on this machine.

The prefix (700 MB, 10 to 50 s to make) is in the cache. A session holds its lock shared while it runs
programs; the
last one to leave gets it alone and ends the server, so that no session ends another's programs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge") / "cache"
_BOOT_SECONDS = 600
_RUN_SECONDS = 600
_SETTINGS = {
    "LC_ALL": "C.UTF-8",  # under C no path outside ASCII can be reached
    "WINEARCH": "win64",
    "WINEDEBUG": "-all",  # also stops Debian's `wine` from asking for 32-bit Wine at every start
    "WINEDLLOVERRIDES": "mscoree,mshtml=",  # else the first start opens a window that offers downloads
}
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "AOTFORGE_PARTIAL_PACK")


@dataclass(frozen=True, kw_only=True)
class Wine:
    """A prefix that is ready, and the program that runs others in it."""

    program: Path
    prefix: Path

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return kept | _SETTINGS | {"WINEPREFIX": str(self.prefix)} | dict(extra or {})

    def run(
        self,
        program: Path | str,
        *arguments: str,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = _RUN_SECONDS,
        text: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Runs a Windows program to its end. One that hangs is killed with what it started:
        subprocess.TimeoutExpired.

        `text` is its input. What it writes is read as UTF-8, with Linux' line ends; returncode is its exit
        code, cut to 8 bits by Linux.
        """
        command = [str(self.program), str(program), *arguments]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=self.environment(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="backslashreplace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(text, timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def windows_path(path: Path) -> str:
    """How a Windows program names a file of this machine: Wine's drive Z is the root folder."""
    return "Z:" + str(path.absolute()).replace("/", "\\")


def missing_wine() -> str:
    """Why no Windows program can run here; empty when one can."""
    return "" if shutil.which("wine") else "wine is not installed (Debian: wine wine64)"


@contextmanager
def wine_session(folder: Path | None = None) -> Iterator[Wine]:
    """The shared prefix, made when it is missing. `folder`: another place for it than the cache."""
    program = shutil.which("wine")
    assert program, missing_wine()
    prefix = (folder or CACHE) / "wine-prefix"
    wine = Wine(program=Path(program), prefix=prefix)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with (prefix.parent / ".wine-prefix.lock").open("w") as lock:
        # alone only to make it: who waits to be alone waits for all sessions to end
        fcntl.flock(lock, fcntl.LOCK_SH)
        while not (prefix / "ready").exists():
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (prefix / "ready").exists():
                _make(wine)
            fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            with _kept_running(wine):
                yield wine
        finally:
            _end_server_if_last(wine, lock.fileno())


@contextmanager
def _kept_running(wine: Wine) -> Iterator[None]:
    """One idle program during a session: Wine ends its services with the last program and takes 2 s to start
    them again.

    It is the first program, so that the services inherit its output, and not that of a program whose output
    is read to its end.
    """
    process = subprocess.Popen(
        [str(wine.program), "cmd", "/c", "pause"],
        env=wine.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin and process.stdout
    assert process.stdout.read(1), "cmd did not start"
    try:
        yield
    finally:
        process.stdin.close()  # which ends it, also in a session that is killed
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_RUN_SECONDS)
        process.kill()
        process.stdout.close()


def _make(wine: Wine) -> None:
    """A prefix without the `ready` file is what a killed session left."""
    shutil.rmtree(wine.prefix, ignore_errors=True)
    wine.prefix.mkdir()
    done = wine.run("wineboot", "--init", seconds=_BOOT_SECONDS)
    assert done.returncode == 0, f"wineboot ended with {done.returncode}: {done.stderr}"
    _wineserver(wine, "-w")  # its files are written when the server has gone
    (wine.prefix / "ready").touch()


def _end_server_if_last(wine: Wine, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    _wineserver(wine, "-k")


def _wineserver(wine: Wine, option: str) -> None:
    """Ends (-k) or awaits (-w) the prefix' server."""
    subprocess.run(
        ["wineserver", option],
        env=wine.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_BOOT_SECONDS,
        check=False,
    )
