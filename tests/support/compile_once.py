"""A compiler launcher for tests: `python compile_once.py CACHE COMPILER ARGUMENTS...` compiles a source of runtime/ once for all build
folders.

Objects of a release build hold no path (the build's own -ffile-prefix-map), so that an object depends on the compiler, on flags without
paths, and on the sources. Dependency files are kept with the folders taken out. Everything that is no such compilation is simply run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_MAPS = 3
"""Prefixes that runtime/CMakeLists.txt takes out of its objects."""


def main(arguments: Sequence[str]) -> int:
    """Exit status of the compiler, or 0 when an earlier object serves."""
    cache, command = Path(arguments[0]), list(arguments[1:])
    folders = _folders(command)
    if "-c" not in command or "-MF" not in command or len(folders) != _MAPS or "-g" in command:
        return subprocess.run(command, check=False).returncode
    source = Path(command[command.index("-c") + 1])
    target, depends = Path(command[command.index("-o") + 1]), Path(command[command.index("-MF") + 1])
    kept = cache / "source-route" / "objects" / _key(command, source)
    if not (kept / "object").is_file():
        status = subprocess.run(command, check=False).returncode
        if status:
            return status
        text = depends.read_text()
        for name, folder in folders.items():
            text = text.replace(folder.replace(" ", "\\ "), name)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as new:
            staged = Path(new) / "entry"
            staged.mkdir()
            (staged / "depends").write_text(text)
            shutil.copyfile(target, staged / "object")
            kept.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # another test was faster
                staged.rename(kept)
        return 0
    text = (kept / "depends").read_text()
    for name, folder in folders.items():
        text = text.replace(name, folder.replace(" ", "\\ "))
    named = command[command.index("-MT") + 1].replace(" ", "\\ ")
    depends.write_text(re.sub(r"^[^:]*:", lambda _: f"{named}:", text, count=1))
    shutil.copyfile(kept / "object", target)
    return 0


def _folders(command: Sequence[str]) -> dict[str, str]:
    """Placeholder and folder of every -ffile-prefix-map, the longest folder first."""
    maps = [
        flag.split("=", 1)[1].rpartition("=") for flag in command if flag.startswith("-ffile-prefix-map=")
    ]
    return {f"@{name}@": folder for folder, _, name in sorted(maps, key=lambda each: -len(each[0]))}


def _key(command: Sequence[str], source: Path) -> str:
    total = hashlib.sha256()
    plain = [flag for flag in command[1:] if "/" not in flag and not flag.endswith((".o", ".d"))]
    total.update("\0".join([shutil.which(command[0]) or command[0], *plain, source.name]).encode())
    files = [source]
    for folder in (flag[2:] for flag in command if flag.startswith("-I")):
        files += sorted(path for path in Path(folder).rglob("*") if path.suffix in {".h", ".def"})
    for path in files:
        total.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main(sys.argv[1:]))
