"""Native code of this project in the cache: compiled once per sources, command and compiler."""

import hashlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from aotforge.base.child_processes import run_child
from aotforge.errors import CacheError, ToolchainError


def c_compiler() -> list[str]:
    """The C compiler as a command: CC, else cc."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


@dataclass(frozen=True)
class NativeCode:
    """A library to compile: its name in errors, its folder below the cache, and the language that its compiler must know."""

    name: str
    folder: str
    dialect: str
    language: Literal["C", "C++"] = "C"

    def store(
        self, below: Path, parts: Iterable[str], build: Callable[[Path], None], suffix: str = ""
    ) -> Path:
        """The file or folder that `build` makes, found in the cache `below` by the digest of `parts`, or made now.

        It appears atomically, so processes may race. Raises CacheError, and what `build` raises.
        """
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        path = below.absolute() / self.folder / f"{digest}{suffix}"
        if path.exists():
            return path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as scratch:
                made = Path(scratch) / f"made{suffix}"
                build(made)
                try:
                    made.rename(path)
                except OSError:
                    if not path.is_dir():  # else another process was first
                        raise
        except OSError as error:
            raise CacheError(
                f"cannot store {self.name} in {path.parent}: {error.strerror or error}"
            ) from error
        return path

    def identity(self, command: Sequence[str]) -> list[str]:
        """The command and its compiler's version: parts of the digest. Raises ToolchainError."""
        return [*command, self._version(command[0])]

    @cache  # noqa: B019 - a few constants of modules
    def _version(self, compiler: str) -> str:
        return self.run([compiler, "--version"])

    def run(self, command: Sequence[str]) -> str:
        """Output of the compiler. Raises ToolchainError when it is missing or fails."""
        try:
            done = run_child("compiler", command, capture_output=True)
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
