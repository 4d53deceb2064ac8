"""The three commands that make the library out of a source tree, as words: configure, build, install. Nothing runs here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

WORK = "{work}"
"""What executors replace by a step's folder."""


def cmake_commands(
    *,
    cmake: str,
    source: str,
    objects: str,
    settings: Mapping[str, str],
    jobs: int | None,
    install: str | None,
) -> list[list[str]]:
    """`settings` are cache variables (`CMAKE_TOOLCHAIN_FILE` for another platform); without `install` two commands."""
    configure = [cmake, "-S", source, "-B", objects, "-G", "Ninja"]
    configure += [f"-D{name}={value}" for name, value in sorted(settings.items())]
    commands = [configure, [cmake, "--build", objects, *(["--parallel", str(jobs)] if jobs else [])]]
    if install is not None:
        commands.append([cmake, "--install", objects, "--prefix", install])
    return commands


def shell_words(word: str) -> str:
    """A word with `{work}` in it for a shell that has the folder in `$WORK`, whatever characters that folder's name has."""
    return '"$WORK"'.join(shlex.quote(part) if part else "" for part in word.split(WORK)) or "''"


def shell_script(commands: list[list[str]]) -> str:
    """The commands, one after the other, until one fails."""
    return "set -e\n" + "\n".join(" ".join(shell_words(word) for word in command) for command in commands)
