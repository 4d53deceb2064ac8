"""Package archives: those that this machine's apt uses, then Debian's own.

Only addresses, proxies and certificates are used. Release files, their dates and signatures are not: the lock has the SHA-256 of
every file.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DEBIAN = ("http://deb.debian.org/debian", "http://deb.debian.org/debian-security")
SNAPSHOT = "https://snapshot.debian.org/file"
"""Debian's archive of every package ever published, by SHA-1 (https://snapshot.debian.org/)."""


@dataclass(frozen=True, kw_only=True)
class AptSettings:
    """apt's configuration: archive URLs in order, proxies by scheme or "scheme::host", file of certificates, timeout in seconds."""

    archives: tuple[str, ...]
    proxies: Mapping[str, str]
    certificates: str = ""
    timeout: int = 30
    snapshot: str = SNAPSHOT


def apt_settings() -> AptSettings:
    """This machine's settings; only Debian's own archives where there is no apt."""
    sites = _lines(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"])
    dump = dict(_setting(line) for line in _lines(["apt-config", "dump"]))
    return settings_from(sites, dump)


def settings_from(sites: Sequence[str], dump: Mapping[str, str]) -> AptSettings:
    """Settings from the sites of `apt-get indextargets` and the keys (lower case) and values of `apt-config dump`."""
    usable = [site.rstrip("/") for site in sites if re.match(r"(https?|file|copy):", site)]
    archives = [re.sub(r"^copy:", "file:", site) for site in usable]
    proxies = {}
    for key, value in dump.items():
        if (found := re.fullmatch(r"acquire::(https?)::proxy(?:::(.+))?", key)) and value:
            proxies["::".join(part for part in found.groups() if part)] = value
    seconds = dump.get("acquire::http::timeout", "")
    return AptSettings(
        archives=tuple(dict.fromkeys((*archives, *DEBIAN))),
        proxies=proxies,
        certificates=dump.get("acquire::https::cainfo", ""),
        timeout=int(seconds) if seconds.isdigit() and int(seconds) else 30,
    )


def _setting(line: str) -> tuple[str, str]:
    key, _, value = line.partition(" ")
    return key.lower(), value.strip().rstrip(";").strip('"')


def _lines(command: Sequence[str]) -> list[str]:
    if shutil.which(command[0]) is None:
        return []
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []
