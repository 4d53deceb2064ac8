"""Results, reports, messages and errors of tasks, with exit codes."""

import errno
import json as json_
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any

from aotforge.base.printable import printable
from aotforge.base.progress import Report
from aotforge.base.progress_events import write_event
from aotforge.cli.settings import INSTALLED
from aotforge.errors import INTERRUPTED, AotforgeError, OutputError, UsageError

Json = Annotated[bool, "print JSON for programs"]
Progress = Annotated[
    str,
    "auto: a line on a terminal, only notes elsewhere; json: events on stderr (docs/errors.md)",
    "auto",
    "json",
]

_COMMAND = re.compile(r"\./dev (?=TASK|-|[a-z])")
_MACHINE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is mounted read-only",
    errno.ENAMETOOLONG: "a path on the command line or in the environment is too long",
}
_AS_EVENTS: ContextVar[bool] = ContextVar("_AS_EVENTS", default=False)
"""True where messages on standard error are events."""

_PIECE = 1 << 24
"""Characters of a result that are written at once: of more than 2 GiB Linux writes 2 GiB without an error."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """Flags of tasks that take long. Raises UsageError for events without progress."""

    json: Json = False
    quiet: Annotated[bool, "no progress and no notes"] = False
    progress: Progress = "auto"

    def __post_init__(self) -> None:
        if self.events and self.quiet:
            raise UsageError(
                "--progress json and --quiet exclude each other",
                cause="--quiet means no progress",
                hint="omit one of them",
            )

    @property
    def events(self) -> bool:
        """True where progress is written as events."""
        return self.progress == "json"

    @property
    def silent(self) -> bool:
        """True where no lines of progress are printed."""
        return self.quiet or self.json

    def report(self, report: Report, notes: Iterable[str] = ()) -> None:
        """Prints a report after its notes."""
        print_report(report, json=self.json, notes=() if self.quiet else notes)


@contextmanager
def exit_codes(*, json: bool, events: bool = False) -> Iterator[None]:
    """Errors become a message or an event on stderr (JSON on stdout with --json) and an exit code."""
    before = _AS_EVENTS.set(events)
    try:
        yield
    except (AotforgeError, OSError) as raised:
        error = raised if isinstance(raised, AotforgeError) else _machine_error(raised)
        if json:
            print_result(json_.dumps({"error": error.fields()}))
        _print_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print_status("interrupted; finished work is kept, the same command resumes")
        sys.exit(INTERRUPTED)
    finally:
        _AS_EVENTS.reset(before)


def _machine_error(error: OSError) -> AotforgeError:
    """A full disk, which temporary files meet anywhere, or a too long name. Raises other errors again."""
    if error.errno not in _MACHINE:
        raise error
    return OutputError(
        f"cannot use {error.filename or 'a file'}: {error.strerror}",
        cause=_MACHINE[error.errno],
        hint="TMPDIR names another folder for temporary files; then run the same command again",
    )


def print_checked(report: Report, check: Callable[[], None], *, json: bool) -> None:
    """The report, then what `check` raises; with --json both are one value with the field `error`."""
    try:
        check()
    except AotforgeError as error:
        if not json:
            print_report(report, json=False)
            raise
        fields: Any = report.fields()
        print_result(json_.dumps({**fields, "error": error.fields()}, indent=1))
        _print_error(error)
        sys.exit(error.exit_code)
    print_report(report, json=json)


def print_report(report: Report, *, json: bool, notes: Iterable[str] = ()) -> None:
    """The report on standard output, as text after its `notes`."""
    lines = () if json else [*(f"note: {note}" for note in notes), *report.lines()]
    print_either(report.fields() if json else None, lines, json=json)


def print_either(values: object, lines: Iterable[str], *, json: bool) -> None:
    """JSON values or lines, on standard output."""
    text = json_.dumps(values, indent=1) if json else "\n".join(lines)
    if text:
        print_result(text)


def print_result(text: str) -> None:
    """A result, on standard output."""
    shown = printable(with_program_name(text), styled=True)
    for start in range(0, len(shown), _PIECE):
        sys.stdout.write(shown[start : start + _PIECE])
    sys.stdout.write("\n")
    sys.stdout.flush()


def print_status(text: str) -> None:
    """A message about progress or an error, on standard error."""
    if _AS_EVENTS.get():
        write_event(sys.stderr, "note", text=with_program_name(text))
        return
    sys.stderr.write(f"{printable(with_program_name(text))}\n")
    sys.stderr.flush()


def _print_error(error: AotforgeError) -> None:
    if _AS_EVENTS.get():
        write_event(sys.stderr, "error", error=error.fields())
    else:
        print_status(f"error: {error}")


def with_program_name(text: str) -> str:
    """The text with the console script's name where it is installed: messages are written for a checkout."""
    return _COMMAND.sub("aotforge ", text) if INSTALLED else text


def use_color() -> bool:
    """True for a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
