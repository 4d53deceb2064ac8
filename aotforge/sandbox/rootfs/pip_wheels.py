"""Wheels of a rootfs: their pins in a requirements file, and their download through pip."""

import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.child_processes import NETWORK, child_environment, run_child
from aotforge.errors import ContainerError
from aotforge.formats.archive import sha256_file
from aotforge.sandbox.rootfs.cache_files import Store
from aotforge.sandbox.rootfs.definitions import LockedWheel, Wheels

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_PIP_SECONDS = 3600.0
"""Time for a wheel of 300 MB at 80 kB/s: pip itself waits for as long as a byte comes now and then."""
_SPARE_BYTES = 16 * 2**20
"""Above a locked size: headers that pip keeps with a file, and its other files."""
_UNKNOWN_BYTES = 2**30
_MEMORY_BYTES = 4 * 2**30
"""pip reads an index's pages into memory."""
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One package of a requirements file: its version, and the SHA-256 of every allowed file."""

    version: str
    hashes: frozenset[str]


def pinned_wheels(wheels: Wheels, checkout: Path) -> Mapping[str, Pin]:
    """The pins of a definition's wheels; of several (with markers) the last. Raises ContainerError for a missing one."""
    file, known = checkout / wheels.requirements, {}
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ContainerError(f"{file}: cannot be read: {error.strerror}") from error
    for line in text.replace("\\\n", " ").splitlines():
        if match := _PIN.match(line):
            hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
            known[match[1].lower().replace("_", "-")] = Pin(version=match[2], hashes=hashes)
    if missing := [name for name in wheels.names if name not in known]:
        raise ContainerError(
            f"{file} does not pin {missing[0]}", hint="correct `wheels.names` in the definition"
        )
    return {name: known[name] for name in wheels.names}


def choose_wheels(wheels: Wheels, checkout: Path, *, store: Store) -> tuple[LockedWheel, ...]:
    """The wheels that pip chooses for the rootfs' Python, downloaded into the store. Raises ContainerError."""
    chosen = []
    for name, pin in pinned_wheels(wheels, checkout).items():
        with _downloaded(name, pin, wheels.python, _UNKNOWN_BYTES) as (file, trouble):
            if file is None:
                raise ContainerError(
                    f"{name} {pin.version} has no wheel for Python {wheels.python}", cause=trouble
                )
            sha256, size = sha256_file(file), file.stat().st_size
            store.put_file(sha256, file)
            chosen.append(
                LockedWheel(name=name, version=pin.version, file=file.name, size=size, sha256=sha256)
            )
    return tuple(chosen)


def fetch_wheel(wheel: LockedWheel, *, store: Store, python: str) -> str:
    """Downloads a locked wheel into the store; returns pip's errors, or ''. Raises ContainerError for other bytes."""
    pin = Pin(version=wheel.version, hashes=frozenset({wheel.sha256}))
    with _downloaded(wheel.name, pin, python, wheel.size + _SPARE_BYTES) as (file, trouble):
        if file is None or file.name != wheel.file:
            return trouble
        store.put_file(wheel.sha256, file)
    return ""


@contextmanager
def _downloaded(name: str, pin: Pin, python: str, limit: int) -> Iterator[tuple[Path | None, str]]:
    """The wheel that `pip download` fetched, None when it failed, and its errors."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
        options += ["--abi", f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
        options += [word for name in _PLATFORMS for word in ("--platform", f"{name}_x86_64")]
        failed = run_pip_download(f"{name}=={pin.version}", pin.hashes, Path(folder), *options, limit=limit)
        errors = [line for line in failed.splitlines() if line.startswith("ERROR")]
        trouble = f"pip: {' '.join(errors[-2:]) or failed[-300:]}" if failed else ""
        yield next(Path(folder).glob("*.whl"), None), trouble


def run_pip_download(
    requirement: str,
    hashes: Iterable[str],
    folder: Path,
    *options: str,
    limit: int,
    seconds: float = _PIP_SECONDS,
    modules: Path | None = None,
) -> str:
    """Downloads one package of at most `limit` bytes with pip and the caller's index settings into `folder`, if a SHA-256 in `hashes`
    matches: pip compares it behind the last byte. pip imports build backends from `modules` too. Returns its messages when it fails, else
    ''."""
    requirements = folder / "requirements.txt"
    pins = " ".join(f"--hash=sha256:{digest}" for digest in sorted(hashes))
    requirements.write_text(f"{requirement} {pins}\n", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", *options, "-d", str(folder), "-r", str(requirements)]
    return run_pip(command, limit=limit, seconds=seconds, modules=modules)


def run_pip(
    command: Sequence[str], *, limit: int, seconds: float = _PIP_SECONDS, modules: Path | None = None
) -> str:
    """Runs pip, whose index may send without end: with files of at most `limit` bytes, 4 GiB of memory and a limit of time. It imports from
    `modules` too. Returns its messages when it fails, else ''."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))

    try:
        own = child_environment({"PYTHONPATH": str(modules)} if modules else None, keep=NETWORK)
        done = run_child(command, environment=own, capture_output=True, timeout=seconds, preexec_fn=limits)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip() or done.stdout.strip() or "pip failed") if done.returncode else ""
