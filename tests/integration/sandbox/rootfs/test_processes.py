"""Several processes and users that build one rootfs, and builds that are killed."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.manifest_reader import load
from aotforge.base.progress import SILENT
from aotforge.errors import ContainerError
from aotforge.formats.archive import sha256_file
from aotforge.sandbox.rootfs import resolve_packages
from aotforge.sandbox.rootfs.assemble import assemble
from aotforge.sandbox.rootfs.cache_files import Store
from aotforge.sandbox.rootfs.definitions import Definition
from aotforge.sandbox.rootfs.pip_wheels import run_pip_download
from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs
from tests.support.debs import make_checkout

ROOT = Path(__file__).parents[4]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    folder.mkdir()
    return folder


def test_several_processes_make_one_root(tmp_path: Path, mirror: Path) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    program = (
        "import sys; from pathlib import Path; from aotforge.base.progress import LineObserver; "
        "from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs, unpack_rootfs; "
        "c = Path(sys.argv[2]); r = ensure_rootfs(Path(sys.argv[1]), 'small', cache=c, environment={}, observer=LineObserver(print), "
        "sources=(sys.argv[3],)); print(unpack_rootfs(r, cache=c))"
    )
    # the mirror answers all; the others wait, or find the rootfs
    command = [sys.executable, "-c", program, str(checkout), str(tmp_path / "cache"), str(mirror)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=600)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert {lines[-1] for lines in answers} == {str(tmp_path / "cache/containers/trees" / lock.digest)}
    assert sum(any("ready" in line for line in lines) for lines in answers) == 1


@pytest.mark.parametrize("moment", ["fetching", "unpacking"])
def test_killed_in_the_middle(tmp_path: Path, mirror: Path, moment: str) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    program = (
        "import os, sys; from pathlib import Path; from aotforge.sandbox.rootfs.rootfs_cache import ensure_rootfs\n"
        "from aotforge.base.progress import LineObserver\n"
        "def note(text):\n    if sys.argv[4] in text: os.kill(os.getpid(), 9)\n"
        "ensure_rootfs(Path(sys.argv[1]), 'small', cache=Path(sys.argv[2]), environment={}, observer=LineObserver(note), sources=(sys.argv[3],))"
    )
    command = [sys.executable, "-c", program, str(checkout), str(tmp_path / "cache"), str(mirror), moment]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    root = ensure_rootfs(
        checkout, "small", cache=tmp_path / "cache", environment={}, observer=SILENT, sources=(str(mirror),)
    )
    assert sha256_file(root.tar) == lock.digest
    left = [path.name for path in root.tar.parent.iterdir()]
    assert sorted(left) == [f"{lock.digest}.json", f"{lock.digest}.tar"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_makes_the_same_bytes(tmp_path: Path, mirror: Path) -> None:

    checkout, lock = make_checkout(tmp_path / "a", mirror)
    definition = load(checkout / "docker" / "small.yaml", Definition)
    files = Store(mirror / "by-digest").checked
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    tmp_path.chmod(0o755)
    read, write = os.pipe()
    child = os.fork()  # an interpreter of its own could not read a checkout in a private folder
    if child == 0:
        try:
            os.umask(0o077)
            os.chdir(folder)
            opened = {
                path.sha256: Path(f"/proc/self/fd/{os.open(files(path.sha256), os.O_RDONLY)}")
                for path in lock.packages
            }
            target = os.open(folder, os.O_RDONLY)
            os.setgid(65534)
            os.setuid(65534)
            tar = Path(f"/proc/self/fd/{target}") / "root.tar"
            made = assemble(
                definition, lock, files=opened.__getitem__, tar=tar, on_file=lambda done, total: None
            )
            os.write(write, made.digest.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 64).decode() == lock.digest


class _Endless(http.server.BaseHTTPRequestHandler):
    """A package index whose one wheel is longer than any limit here; it has no length."""

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if not self.path.endswith(".whl"):
            self.wfile.write(b'<a href="/endless-1.0-py3-none-any.whl">endless</a>')
            return
        with suppress(OSError):
            for _ in range(64):
                self.wfile.write(bytes(2**20))


def test_a_package_index_that_sends_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip compares the hash behind the last byte."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Endless)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    for name in ("TMPDIR", "PIP_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_address[1]}/simple")
    failed = run_pip_download("endless==1.0", ["0" * 64], tmp_path, limit=2**20)
    server.shutdown()
    server.server_close()
    assert "File too large" in failed


def test_apt_has_a_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve_packages, "_APT_SECONDS", 0.1)
    with pytest.raises(ContainerError, match="sleep did not end in 0 s"):
        resolve_packages._Apt(suite="s", options=()).run("sleep", "600")
