"""Settings that are read from apt."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.fetch import DEBIAN, AptSettings, _proxies, settings_from
from aotforge.sandbox.rootfs.resolve_packages import _sources


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
