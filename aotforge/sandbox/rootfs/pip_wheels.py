"""Wheels of a locked requirements file: which they are, and fetching them through pip with the user's own settings."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.definitions import LockedWheel, Wheels
from aotforge.sandbox.rootfs.members import file_digest
from aotforge.sandbox.rootfs.package_store import Store

_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One package of a requirements file: its version, and the SHA-256 of every file that may serve it."""

    version: str
    hashes: frozenset[str]


def pins(requirements: Path) -> Mapping[str, Pin]:
    """Every pin in a requirements file, by name; of several (with markers) the last. Raises ContainerError."""
    try:
        text = requirements.read_text(encoding="utf-8")
    except OSError as error:
        raise ContainerError(f"{requirements}: cannot be read: {error.strerror}") from error
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        if match := _PIN.match(line):
            name = match[1].lower().replace("_", "-")
            found[name] = Pin(
                version=match[2], hashes=frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
            )
    return found


def wanted(wheels: Wheels, checkout: Path) -> Mapping[str, Pin]:
    """The pins that a definition takes. Raises ContainerError for a name that the requirements lack."""
    file = checkout / wheels.requirements
    known = pins(file)
    for name in wheels.names:
        if name not in known:
            raise ContainerError(
                f"{file} has no pin of {name}", hint="correct `wheels.names` in the definition"
            )
    return {name: known[name] for name in wheels.names}


def choose_wheels(wheels: Wheels, checkout: Path, *, store: Store) -> tuple[LockedWheel, ...]:
    """The wheels that pip takes for the root's Python, brought into the store. Raises ContainerError."""
    chosen = []
    with tempfile.TemporaryDirectory() as folder:
        for name, pin in wanted(wheels, checkout).items():
            trouble = _download(name, pin, Path(folder), wheels.python)
            files = [file for file in Path(folder).iterdir() if file.suffix == ".whl"]
            if not files:
                raise ContainerError(
                    f"{name} {pin.version} has no wheel for Python {wheels.python}", cause=trouble
                )
            file = files[0]
            sha256 = file_digest(file)
            with file.open("rb") as source:
                store.put(sha256, source)
            chosen.append(
                LockedWheel(
                    name=name, version=pin.version, file=file.name, size=file.stat().st_size, sha256=sha256
                )
            )
            file.unlink()
    return tuple(chosen)


def fetch_wheels(entries: Iterable[LockedWheel], *, store: Store, python: str) -> list[str]:
    """Bring wheels into the store through pip; what went wrong, in words."""
    trouble = []
    with tempfile.TemporaryDirectory() as folder:
        for entry in entries:
            said = _download(
                entry.name, Pin(version=entry.version, hashes=frozenset({entry.sha256})), Path(folder), python
            )
            file = Path(folder) / entry.file
            if file.exists():
                with file.open("rb") as source:
                    store.put(entry.sha256, source)
            else:
                trouble.append(said)
    return trouble


def _download(name: str, pin: Pin, folder: Path, python: str) -> str:
    """Runs `pip download`; the last lines that it said when it failed."""
    listed = folder / f"{name}.txt"
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(pin.hashes))
    listed.write_text(f"{name}=={pin.version} {hashes}\n", encoding="utf-8")
    done = subprocess.run(
        _command(listed, folder, python), capture_output=True, text=True, errors="replace", check=False
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return f"pip: {' '.join(said[-2:]) or done.stderr[-300:]}" if done.returncode else ""


def _command(listed: Path, folder: Path, python: str) -> Sequence[str]:
    return [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--require-hashes", "--only-binary=:all:", "--implementation", "cp", "--python-version", python,
        "--abi", f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none",
        *(part for platform in _PLATFORMS for part in ("--platform", f"{platform}_x86_64")),
        "-d", str(folder), "-r", str(listed),
    ]  # fmt: skip
