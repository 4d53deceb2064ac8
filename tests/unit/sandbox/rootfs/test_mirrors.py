"""Settings that are read from apt."""

from __future__ import annotations

from aotforge.sandbox.rootfs.fetch import DEBIAN, _proxies, settings_from


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
