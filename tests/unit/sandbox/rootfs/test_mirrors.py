"""Settings that are read from apt."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.fetch import DEBIAN, AptSettings, _proxies, settings_from
from aotforge.sandbox.rootfs.resolve_packages import _sources
from tests.support.slow_servers import slow_server


def test_sites_in_order_then_debians_own() -> None:
    sites = [
        "http://mirror.example/debian/",
        "copy:/srv/pool",
        "mirror+file:/etc/mirrors",
        "http://mirror.example/debian",
    ]
    found = settings_from(sites, {})
    assert found.archives == ("http://mirror.example/debian", "file:/srv/pool", *DEBIAN)


def test_proxies_of_hosts_before_those_of_schemes() -> None:
    dump = {
        "acquire::http::proxy": "http://proxy:3128",
        "acquire::http::proxy::inside.example": "DIRECT",
        "acquire::https::cainfo": "/etc/ca.pem",
        "acquire::http::timeout": "7",
    }
    found = settings_from([], dump)
    assert (found.certificates, found.timeout) == ("/etc/ca.pem", 7)
    assert _proxies("http", "deb.debian.org", found) == {"http": "http://proxy:3128"}
    assert _proxies("http", "inside.example", found) == {}


def test_a_lock_has_security_updates(tmp_path: Path) -> None:
    """An archive, or the network, can deny that there are any; sid has none."""
    settings = AptSettings(archives=(f"file:{tmp_path}",), proxies={})
    for name in ("bookworm", "bookworm-updates", "sid"):
        (tmp_path / "dists" / name).mkdir(parents=True)
        (tmp_path / "dists" / name / "InRelease").write_text("signed")
    with pytest.raises(ContainerError, match="no reachable archive has bookworm-security"):
        _sources("bookworm", settings)
    assert [line.split()[-2] for line in _sources("sid", settings)] == ["sid"]
    (tmp_path / "dists" / "bookworm-security").mkdir()
    (tmp_path / "dists" / "bookworm-security" / "InRelease").write_text("signed")
    suites = [line.split()[-2] for line in _sources("bookworm", settings)]
    assert suites == ["bookworm", "bookworm-updates", "bookworm-security"]


@pytest.mark.parametrize(
    "head",
    [b"garbage not http\r\n\r\n", b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n", b""],
    ids=["status", "redirect", "nothing"],
)
def test_a_mirror_that_answers_garbage_is_passed_over(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "dists/sid").mkdir(parents=True)
    (tmp_path / "dists/sid/InRelease").write_text("signed")
    with slow_server(head, b"", cut=0) as bad:
        settings = AptSettings(archives=(bad, f"file:{tmp_path}"), proxies={"http": "DIRECT"})
        (line,) = _sources("sid", settings)
    assert f"file:{tmp_path} sid" in line
