"""Errors that users meet: what failed, the likely cause, the next step; and text for terminals."""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

FAILED, USAGE, ENVIRONMENT, INPUT = 1, 2, 3, 4
"""Exit codes besides 0. `kind` in the JSON of an error is finer."""


class UserError(Exception):
    """Base of errors that users meet: what failed, its likely cause, the next step."""

    exit_code: ClassVar[int] = FAILED
    kind: ClassVar[str] = "error"

    def __init_subclass__(cls, *, exit_code: int = FAILED, kind: str = "error") -> None:
        super().__init_subclass__()
        cls.exit_code, cls.kind = exit_code, kind

    def __init__(self, what: str, *, cause: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.what]
        if self.cause:
            parts.append(f"Likely cause: {self.cause}")
        if self.hint:
            parts.append(f"Next step: {self.hint}")
        return "\n".join(parts)

    def fields(self) -> dict[str, str]:
        """For JSON."""
        return {"kind": self.kind, "what": self.what, "cause": self.cause, "hint": self.hint}

    def __reduce__(self) -> tuple[object, ...]:
        # keyword-only arguments do not survive pickling between worker processes by default
        return (_rebuild, (type(self), self.what, self.cause, self.hint))


def _rebuild(cls: type[UserError], what: str, cause: str, hint: str) -> UserError:
    return cls(what, cause=cause, hint=hint)


class UnknownNameError(UserError, exit_code=USAGE, kind="unknown-name"):
    """An arch, profile, kernel or family that does not exist."""


class UnsupportedError(UserError, exit_code=USAGE, kind="unsupported"):
    """A combination that is known and not supported."""


class ToolchainError(UserError, exit_code=ENVIRONMENT, kind="toolchain"):
    """A missing compiler, a wrong Triton version, a missing build tool."""


class OutputError(UserError, exit_code=ENVIRONMENT, kind="output"):
    """The output cannot be written: read-only, disk full, not a directory."""


class CacheError(UserError, exit_code=ENVIRONMENT, kind="cache"):
    """The cache folder cannot be used."""


class DecodeError(UserError, exit_code=INPUT, kind="decode"):
    """A text that is not its image's, or something in it that the emulator does not know."""


class ExecutionError(UserError, exit_code=FAILED, kind="execution"):
    """An emulated kernel did what it must not: an access out of bounds, a jump into nowhere, no end."""


_SHOWN, _SHOWN_LENGTH = 20, 240
"""Known names that a message lists, and their length: every arch and every profile, but not every image."""


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first names, joined by commas, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def suggest(name: str, known: Iterable[str]) -> str:
    """A 'perhaps you meant' clause with the nearest known names, or the first known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"perhaps you meant {' or '.join(near)}"
    most = next((n for n in range(_SHOWN) if len(", ".join(names[: n + 1])) > _SHOWN_LENGTH), _SHOWN)
    return f"known names: {listed(names, max(most, 1))}"


_SPECIAL = re.compile(r"[^\n\t -~]")


def printable(text: str) -> str:
    """`text` with `\\x1b` etc. for control and invisible characters, which could rewrite a terminal."""
    return _SPECIAL.sub(
        lambda c: c[0] if c[0].isprintable() else c[0].encode("unicode_escape").decode("ascii"), text
    )
