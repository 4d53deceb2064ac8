"""Results, reports, messages and errors of tasks, with exit codes."""

import errno
import json as json_
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from aotforge.base.progress import OnProgress, Progress, Report, progress, write_event
from aotforge.cli.settings import INSTALLED
from aotforge.errors import INTERRUPTED, AotforgeError, OutputError, UsageError, printable

if TYPE_CHECKING:
    from aotforge.pipeline.display import BuildDisplay

Json = Annotated[bool, "print JSON for programs"]
ShownProgress = Annotated[
    str,
    "auto: a line on a terminal, only notes elsewhere; json: events on stderr (docs/errors.md)",
    "auto",
    "json",
]

_COMMAND = re.compile(r"\./dev (?=TASK|-|[a-z])")
_STYLE = re.compile(r"(\x1b\[(?:[012]|3[1-6])m)")
_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG}
_AS_EVENTS: ContextVar[bool] = ContextVar("_AS_EVENTS", default=False)
"""True where messages on standard error are events."""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A report of values for `--json` and of `text`; `require_passed` raises what a check found."""

    values: object
    text: Sequence[str] = ()
    require_passed: Callable[[], None] = lambda: None

    def fields(self) -> object:
        """JSON values."""
        return self.values

    def lines(self) -> Sequence[str]:
        """Lines of text."""
        return self.text


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Output:
    """Flags of tasks that take long. Raises UsageError for events without progress."""

    json: Json = False
    quiet: Annotated[bool, "no progress and no notes"] = False
    progress: ShownProgress = "auto"

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

    def progress_of(self, work: str = "") -> Progress:
        """Progress of work."""
        return progress(work, quiet=self.silent, events=self.events)

    @contextmanager
    def bytes(self) -> Iterator[OnProgress]:
        """Progress in bytes."""
        with self.progress_of() as shown:
            yield shown.bytes

    def build(self) -> "BuildDisplay":
        """Progress of a build."""
        from aotforge.pipeline.display import BuildDisplay

        return BuildDisplay(quiet=self.silent, events=self.events)

    def noted(self, report: Report, notes: Iterable[str]) -> Result:
        """A report whose notes come before its lines."""
        shown = () if self.quiet else notes
        return Result(report.fields(), [*(f"note: {note}" for note in shown), *report.lines()])


@contextmanager
def exit_codes(*, json: bool, events: bool = False) -> Iterator[None]:
    """Errors become a message or an event on stderr (JSON on stdout with --json) and an exit code."""
    before = _AS_EVENTS.set(events)
    try:
        yield
    except (AotforgeError, OSError) as raised:
        error = raised if isinstance(raised, AotforgeError) else _machine_error(raised)
        _exit(error, json_.dumps({"error": error.fields()}) if json else "")
    except KeyboardInterrupt:
        print_status("interrupted; finished work is kept, the same command resumes")
        sys.exit(INTERRUPTED)
    finally:
        _AS_EVENTS.reset(before)


def _machine_error(error: OSError) -> AotforgeError:
    """A full disk, which temporary files meet anywhere, or a too long name. Raises other errors again."""
    if error.errno not in _MACHINE:
        raise error
    from aotforge.base.files import CAUSES

    return OutputError(
        f"cannot use {error.filename or 'a file'}: {error.strerror}",
        cause=CAUSES[error.errno],
        hint="TMPDIR names another folder for temporary files; then run the same command again",
    )


def _exit(error: AotforgeError, result: str) -> NoReturn:
    """Prints a result, if there is one, and an error; exits with its code."""
    if result:
        print_result(result)
    if _AS_EVENTS.get():
        write_event(sys.stderr, "error", error=error.fields())
    else:
        print_status(f"error: {error}")
    sys.exit(error.exit_code)


def print_report(report: Report, *, json: bool) -> None:
    """The report, then what its `require_passed` raises; in JSON both are one value with a field `error`."""
    fields: Any = report.fields() if json else None
    try:
        getattr(report, "require_passed", lambda: None)()
    except AotforgeError as error:
        shown = json_.dumps({**fields, "error": error.fields()}, indent=1) if json else _text(report)
        _exit(error, shown)
    if shown := json_.dumps(fields, indent=1) if json else _text(report):
        print_result(shown)


def _text(report: Report) -> str:
    return "\n".join(report.lines())


def print_result(text: str) -> None:
    """A result, on standard output; of escapes only this program's colours pass."""
    parts = enumerate(_STYLE.split(with_program_name(text)))
    sys.stdout.write("".join(part if number % 2 else printable(part) for number, part in parts) + "\n")
    sys.stdout.flush()


def print_status(text: str) -> None:
    """A message about progress or an error, on standard error."""
    if _AS_EVENTS.get():
        write_event(sys.stderr, "note", text=with_program_name(text))
        return
    sys.stderr.write(f"{printable(with_program_name(text))}\n")
    sys.stderr.flush()


def with_program_name(text: str) -> str:
    """The text with the console script's name where it is installed: messages are written for a checkout."""
    return _COMMAND.sub("aotforge ", text) if INSTALLED else text


def use_color() -> bool:
    """True for a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
