"""Downloads of packages by pip, with the caller's index settings and locked SHA-256."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from aotforge.base.child_processes import NETWORK, child_environment, run_child
from aotforge.errors import ContainerError
from aotforge.run.processes import limited

SOURCES = "AOTFORGE_SOURCES"
"""Environment variable: folders and URLs, separated by spaces, that are searched for a file first."""

_PIP_SECONDS = 3600.0
"""Time for a wheel of 300 MB at 80 kB/s: pip itself waits for as long as a byte comes now and then."""

_MEMORY_BYTES = 4 * 2**30
"""pip reads an index's pages into memory."""

_FILE_BYTES = 2**30
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def fetch_wheel(name: str, version: str, hashes: Iterable[str], python: str, folder: Path) -> Path:
    """The wheel for Linux and a version of Python, in the new `folder`. Raises ContainerError."""
    folder.mkdir()
    options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    options += ["--abi", f"cp{python.replace('.', '')}", "--abi", "abi3", "--abi", "none"]
    options += [word for platform in _PLATFORMS for word in ("--platform", f"{platform}_x86_64")]
    failed = run_pip_download(f"{name}=={version}", hashes, folder, *options, limit=_FILE_BYTES)
    if failed:
        raise ContainerError(
            f"{name} {version} has no wheel for Python {python}", cause=f"pip: {failed[-300:]}"
        )
    return next(folder.glob("*.whl"))


def run_pip_download(
    requirement: str,
    hashes: Iterable[str],
    folder: Path,
    *options: str,
    limit: int,
    seconds: float = _PIP_SECONDS,
    modules: Path | None = None,
) -> str:
    """Downloads a package of at most `limit` bytes and one of `hashes` into `folder`; pip's errors or ''.

    pip imports build backends from `modules`, too.
    """
    requirements = folder / "requirements.txt"
    pins = " ".join(f"--hash=sha256:{digest}" for digest in sorted(hashes))
    requirements.write_text(f"{requirement} {pins}\n", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", *options, "-d", str(folder), "-r", str(requirements)]
    try:
        own = child_environment({"PYTHONPATH": str(modules)} if modules else None, keep=NETWORK)
        bounds = limited(_MEMORY_BYTES, limit)
        done = run_child(command, environment=own, capture_output=True, timeout=seconds, preexec_fn=bounds)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip() or done.stdout.strip() or "pip failed") if done.returncode else ""
