"""The rootfs cache: downloads by name, verification by digest, and every error."""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import os
import socket
import ssl
import tarfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from aotforge.base.progress import LineObserver
from aotforge.errors import ContainerError, ManifestError, UnknownNameError
from aotforge.formats.archive import sha256_file
from aotforge.sandbox.rootfs import fetch
from aotforge.sandbox.rootfs.cache_files import CachePaths, staged_file
from aotforge.sandbox.rootfs.cache_gc import entries, fields, remove, unreferenced
from aotforge.sandbox.rootfs.cache_gc import lines as list_lines
from aotforge.sandbox.rootfs.definitions import LockedWheel, RootfsImage, find_rootfs, read_lock
from aotforge.sandbox.rootfs.fetch import AptSettings
from aotforge.sandbox.rootfs.image import docker_archive, image_id, image_tag
from aotforge.sandbox.rootfs.members import Spool
from aotforge.sandbox.rootfs.rootfs_cache import check_lock, ensure_rootfs, export_store, unpack_rootfs
from tests.support.debs import PACKAGES, deb, locked, make_checkout, wheel, write_lock

ROOT = Path(__file__).parents[4]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    folder.mkdir()
    return folder


@pytest.fixture
def served(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The mirror on loopback, as the only one that this machine's apt knows."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(mirror)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    only(monkeypatch, address)
    yield address
    server.shutdown()
    server.server_close()


def only(monkeypatch: pytest.MonkeyPatch, *archives: str, snapshot: str = "file:///nowhere") -> None:
    settings = AptSettings(archives=archives, proxies={"http": "DIRECT"}, timeout=5, snapshot=snapshot)
    monkeypatch.setattr(fetch, "apt_settings", lambda: settings)


def make(
    checkout: Path, cache: Path, *, sources: tuple[str, ...] = (), stages: list[str] | None = None
) -> RootfsImage:
    note = (lambda text: None) if stages is None else stages.append
    return ensure_rootfs(
        checkout, "small", cache=cache, environment={}, observer=LineObserver(note), sources=sources
    )


def test_fetched_once_then_no_mirror_is_needed(
    tmp_path: Path, mirror: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    stages: list[str] = []
    root = make(checkout, tmp_path / "cache", stages=stages)
    assert root.digest == lock.digest == sha256_file(root.tar)
    assert root.tar.stat().st_size == lock.size
    assert (root.python, dict(root.environment)) == ("/usr/bin/python3", {"PATH": "/usr/bin"})
    assert any("fetching, 0 of 2 files" in text for text in stages)
    only(monkeypatch)
    root.tar.unlink()
    assert make(checkout, tmp_path / "cache") == root
    assert sha256_file(root.tar) == lock.digest


def test_odd_paths_give_the_same_bytes(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, lock = make_checkout(tmp_path / "mit Leer zeichen, ünï #%20 路径", mirror)
    cache = tmp_path / "caché des  images % 缓存"
    root = make(checkout, cache)
    assert sha256_file(root.tar) == lock.digest
    assert (unpack_rootfs(root, cache=cache) / "bin" / "sh").resolve().read_bytes() == b"#!ELF\n"
    assert export_store(checkout, "small", cache=cache, folder=tmp_path / "exported ü") == 2
    assert make(checkout, tmp_path / "other", sources=(str(tmp_path / "exported ü"),)).digest == lock.digest


def test_sources_by_digest_name_or_pool_path(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    only(monkeypatch)
    flat = tmp_path / "flat"
    flat.mkdir()
    for package in lock.packages:
        (flat / Path(package.file).name).write_bytes((mirror / package.file).read_bytes())
    for number, source in enumerate((mirror / "by-digest", mirror, flat, flat.as_uri())):
        assert make(checkout, tmp_path / f"cache{number}", sources=(str(source),)).digest == lock.digest


def test_the_archive_of_all_packages_is_the_last_resort(
    tmp_path: Path, mirror: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    (mirror / "file").mkdir()
    for package in lock.packages:
        (mirror / package.file).rename(mirror / "file" / package.sha1)
    only(monkeypatch, served, snapshot=f"{served}/file")
    assert make(checkout, tmp_path / "cache").digest == lock.digest


def test_a_mirror_without_the_pinned_version(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    gone = lock.packages[0]
    (mirror / gone.file).unlink()
    with pytest.raises(ContainerError) as caught:
        make(checkout, tmp_path / "cache")
    assert f"one_1.0_amd64.deb (SHA-256 {gone.sha256}) cannot be fetched" in caught.value.what
    assert f"{served}/{gone.file}: 404" in caught.value.cause
    assert "containers.lock" in caught.value.hint
    assert not list((tmp_path / "cache" / "containers").rglob("*.tar"))


def test_a_source_with_a_password_is_not_used_and_not_printed(
    tmp_path: Path, mirror: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    (mirror / lock.packages[0].file).unlink()
    for source in ("http://user:secret@127.0.0.1/x", "http://user:secret@127.0.0.1:9/x"):
        with pytest.raises(ContainerError) as caught:
            make(checkout, tmp_path / "cache", sources=(source,))
        assert "an address of 127.0.0.1" in caught.value.cause and "secret" not in str(caught.value)


def test_a_mirror_with_other_bytes_under_the_name(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    (mirror / lock.packages[0].file).write_bytes(deb("one", PACKAGES["two"]))
    with pytest.raises(ContainerError, match="cannot be fetched") as caught:
        make(checkout, tmp_path / "cache")
    assert f"instead of {lock.packages[0].sha256}" in caught.value.cause
    assert not (tmp_path / "cache" / "containers" / "store" / lock.packages[0].sha256).exists()


def test_a_damaged_store_file(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    root = make(checkout, tmp_path / "cache")
    stored = tmp_path / "cache" / "containers" / "store" / lock.packages[1].sha256
    stored.chmod(0o644)
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")
    root.tar.unlink()
    with pytest.raises(ContainerError, match="was damaged"):
        make(checkout, tmp_path / "cache")
    assert make(checkout, tmp_path / "cache") == root  # fetched anew, as the hint promises


def test_a_damaged_root_is_made_again(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    root = make(checkout, tmp_path / "cache")
    root.tar.chmod(0o644)
    root.tar.write_bytes(b"short")
    assert sha256_file(make(checkout, tmp_path / "cache").tar) == lock.digest


def test_another_digest_names_the_first_differing_member(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    listed = checkout / "docker" / "small.members"
    listed.write_text(listed.read_text().replace("file 0755", "file 0644"))
    wrong = lock.model_copy(update={"digest": "1" * 64})
    (checkout / "docker" / "small.lock.json").write_text(wrong.text())
    with pytest.raises(ContainerError, match=r"locked is 1{64}: /usr/bin/dash is 'file 0755"):
        make(checkout, tmp_path / "cache")
    assert not list((tmp_path / "cache" / "containers").rglob("*.tar"))


def test_a_lock_older_than_its_definition(tmp_path: Path, mirror: Path) -> None:
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    file = checkout / "docker" / "small.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), "folders": []}))
    with pytest.raises(ContainerError, match="does not match its definition"):
        make(checkout, tmp_path / "cache")


def test_a_lock_older_than_the_requirements(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch)
    checkout, lock = make_checkout(
        tmp_path / "a", mirror,
        wheels={"requirements": "req.txt", "names": ["tiny"], "python": "3.11", "folder": "usr/lib/tiny"},
    )  # fmt: skip
    data = wheel(
        {"tiny/__init__.py": b"x = 1\n", "tiny-1.data/scripts/tiny": b"", "tiny-1.data/purelib/more.py": b""}
    )
    entry = LockedWheel(
        name="tiny",
        version="1",
        file="tiny-1-py3-none-any.whl",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    (mirror / entry.file).write_bytes(data)
    (checkout / "req.txt").write_text(f"tiny==1 \\\n    --hash=sha256:{entry.sha256}\n")
    write_lock(checkout, mirror, lock.packages, [entry])
    root = make(checkout, tmp_path / "cache", sources=(str(mirror),))
    with tarfile.open(root.tar) as archive:
        names = {name for name in archive.getnames() if name.startswith("usr/lib/tiny/")}
    assert names == {"usr/lib/tiny/tiny", "usr/lib/tiny/tiny/__init__.py", "usr/lib/tiny/more.py"}
    (checkout / "req.txt").write_text(f"tiny==2 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ContainerError, match=r"has tiny 1, req.txt pins 2"):
        make(checkout, tmp_path / "cache")


def test_no_space(tmp_path: Path, mirror: Path, served: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, _ = make_checkout(tmp_path / "a", mirror)

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Spool, "add", full)
    with pytest.raises(ContainerError) as caught:
        make(checkout, tmp_path / "cache")
    assert caught.value.cause == "the disk is full"
    assert "prune" in caught.value.hint
    left = [path.name for path in (tmp_path / "cache" / "containers" / "roots").iterdir()]
    assert left == []


def test_a_cache_that_is_a_file(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    (tmp_path / "cache").write_text("")
    with pytest.raises(ContainerError, match=r"cannot write .*cache"):
        make(checkout, tmp_path / "cache")


def test_unknown_root_and_a_tag_without_digest(tmp_path: Path, mirror: Path) -> None:
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    with pytest.raises(UnknownNameError, match="smal") as caught:
        find_rootfs(checkout, "smal")
    assert "small" in caught.value.cause
    manifest = checkout / "manifests" / "containers.yaml"
    manifest.write_text('{"schema": 1, "rootfs": {"small": {"image": "quay.io/pypa/manylinux_2_28"}}}')
    with pytest.raises(ManifestError, match=r"rootfs.small"):
        find_rootfs(checkout, "small")


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1}', "<<<<<<< ours"])
def test_a_damaged_lock(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.lock.json").write_text(text)
    with pytest.raises(ContainerError, match=r"x\.lock\.json"):
        read_lock(tmp_path / "x.lock.json")
    with pytest.raises(ContainerError, match="cannot be read"):
        read_lock(tmp_path / "none.lock.json")


def test_an_image_of_the_root(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    root = make(checkout, tmp_path / "cache")
    archive = docker_archive(root, cache=tmp_path / "cache")
    assert image_tag(root) == f"aotforge/small:{lock.digest[:16]}"
    with tarfile.open(archive) as opened:
        manifest = json.load(opened.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config = opened.extractfile(manifest["Config"]).read()  # type: ignore[union-attr]
        layer = opened.extractfile(manifest["Layers"][0]).read()  # type: ignore[union-attr]
    assert image_id(root) == f"sha256:{hashlib.sha256(config).hexdigest()}"
    assert hashlib.sha256(layer).hexdigest() == lock.digest
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{lock.digest}"]
    data = archive.read_bytes()
    archive.unlink()
    again = make(checkout, tmp_path / "cache")
    assert docker_archive(again, cache=tmp_path / "cache") == archive and archive.read_bytes() == data


def test_what_a_crash_leaves_is_complete(
    tmp_path: Path, mirror: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree or an archive that is there is used unread: its bytes are on the disk before its name."""
    written: list[tuple[str, bool]] = []
    places = CachePaths(cache=tmp_path / "cache")
    monkeypatch.setattr(
        os, "sync", lambda: written.append(("tree", any(places.tree("x").parent.glob("[!.]*"))))
    )
    fsync = os.fsync

    def record(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink()
        if name.parent.name in {"archives", "roots"} and ".staged-" in name.name:
            written.append((name.parent.name, any(name.parent.glob("[!.]*.tar"))))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    root = make(checkout, tmp_path / "cache")
    unpack_rootfs(root, cache=tmp_path / "cache")
    docker_archive(root, cache=tmp_path / "cache")
    assert written == [("roots", False), ("tree", False), ("archives", False)]


def test_the_id_of_an_image_is_not_known_before(tmp_path: Path, mirror: Path, served: str) -> None:
    """podman takes an image with other layers from a registry under the ID that its configuration gives."""
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    assert fields(entries(checkout, tmp_path / "one")[0])["image"]["id"] is None
    first, other = (make(checkout, tmp_path / name) for name in ("one", "two"))
    assert first.digest == other.digest and image_id(first) != image_id(other)
    assert fields(entries(checkout, tmp_path / "one")[0])["image"]["id"] == image_id(first)


def test_list_and_prune(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, lock = make_checkout(tmp_path / "a", mirror)
    cache = tmp_path / "cache"
    before = make(checkout, cache)
    unpack_rootfs(before, cache=cache)
    docker_archive(before, cache=cache)
    assert unreferenced(checkout, cache) == []
    (entry,) = entries(checkout, cache)
    assert fields(entry)["stored_files"] == fields(entry)["locked_files"] == 2
    assert "tar, tree" in list_lines([entry])[1]
    data = deb("two", [("usr/lib/new", b"new", 0o644)])
    (mirror / locked("two", data).file).write_bytes(data)
    new = write_lock(checkout, mirror, [lock.packages[0], locked("two", data)])
    after = make(checkout, cache)
    assert after.digest == new.digest != before.digest
    found = {path for path, _ in unreferenced(checkout, cache)}
    assert {path.name for path in found} == {
        lock.packages[1].sha256, f"{before.digest}.tar", f"{before.digest}.json", before.digest,
        f"{image_id(before).removeprefix('sha256:')}.tar",
    }  # fmt: skip
    others = [CachePaths(cache=cache).store.folder / "photos.tar", CachePaths(cache=cache).tree("thesis")]
    for path in others:
        path.mkdir()  # of who takes a folder of other things for a cache
    for path in found:
        remove(path)
    assert all(path.is_dir() for path in others) and unreferenced(checkout, cache) == []
    assert sha256_file(make(checkout, cache).tar) == new.digest


def test_prune_leaves_alone_what_is_being_written(tmp_path: Path, mirror: Path, served: str) -> None:
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    cache = tmp_path / "cache"
    places = CachePaths(cache=cache)
    tar = places.tar("1" * 64)
    with places.store.entering(hashlib.sha256().hexdigest()), staged_file(tar) as path:
        assert unreferenced(checkout, cache) == []
        os.utime(path, (0, 0))  # a process that was killed left it long ago
        assert [found for found, _ in unreferenced(checkout, cache)] == [path]


def test_every_lock_of_this_checkout_fits() -> None:
    for name in ("rocm-kernels", "rocm-runtime", "windows-noimage"):
        named = find_rootfs(ROOT, name)
        lock = read_lock(named.lock_file)
        check_lock(named, lock, ROOT)
        assert named.members_file.read_text().count("\n") > 1000
        assert {part.package for part in named.definition.parts} == {entry.name for entry in lock.parts}


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Starts a server that answers with `head`, then sends `piece` again and again; the only one that apt knows."""
    listeners = []

    def start(head: bytes, piece: bytes, pause: float = 0.0) -> str:
        listeners.append(listener := socket.create_server(("127.0.0.1", 0)))

        def answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(head)
                for _ in range(500):
                    connection.sendall(piece)
                    time.sleep(pause)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        only(monkeypatch, address := f"http://127.0.0.1:{listener.getsockname()[1]}", snapshot=f"{address}/s")
        return address

    yield start
    for listener in listeners:
        listener.close()


def test_a_mirror_that_sends_without_end_does_not_fill_the_disk(
    tmp_path: Path, mirror: Path, hostile: Callable[..., str]
) -> None:
    hostile(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * (1 << 20))
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    with pytest.raises(ContainerError, match="it is longer than"):
        make(checkout, tmp_path / "cache")
    assert not list(CachePaths(cache=tmp_path / "cache").store.folder.iterdir())


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["header", "body"]
)
def test_a_mirror_that_sends_a_byte_now_and_then(
    head: bytes, tmp_path: Path, mirror: Path, hostile: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held the lock of the rootfs for ever."""
    monkeypatch.setattr("aotforge.sandbox.rootfs.fetch.FILE_SECONDS", 0.2)
    hostile(head, b"x", pause=0.05)
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    with pytest.raises(ContainerError, match="was not complete after"):
        make(checkout, tmp_path / "cache")


def _certificate(path: Path) -> Path:
    """A key and a certificate of 127.0.0.1 by it, as one file."""
    key, name = generate_private_key(SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=True)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + made.public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize(
    "body", [b"HTTP/1.1 200 OK\r\n\r\nx", b"HTTP/1.1 200 OK\r\n"], ids=["body", "header"]
)
def test_a_mirror_whose_tls_breaks_off_is_passed_over(
    tmp_path: Path, mirror: Path, served: str, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """Bytes that are not TLS: those of an attacker on the way, too."""
    certificate = _certificate(tmp_path / "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    checkout, lock = make_checkout(tmp_path / "a", mirror)

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection = context.wrap_socket(listener.accept()[0], server_side=True)
                connection.recv(65536)
                connection.sendall(body)
                with socket.socket(fileno=connection.detach()) as plain:
                    plain.sendall(b"not TLS" * 10)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        bad = f"https://127.0.0.1:{listener.getsockname()[1]}"
        proxies = {"http": "DIRECT", "https": "DIRECT"}
        settings = AptSettings(
            archives=(bad, served), proxies=proxies, certificates=str(certificate), timeout=5
        )
        monkeypatch.setattr(fetch, "apt_settings", lambda: settings)
        assert make(checkout, tmp_path / "cache").digest == lock.digest


def test_the_body_of_a_redirect_is_not_read(
    tmp_path: Path, mirror: Path, hostile: Callable[..., str]
) -> None:
    """urllib reads it to its end, into memory."""
    hostile(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n", b"x" * (1 << 20))
    checkout, _ = make_checkout(tmp_path / "a", mirror)
    tracemalloc.start()
    try:
        with pytest.raises(ContainerError, match="302"):
            make(checkout, tmp_path / "cache")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
