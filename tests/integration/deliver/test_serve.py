"""The release server against clients that are wrong."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotforge.deliver.pytorch.serve import ReleaseServer, serve

NAME = "0.11.2b-r1"


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def server(tmp_path: Path, log: list[str]) -> Iterator[ReleaseServer]:
    folder = tmp_path / "served"
    (folder / NAME).mkdir(parents=True)
    (folder / NAME / "SHA256SUMS").write_bytes(b"0123456789")
    with serve(folder, host="127.0.0.1", port=0, log=log.append) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def connect(server: ReleaseServer) -> socket.socket:
    return socket.create_connection(server.server_address[:2], timeout=60)  # type: ignore[arg-type]


def exchange(server: ReleaseServer, text: bytes) -> bytes:
    """Everything that the server answers until it closes."""
    with connect(server) as client:
        client.sendall(text)
        return b"".join(iter(lambda: client.recv(65536), b""))


def get(server: ReleaseServer, path: bytes, headers: bytes = b"") -> bytes:
    return exchange(
        server, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + b"\r\n"
    )


def test_log_lines_are_printable(server: ReleaseServer, log: list[str]) -> None:
    get(server, b"/\x1b]0;pwned\x07\x1b[31m\xc2\x9bX")
    assert any(r"\x1b]0;pwned\x07\x1b[31m" in line for line in log)
    assert all(line.isprintable() for line in log), log


@pytest.mark.parametrize(
    "path",
    [
        b"/" + NAME.encode() + b"/" + b"a" * 300,
        b"/" + b"a" * 5000 + b"/b",
        b"/%ff/%00",
        b"/%ed%b0%80/x",
        b"\x03//[[",
    ],
)
def test_names_that_no_file_has(path: bytes, server: ReleaseServer, log: list[str]) -> None:
    assert get(server, path).startswith(b"HTTP/1.1 404 ")
    assert not any("Error" in line for line in log), log


def test_the_index_of_wheels_in_both_forms(server: ReleaseServer) -> None:
    project = server.folder / "simple" / "aotforge-attention"
    project.mkdir(parents=True)
    (project / "index.html").write_text("<a>")
    (project / "index.json").write_text("{}")
    json = b"application/vnd.pypi.simple.v1+json"
    page = get(server, b"/simple/aotforge-attention/")
    assert page.endswith(b"<a>") and b"Content-Type: text/html" in page
    document = get(server, b"/simple/aotforge-attention/", b"Accept: " + json + b", text/html; q=0.01\r\n")
    assert document.endswith(b"{}") and b"Content-Type: " + json in document
    for path in (
        b"/simple/",
        b"/simple/aotforge-attention",
        b"/simple/aotforge-attention/index.html",
        b"/simple/../x/",
    ):
        assert get(server, path).startswith(b"HTTP/1.1 404 "), path
    (server.folder / "simple" / "linked").symlink_to("/etc")
    assert get(server, b"/simple/linked/").startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("header", "status", "body"),
    [
        (b"bytes=" + b"9" * 5000 + b"-", b"200", b"0123456789"),
        (b"bytes=-" + b"9" * 5000, b"200", b"0123456789"),
        (b"bytes=9223372036854775807-", b"416", b""),
        (b"bytes=2-9999999999999999999", b"206", b"23456789"),
        ("bytes=٢-".encode(), b"200", b"0123456789"),
    ],
)
def test_huge_ranges(header: bytes, status: bytes, body: bytes, server: ReleaseServer) -> None:
    answer = get(server, f"/{NAME}/SHA256SUMS".encode(), b"Range: " + header + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.partition(b"\r\n\r\n")[2] == body


def test_only_files_of_releases_are_served(server: ReleaseServer) -> None:
    """A release may be a folder of links, as Nix and git-annex make them; a pipe is not waited for."""
    (server.folder / "secret").write_text("private")
    (server.folder / NAME / "link").symlink_to("SHA256SUMS")
    (server.folder / "linked").symlink_to(NAME)
    (server.folder / NAME / "index.html").write_text("page")
    (server.folder / "simple").mkdir()
    os.mkfifo(server.folder / "simple" / "index.html")
    os.mkfifo(server.folder / NAME / "pipe")
    name = NAME.encode()
    for path in (
        b"/simple/",
        b"/secret",
        b"/",
        b"/" + name,
        b"/" + name + b"/pipe",
        b"/" + name + b"/../secret",
        b"/" + name + b"/%2e%2e%2fsecret",
        b"/" + name + b"/" + b"x" * 300,
        b"/simple/index.html",
    ):
        assert get(server, path).startswith(b"HTTP/1.1 404 "), path
    assert get(server, b"/" + name + b"/index.html").endswith(b"page")
    for path in (b"/" + name + b"/link", b"/linked/SHA256SUMS"):
        assert get(server, path).endswith(b"0123456789"), path
    (server.folder / NAME / "SHA256SUMS").unlink()
    assert get(server, b"/" + name + b"/index.html").startswith(b"HTTP/1.1 404 ")
