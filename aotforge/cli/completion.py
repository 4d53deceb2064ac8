"""Completion of command lines for bash, zsh and fish, generated from the tasks and their flags."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Annotated

from aotforge.cli.command import INSTALLED, PROGRESS_KINDS, ROOT, TASKS, cli_command, print_result
from aotforge.cli.flags import SHORT, Flag, Task
from aotforge.errors import UnknownNameError, suggest

SHELLS = ("bash", "zsh", "fish")
_INSTALL = {
    "bash": 'eval "$({program} completion bash)" in ~/.bashrc',
    "zsh": 'eval "$({program} completion zsh)" in ~/.zshrc, after compinit',
    "fish": "{program} completion fish | source in ~/.config/fish/config.fish",
}
_EXECUTORS = ("local", "docker", "podman", "bubblewrap", "auto")


@cli_command("completion", positional=["shell"])
def completion(shell: Annotated[str, "bash, zsh or fish"]) -> None:
    """Print a script that completes tasks, flags and their values in a shell; its first line states where it belongs."""
    if shell not in SHELLS:
        raise UnknownNameError(f"unknown shell {shell}", hint=suggest(shell, SHELLS))
    program = "aotforge" if INSTALLED else "dev"
    command = program if INSTALLED else "./dev"
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](program)
    print_result("\n".join([f"# {_INSTALL[shell].format(program=command)}", *lines]))


def spellings(task: Task) -> Iterator[tuple[str, Flag]]:
    """Every way to write a flag of a task, with the flag."""
    for flag in task.flags:
        if flag.kind is bool and flag.default is True:
            yield f"--no-{flag.name}", flag
        yield f"--{flag.name}", flag
        yield from ((letter, flag) for letter, name in SHORT.items() if name == flag.name)


def values(flag: Flag) -> tuple[str, ...]:
    """Words that a flag takes; none for a number, a path or free text."""
    if flag.name == "arch":
        from aotforge.base.architectures import load_architectures

        return tuple(load_architectures(ROOT / "manifests").architectures)
    if flag.name == "profile":
        return tuple(_profiles())
    if flag.name == "executor":
        return _EXECUTORS
    if flag.name == "progress":
        return PROGRESS_KINDS
    return SHELLS if flag.name == "shell" else ()


@cache
def _profiles() -> list[str]:
    text = (ROOT / "manifests" / "profiles.yaml").read_text(encoding="utf-8")
    return re.findall(r"^  ([a-z0-9_]+):$", text.partition("\nprofiles:\n")[2], re.MULTILINE)


def _unnamed(task: Task) -> list[str]:
    """Words that a task takes without the name of their flag."""
    return [word for flag in task.positions if flag.parameter in task.positional for word in values(flag)]


def _flags_with_values() -> dict[str, tuple[str, ...]]:
    flags = {flag.name: flag for task in TASKS.values() for flag in task.flags}
    return {f"--{name}": found for name, flag in sorted(flags.items()) if (found := values(flag))}


def _bash(program: str) -> Iterator[str]:
    function = f"_{program}_complete"
    yield f"{function}() {{"
    yield '    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} known=""'
    yield "    COMPREPLY=()"
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(sorted(TASKS))} --list --version --help" -- "$word")); return'
    yield "    fi"
    yield '    case "$before" in'
    for name, found in _flags_with_values().items():
        yield f'    {name}) COMPREPLY=($(compgen -W "{" ".join(found)}" -- "$word")); return ;;'
    yield "    esac"
    yield '    case "${COMP_WORDS[1]}" in'
    for name, task in sorted(TASKS.items()):
        words = [spelling for spelling, _ in spellings(task)]
        yield f'    {name}) known="{" ".join([*words, "--help", *_unnamed(task)])}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$known" -- "$word"))'
    yield "}"
    yield f"complete -o default -F {function} {program}"


def _zsh(program: str) -> Iterator[str]:
    function = f"_{program}_complete"
    yield f"{function}() {{"
    yield "    local -a tasks flags"
    yield "    if (( CURRENT == 2 )); then"
    yield "        tasks=("
    yield from (f"            {_described(name, task.summary)}" for name, task in sorted(TASKS.items()))
    yield "        )"
    yield "        _describe task tasks; return"
    yield "    fi"
    yield "    case $words[CURRENT-1] in"
    for name, found in _flags_with_values().items():
        yield f"    {name}) compadd -- {' '.join(found)}; return ;;"
    yield "    esac"
    yield "    case $words[2] in"
    for name, task in sorted(TASKS.items()):
        yield f"    {name}) flags=("
        yield from (f"        {_described(word, flag.help)}" for word, flag in spellings(task))
        yield "        )"
        if free := _unnamed(task):
            yield f"        compadd -- {' '.join(free)}"
        yield "        ;;"
    yield "    esac"
    yield "    if [[ $words[CURRENT] == -* ]]; then _describe flag flags; else _files; fi"
    yield "}"
    yield f"compdef {function} {program}"


def _described(word: str, text: str) -> str:
    """A word with its description for zsh's _describe, where a colon separates them."""
    return shlex.quote(f"{word}:{' '.join(text.split())}")


def _fish(program: str) -> Iterator[str]:
    first = "__fish_use_subcommand"
    yield f"complete -c {program} -f -n {first} -a --list -d 'all tasks'"
    for name, task in sorted(TASKS.items()):
        yield f"complete -c {program} -f -n {first} -a {name} -d {_fish_text(task.summary)}"
        where = f"-n '__fish_seen_subcommand_from {name}'"
        if free := _unnamed(task):
            yield f"complete -c {program} {where} -f -a '{' '.join(free)}'"
        for spelling, flag in spellings(task):
            kind = f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}"
            found = values(flag)
            takes = "" if flag.kind is bool else f" -x -a '{' '.join(found)}'" if found else " -r"
            yield f"complete -c {program} {where} {kind}{takes} -d {_fish_text(flag.help)}"


def _fish_text(text: str) -> str:
    """A quoted text: in fish, only a backslash and the quote itself have a meaning there."""
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{plain}'"
