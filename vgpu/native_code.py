"""Native code of this project in the cache: compiled once per sources, command and compiler."""

import fcntl
import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from vgpu.errors import CacheError, ToolchainError


def c_compiler() -> list[str]:
    """The C compiler as a command: CC, else cc."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def _environment() -> dict[str, str]:
    """Of compilers: no variable with a key reaches them."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


def is_intact(path: Path) -> bool:
    """True when a file or folder of native code has the digest that was recorded when it was made."""
    try:
        return _sums(path).read_text() == content_digest(path)
    except (OSError, ValueError):
        return False


def content_digest(path: Path) -> str:
    """SHA-256 of a file, or of a folder's names, contents and links. Raises OSError."""
    if not path.is_dir():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    total = hashlib.sha256()
    for one in sorted(path.rglob("*")):
        content = f"-> {one.readlink()}" if one.is_symlink() else content_digest(one) if one.is_file() else ""
        total.update(f"{one.relative_to(path)}\0{content}\0".encode())
    return total.hexdigest()


def _sums(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


@dataclass(frozen=True)
class NativeCode:
    """A library to compile: its name in errors, folder in the cache, its compiler's language."""

    name: str
    folder: str
    dialect: str
    language: Literal["C", "C++"] = "C"

    def store(
        self, below: Path, parts: Iterable[str], build: Callable[[Path], None], suffix: str = ""
    ) -> Path:
        """What `build` makes, found in the cache `below` by the digest of `parts` or made now. It appears
        atomically; what differs from its recorded digest is made again. Raises
        CacheError."""
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        path = below.absolute() / self.folder / f"{digest}{suffix}"
        if is_intact(path):
            return path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as scratch:
                made = Path(scratch) / f"made{suffix}"
                build(made)
                self._keep(made, path, Path(scratch))
        except OSError as error:
            raise CacheError(
                f"cannot store {self.name} in {path.parent}: {error.strerror or error}",
                hint="free space there, or choose another cache folder that can be written",
            ) from error
        return path

    def _keep(self, made: Path, path: Path, scratch: Path) -> None:
        """Moves `made` to `path` with its digest beside it."""
        sums = scratch / "sums"
        sums.write_text(content_digest(made))
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # a folder cannot replace one that appears after the look
            if path.is_dir() and not path.is_symlink():
                if is_intact(path):
                    return  # another process was first
                path.rename(scratch / "damaged")
            sums.rename(_sums(path))  # first: a kill in between makes it again
            made.rename(path)
        finally:
            os.close(folder)  # releases the lock

    def identity(self, command: Sequence[str]) -> list[str]:
        """The command and its compiler's version: parts of the digest. Raises ToolchainError."""
        return [*command, self._version(command[0])]

    @cache  # noqa: B019 - a few constants of modules
    def _version(self, compiler: str) -> str:
        return self.run([compiler, "--version"])

    def run(self, command: Sequence[str]) -> str:
        """Output of the compiler. Raises ToolchainError when it is missing or fails."""
        try:
            done = subprocess.run(
                command,
                env=_environment(),
                check=False,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise ToolchainError(
                f"no {self.language} compiler: {command[0]} cannot be run: {error.strerror}",
                cause=f"{self.name} is compiled once",
                hint="install gcc or clang, or set CC",
            ) from error
        if done.returncode:
            raise ToolchainError(
                f"{command[0]} cannot compile {self.name}:\n{done.stderr[:2000]}",
                cause=f"a compiler without {self.dialect}",
                hint="use gcc 9 or clang 12, or newer",
            )
        return done.stdout
