"""What every task shares: where things are, errors as exit codes, flags as values."""

from __future__ import annotations

import functools
import json as json_
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from invoke.exceptions import Exit

from aotforge.errors import AotforgeError

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("AOTFORGE_HOME") or ROOT / ".aotforge")


def door(body: Callable[..., None]) -> Callable[..., None]:
    """Errors become a message on stderr (JSON on stdout with --json) and their kind's exit code."""

    @functools.wraps(body)
    def run(*args: Any, **flags: Any) -> None:
        try:
            body(*args, **flags)
        except AotforgeError as error:
            if flags.get("json"):
                fields = {"kind": error.kind, "what": error.what, "cause": error.cause, "hint": error.hint}
                say(json_.dumps({"error": fields}))
            sys.stderr.write(f"error: {error}\n")
            raise Exit(code=error.exit_code) from error
        except KeyboardInterrupt:
            sys.stderr.write("interrupted; what is finished is kept, the same command goes on from there\n")
            raise Exit(code=130) from None

    return run


def say(text: str) -> None:
    """One line of a result, on standard output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_aside(text: str) -> None:
    """One line about what goes on, on standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def cache_folder(folder: str | None) -> Path:
    """The flag, else AOTFORGE_CACHE, else .aotforge/cache."""
    return Path(folder or os.environ.get("AOTFORGE_CACHE") or HOME / "cache").absolute()


def job_count(count: int) -> int | None:
    """Raises UnsupportedError for fewer than none."""
    from aotforge.errors import UnsupportedError  # noqa: PLC0415

    if count < 0:
        raise UnsupportedError(
            f"--jobs {count} is no number of processes", hint="leave it out, or at least 1"
        )
    return count or None


def archs_of(arch: str | None) -> tuple[str, ...]:
    """The names of an --arch flag; none where it is left out. Raises UnknownNameError, ManifestError."""
    from aotforge.base.architectures import load_architectures, parse_archs  # noqa: PLC0415

    known = load_architectures(ROOT / "manifests").architectures
    return () if arch is None else parse_archs(arch, known)


ARCH = "arch, e.g. gfx908; several are joined by commas"
PROFILE = "what to build: see manifests/profiles.yaml"
EXECUTOR = "where things are compiled: local (the default), docker, podman, bubblewrap, or auto: the first of these that works"
JSON = "print JSON for programs"


def run_command(command: Sequence[str]) -> int:
    """Exit status of a command that is run in the checkout and prints for itself."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def pairs(text: str) -> dict[str, str]:
    """`a=1,b=2` as a table. Raises UnsupportedError."""
    from aotforge.errors import UnsupportedError  # noqa: PLC0415

    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(name and sign and value for name, sign, value in parts):
        raise UnsupportedError(f"{text!r} is not understood", hint="NAME=VALUE,NAME=VALUE")
    return {name: value for name, _, value in parts}
