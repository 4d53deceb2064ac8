"""Folder of compiled native code and prepared programs: its place, and who can change it."""

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from shlex import quote

from vgpu.errors import CacheError

_warned: set[Path] = set()
"""Folders that this process has reported."""


def default_cache() -> Path:
    """AOTFORGE_CACHE, else the cache below AOTFORGE_HOME, else a folder of the user's."""
    named, home = os.environ.get("AOTFORGE_CACHE"), os.environ.get("AOTFORGE_HOME")
    if named:
        return Path(named)
    return Path(home) / "cache" if home else user_home() / ".cache" / "aotforge"


def user_home() -> Path:
    """The user's home; without one a folder that no program creates, which errors then name."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def cache_fault(folder: Path) -> str:
    """Why a cache folder is another user's (root excepted) or open to every user; empty: it is neither."""
    try:
        status = folder.stat()
    except OSError:
        return ""
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    mode = stat.S_IMODE(status.st_mode)
    return f"has mode {mode:o}: every user can write to it" if mode & 0o1002 == 0o002 else ""


def check_cache(folder: Path, warn: Callable[[str], object] | None = None) -> None:
    """Reports a fault of `folder` once. Raises CacheError for it where AOTFORGE_STRICT is 1."""
    if not (fault := cache_fault(folder)):
        return
    what = f"cache folder {folder} {fault}"
    if os.environ.get("AOTFORGE_STRICT") == "1":
        change = "chmod o-w" if fault.startswith("has mode") else f"chown -R {os.geteuid()}"
        raise CacheError(
            what,
            cause="programs in a cache are executed, and AOTFORGE_STRICT=1 accepts those of this user and "
            "root only",
            hint=f"{change} {quote(str(folder))}, or choose another one with --cache or AOTFORGE_CACHE",
        )
    if folder not in _warned:
        _warned.add(folder)
        (warn or _to_stderr)(f"warning: {what}")


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


@cache
def processor() -> str:
    """Model and features of the processor (elsewhere than on Linux its family): compiled code depends on
    it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine
    wanted = ("flags", "Features", "model name", "cpu family", "model\t")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


@cache
def sources_digest() -> str:
    """SHA-256 of this package's sources, which decide how a program is prepared."""
    root = Path(__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in {".py", ".h", ".cpp", ".yaml"}:
            total.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()
