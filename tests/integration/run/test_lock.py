"""Locks resolved by apt and pip: in folders of their own, with bounds."""

from __future__ import annotations

import http.server
import json
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.progress import SILENT
from aotforge.errors import ContainerError
from aotforge.run.pip_download import run_pip_download
from aotforge.run.rootfs.lock import lock_rootfs
from tests.support.debs import DEFINITION


def test_apt_resolves_in_a_folder_of_its_own(tmp_path: Path) -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("apt-get is not on this machine")
    lists = Path("/var/lib/apt/lists")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in lists.glob("*"))
    definition = {**DEFINITION, "suite": "bookworm", "packages": ["sed"], "without": ["gcc-12-base"]}
    (tmp_path / "docker").mkdir()
    file = tmp_path / "docker" / "small.yaml"
    file.write_text(json.dumps(definition))
    options: dict[str, Any] = {"cache": tmp_path / "cache", "environment": {}, "observer": SILENT}
    try:
        _, lock = lock_rootfs(tmp_path, "small", **options)
    except ContainerError as error:
        if "cannot resolve" in error.what:
            pytest.skip(error.cause)
        raise
    names = [entry.name for entry in lock.packages]
    assert {"sed", "libc6"} <= set(names) and "gcc-12-base" not in names and names == sorted(names)
    assert all(entry.url.startswith("http://deb.debian.org/debian") for entry in lock.packages)
    assert lock_rootfs(tmp_path, "small", keep=True, **options)[1] == lock
    file.write_text(json.dumps({**definition, "without": ["bash"]}))
    with pytest.raises(ContainerError, match="`without` names bash"):
        lock_rootfs(tmp_path, "small", **options)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in lists.glob("*")) == before


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
