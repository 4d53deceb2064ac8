"""Flags of a task, and the values that a command line gives them."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from aotforge.errors import UsageError

REQUIRED = inspect.Parameter.empty
SHORT = {"-j": "jobs", "-q": "quiet"}
"""Short flags besides -h, the same for every task that has the flag."""

_NUMBERS: Mapping[type[Any], str] = {int: "an integer", float: "a number"}


@dataclass(frozen=True, kw_only=True)
class Flag:
    """`--name`; `parameter` is the function's, `kind` str, int, float, bool or list, `default` may be REQUIRED."""

    parameter: str
    kind: type[Any]
    default: object
    help: str

    @property
    def name(self) -> str:
        """The flag without its dashes; Python's keywords have an underscore at the end of their parameter."""
        return self.parameter.strip("_").replace("_", "-")

    @property
    def spelling(self) -> str:
        """As in a task's help: `-j, --jobs N`."""
        short = [f"{letter}, " for letter, name in SHORT.items() if name == self.name]
        if self.kind is bool:
            return "".join(short) + (f"--[no-]{self.name}" if self.default is True else f"--{self.name}")
        return "".join(short) + f"--{self.name} {self.placeholder}"

    @property
    def placeholder(self) -> str:
        """A value of it in a usage line."""
        return "N" if self.kind in _NUMBERS else self.name.upper()


@dataclass(frozen=True, kw_only=True)
class Task:
    """`body` takes a value for each of `flags`; `positional` are the flags that are usually given without their name.

    Values without a name are those of `positional`, then of the other required flags, in their order.
    `forwards`: the words after the name are not parsed, `body` takes them as `arguments`.
    """

    name: str
    body: Callable[..., None]
    flags: tuple[Flag, ...]
    positional: tuple[str, ...]
    forwards: bool = False

    @property
    def summary(self) -> str:
        """One sentence."""
        return inspect.getdoc(self.body) or ""

    @property
    def positions(self) -> list[Flag]:
        """Flags whose name may be omitted, in their order."""
        by_parameter = {flag.parameter: flag for flag in self.flags}
        first = [by_parameter[name] for name in self.positional]
        return [*first, *(flag for flag in self.flags if flag.default is REQUIRED and flag not in first)]

    @property
    def usage(self) -> str:
        """The shortest valid command line."""
        if self.forwards:
            return f"./dev {self.name} ARGUMENTS"
        words = [f"./dev {self.name}"]
        for flag in self.positions:
            word = self.word(flag)
            words.append(word if flag.default is REQUIRED else f"[{word}]")
        return " ".join(words)

    def word(self, flag: Flag) -> str:
        """A flag in the usage line: `PACK` where its name may be omitted, else `--arch ARCH`."""
        return flag.placeholder if flag.parameter in self.positional else f"--{flag.name} {flag.placeholder}"


def kind_of(annotation: object) -> type[Any]:
    """The kind of a flag from its parameter's type: `int | None` is int, `Sequence[str] | None` is list, a path is str."""
    parts = [part for part in get_args(annotation) or (annotation,) if part is not type(None)]
    if any(get_origin(part) is Sequence for part in (annotation, *parts)):
        return list
    return parts[0] if parts[0] in {int, float, bool} else str


def parse_flags(task: Task, words: Iterable[str]) -> dict[str, object]:
    """Values by parameter, defaults included. Raises UsageError."""
    values = given_flags(task, words)
    missing = [flag for flag in task.flags if flag.default is REQUIRED and flag.parameter not in values]
    if missing:
        names = {flag: task.word(flag).split()[0] for flag in missing}
        raise UsageError(
            f"{task.name} needs {' and '.join(names.values())}",
            cause="; ".join(f"{name} is missing: {flag.help}" for flag, name in names.items()),
            hint=task.usage,
        )
    return {flag.parameter: values.get(flag.parameter, flag.default) for flag in task.flags}


def given_flags(task: Task, words: Iterable[str]) -> dict[str, object]:
    """Values of the flags that a command line has, by parameter. Raises UsageError."""
    waiting, rest = task.positions, list(words)
    values: dict[str, object] = {}
    while rest:
        word = rest.pop(0)
        if word.startswith("-") and len(word) > 1:
            flag, value = _named(task, word, rest)
        else:
            free = [flag for flag in waiting if flag.parameter not in values]
            if not free:
                raise _unexpected(task, word)
            flag, value = free[0], word
        if flag.kind is list:
            value = [*values.get(flag.parameter, ()), value]  # type: ignore[misc]
        elif flag.parameter in values:
            raise UsageError(
                f"--{flag.name} is given twice",
                hint="pass it once; several archs are joined by commas"
                if flag.name == "arch"
                else "pass it once",
            )
        values[flag.parameter] = _converted(task, flag, value)
    return values


def near(word: str, known: Iterable[str]) -> str:
    """The known word that `word` is probably a misspelling of, or an empty text."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)), "")


def _named(task: Task, word: str, rest: list[str]) -> tuple[Flag, object]:
    """The flag of `--name`, `--name=value`, `--no-name` or `-j`; its value is taken from `rest`."""
    name, equals, inline = word.partition("=")
    flags = {f"--{flag.name}": flag for flag in task.flags}
    negated = {f"--no-{flag.name}": flag for flag in task.flags if flag.kind is bool and flag.default is True}
    name = f"--{SHORT[name]}" if name in SHORT else name
    flag = flags.get(name) or negated.get(name)
    if flag is None:
        guess = near(name, [*flags, *negated])
        raise UsageError(
            f"{task.name} has no flag {name}",
            cause=f"perhaps you meant {guess}" if guess else "",
            hint=f"./dev {task.name} --help",
        )
    if flag.kind is bool:
        if equals:
            raise UsageError(f"{name} takes no value, not {inline!r}", hint=f"./dev {task.name} {name}")
        return flag, name in flags
    if equals:
        return flag, inline
    if not rest or rest[0].startswith("--"):
        raise UsageError(
            f"{name} needs a value",
            cause=f"{name} {flag.placeholder}: {flag.help}",
            hint=f"./dev {task.name} --help",
        )
    return flag, rest.pop(0)


def _converted(task: Task, flag: Flag, value: object) -> object:
    if flag.kind not in _NUMBERS:
        return value
    try:
        return flag.kind(value)
    except ValueError:
        raise UsageError(
            f"--{flag.name} {value} is not {_NUMBERS[flag.kind]}",
            cause=f"--{flag.name} {flag.placeholder}: {flag.help}",
            hint=f"./dev {task.name} --help",
        ) from None


def _unexpected(task: Task, word: str) -> UsageError:
    named = [flag for flag in task.flags if flag.name == "arch"]
    is_arch = bool(named) and word.lower().startswith(("gfx", "mi"))
    return UsageError(
        f"{task.name} takes no argument {word!r}",
        cause="a value needs the name of its flag" if task.flags else "it has no flags",
        hint=f"./dev {task.name} --arch {word}" if is_arch else f"./dev {task.name} --help",
    )
