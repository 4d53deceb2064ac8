"""A compiler launcher for tests: `python compile_once.py CACHE COMPILER ARGUMENTS...` compiles a source of
runtime/ once for all build
folders.

Objects of a release build hold no path (the build's own -ffile-prefix-map), so that an object depends on the
compiler, on flags without
paths, and on the sources. Dependency files are kept with the folders taken out. Everything else is simply
run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_MAPS = 3
"""Prefixes that runtime/CMakeLists.txt takes out of its objects."""


def main(arguments: Sequence[str]) -> int:
    """Exit status of the compiler, or 0 when an earlier object serves."""
    cache, command = Path(arguments[0]), list(arguments[1:])
    folders = _folders(command)
    debug = "-g" in command and not any(flag.startswith("-fsanitize") for flag in command)
    if "-c" not in command or "-MF" not in command or len(folders) != _MAPS or debug:
        return subprocess.run(command, check=False).returncode
    kept = cache / "source-route" / "objects" / _key(command, Path(command[command.index("-c") + 1]), folders)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{kept}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the second process waits for the object
        if (kept / "object").is_file():
            _reuse(kept, command, folders)
            return 0
        status = subprocess.run(command, check=False).returncode
        if status == 0:
            _keep(kept, command, folders)
        return status


def _keep(kept: Path, command: Sequence[str], folders: Mapping[str, str]) -> None:
    text = Path(command[command.index("-MF") + 1]).read_text()
    for name, folder in folders.items():
        text = text.replace(folder.replace(" ", "\\ "), name)
    with tempfile.TemporaryDirectory(dir=kept.parent) as new:
        staged = Path(new) / "entry"
        staged.mkdir()
        (staged / "depends").write_text(text)
        shutil.copyfile(command[command.index("-o") + 1], staged / "object")
        staged.rename(kept)


def _reuse(kept: Path, command: Sequence[str], folders: Mapping[str, str]) -> None:
    text = (kept / "depends").read_text()
    for name, folder in folders.items():
        text = text.replace(name, folder.replace(" ", "\\ "))
    named = command[command.index("-MT") + 1].replace(" ", "\\ ")
    Path(command[command.index("-MF") + 1]).write_text(
        re.sub(r"^[^:]*:", lambda _: f"{named}:", text, count=1)
    )
    shutil.copyfile(kept / "object", command[command.index("-o") + 1])


def _folders(command: Sequence[str]) -> dict[str, str]:
    """Placeholder and folder of every -ffile-prefix-map, the longest folder first."""
    maps = [
        flag.split("=", 1)[1].rpartition("=") for flag in command if flag.startswith("-ffile-prefix-map=")
    ]
    return {f"@{name}@": folder for folder, _, name in sorted(maps, key=lambda each: -len(each[0]))}


def _key(command: Sequence[str], source: Path, folders: Mapping[str, str]) -> str:
    text = source.read_text(encoding="utf-8", errors="surrogateescape")
    total = hashlib.sha256()
    plain = [flag for flag in command[1:] if "/" not in flag and not flag.endswith((".o", ".d"))]
    total.update("\0".join([shutil.which(command[0]) or command[0], *plain, source.name]).encode())
    # CMake's unity sources, in the build folder, include the sources of a target by their paths
    files = [Path(name) for name in re.findall(r'^#include "(/[^"]+)"', text, re.M)]
    for folder in (str(source.parent), *(flag[2:] for flag in command if flag.startswith("-I"))):
        files += sorted(path for path in Path(folder).rglob("*") if path.suffix in {".h", ".def", ".c"})
    for name, folder in folders.items():
        text = text.replace(folder, name)
    total.update(text.encode("utf-8", "surrogateescape") + b"\0")
    for path in files:
        total.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main(sys.argv[1:]))
