"""Tasks made of functions: parameters are flags, `AotforgeError` is an exit code, reports are printed."""

import errno
import inspect
import json as json_
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from aotforge.base.cache_trust import check_cache_name
from aotforge.base.child_processes import ENGINE, NETWORK, child_environment, run_child
from aotforge.base.printable import printable
from aotforge.base.progress import Report
from aotforge.base.progress_events import write_event
from aotforge.cli.flags import REQUIRED, Flag, Task, kind_of
from aotforge.errors import AotforgeError, OutputError, UnsupportedError, UsageError
from aotforge.pipeline.requests import ONLY
from vgpu.cache import check_cache, user_home

_DATA = Path(__file__).resolve().parents[1] / "data"
INSTALLED = _DATA.is_dir()
"""True for the installed wheel, which has the files of a checkout that its tasks read in `aotforge/data`."""

ROOT = _DATA if INSTALLED else Path(__file__).resolve().parents[2]


_USER_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or user_home() / ".cache") / "aotforge"
HOME = Path(os.environ.get("AOTFORGE_HOME") or (_USER_CACHE if INSTALLED else ROOT / ".aotforge"))

Arch = Annotated[
    str, "arch or product, e.g. gfx908 or MI100, several separated by commas; native: this machine's GPUs"
]
Profile = Annotated[
    str | None, "what to build: smoke, quick, core (the default) or full; see manifests/profiles.yaml"
]
OnlyNames = Annotated[str | None, ONLY]
Cache = Annotated[str | None, "cache folder (default: AOTFORGE_CACHE, else .aotforge/cache)"]
Json = Annotated[bool, "print JSON for programs"]
Quiet = Annotated[bool, "no progress and no notes"]
ProgressKind = Annotated[
    str,
    "auto (the default): a line on a terminal, only notes elsewhere, nothing with --json; json: events on standard "
    "error, one JSON object a line (docs/errors.md)",
]

PROGRESS_KINDS = ("auto", "json")

_COMMAND = re.compile(r"\./dev (TASK|--?[a-z]+|[a-z-]+(?:\.[a-z-]+)?)")
_MACHINE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is mounted read-only",
    errno.ENAMETOOLONG: "a path on the command line or in the environment is too long",
}
_AS_EVENTS: ContextVar[bool] = ContextVar("_AS_EVENTS", default=False)
"""True where messages on standard error are events."""

_PIECE = 1 << 24
"""Characters of a result that are written at once: of more than 2 GiB Linux writes 2 GiB, and Python reports no error."""

TASKS: dict[str, Task] = {}
"""Every task by its name: `task` or `group.task`."""


def cli_command(
    name: str, *, positional: Sequence[str] = (), forwards: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function the task `name`; `positional` and `forwards` are those of `Task`.

    A parameter annotated with `Annotated[type, help]` is a flag. A parameter annotated with a request (a dataclass of
    `aotforge.pipeline.requests`) is replaced by the flags of its annotated fields.
    """

    def register(body: Callable[..., None]) -> Callable[..., None]:
        flags: dict[str, Flag] = {}
        requests: dict[str, type[Any]] = {}
        own: set[str] = set()
        for parameter in inspect.signature(body).parameters.values():
            if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
                requests[parameter.name] = parameter.annotation
                flags |= {flag.parameter: flag for flag in _request_flags(parameter.annotation)}
            else:
                own.add(parameter.name)
                flags[parameter.name] = _flag(parameter.name, parameter.annotation, parameter.default)

        @wraps(body)
        def run(**values: Any) -> None:
            made = {one: make_request(kind, values) for one, kind in requests.items()}
            body(**made, **{flag: value for flag, value in values.items() if flag in own})

        TASKS[name] = Task(
            name=name, body=run, flags=tuple(flags.values()), positional=tuple(positional), forwards=forwards
        )
        return body

    return register


@contextmanager
def exit_codes(*, json: bool, events: bool = False) -> Iterator[None]:
    """Errors become a message or an event on stderr (JSON on stdout with --json) and the exit code of their kind."""
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
        sys.exit(130)
    finally:
        _AS_EVENTS.reset(before)


def _machine_error(error: OSError) -> AotforgeError:
    """A full disk, which temporary files meet anywhere, or a name that is too long for this machine. Raises other errors again."""
    if error.errno not in _MACHINE:
        raise error
    return OutputError(
        f"cannot use {error.filename or 'a file'}: {error.strerror}",
        cause=_MACHINE[error.errno],
        hint="TMPDIR names another folder for temporary files; then run the same command again",
    )


def print_checked(report: Report, check: Callable[[], None], *, json: bool) -> None:
    """The report, then what `check` raises; with --json both are one value, whose `error` is that of the check."""
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
    shown = printable(_named(text), styled=True)
    for start in range(0, len(shown), _PIECE):
        sys.stdout.write(shown[start : start + _PIECE])
    sys.stdout.write("\n")
    sys.stdout.flush()


def print_status(text: str) -> None:
    """A message about progress or an error, on standard error."""
    if _AS_EVENTS.get():
        write_event(sys.stderr, "note", text=_named(text))
        return
    sys.stderr.write(f"{printable(_named(text))}\n")
    sys.stderr.flush()


def _print_error(error: AotforgeError) -> None:
    if _AS_EVENTS.get():
        write_event(sys.stderr, "error", error=error.fields())
    else:
        print_status(f"error: {error}")


def requests_events(words: Sequence[str]) -> bool:
    """True for a command line with `--progress json`."""
    return "--progress=json" in words or ("--progress", "json") in pairwise(words)


def progress_events(kind: str, *, quiet: bool = False) -> bool:
    """True where --progress requests events. Raises UsageError for a value that is not valid, and for events with --quiet."""
    if kind not in PROGRESS_KINDS:
        raise UsageError(
            f"--progress {kind} is not valid",
            cause=f"its values are {' and '.join(PROGRESS_KINDS)}",
            hint="--progress json",
        )
    if kind == "json" and quiet:
        raise UsageError(
            "--progress json and --quiet exclude each other",
            cause="--quiet means no progress",
            hint="omit one of them",
        )
    return kind == "json"


def _named(text: str) -> str:
    """The text with the console script's name in commands that it has: messages are written for a checkout."""
    if not INSTALLED or "./dev" not in text:
        return text
    return _COMMAND.sub(
        lambda found: f"aotforge {found[1]}" if found[1] in TASKS or found[1][:1] in "-T" else found[0], text
    )


def archs_of(arch: str | None) -> tuple[str, ...]:
    """The archs of an --arch flag; none where it is omitted. `native`: those of this machine's GPUs.

    Raises as `find_arch` and `native_archs`, and ManifestError.
    """
    if not arch:
        return ()
    from aotforge.base.architectures import load_architectures, parse_archs

    known = load_architectures(ROOT / "manifests")
    if arch.strip().lower() == "native":
        from aotforge.targets.installed import native_archs

        native = native_archs()
        served = [one for one in native if one in known.architectures]
        others = ", ".join(one for one in native if one not in served)
        arch = ",".join(served or native)
        print_status(f"note: native is {arch}" + (f"; no kernels for {others}" if served and others else ""))
    found = parse_archs(arch, known)
    for one in found:
        if one.note:
            print_status(f"note: {one.note}")
    return tuple(one.arch for one in found)


def one_arch(arch: str) -> str:
    """The arch of a flag that takes one. Raises UsageError for several, and as `archs_of`."""
    if len(found := archs_of(arch)) != 1:
        raise UsageError(f"--arch {arch!r} is not one arch", hint="--arch gfx908")
    return found[0]


def named_cache(folder: str | None) -> Path:
    """The flag, else AOTFORGE_CACHE, else .aotforge/cache."""
    return Path(folder or os.environ.get("AOTFORGE_CACHE") or HOME / "cache").absolute()


def cache_folder(folder: str | None) -> Path:
    """As `named_cache`. Warns or raises CacheError as `check_cache`, and raises it for its name."""
    found = named_cache(folder)
    check_cache_name(found)
    check_cache(found, print_status)
    return found


def job_count(count: int | None, flag: str = "--jobs") -> int | None:
    """The flag. Raises UsageError for a number below 1."""
    if count is not None and count < 1:
        raise UsageError(
            f"{flag} {count} is not a valid number",
            cause=f"{flag} is at least 1",
            hint=f"omit {flag}, or {flag} 1",
        )
    return count


def absolute(path: str | None) -> Path | None:
    """The flag as an absolute path."""
    return Path(path).absolute() if path else None


def names(text: str | None) -> tuple[str, ...]:
    """The names of a flag, separated by commas."""
    return tuple(part for part in (text or "").split(",") if part)


def pairs(text: str) -> dict[str, str]:
    """`a=1,b=2` as a table. Raises UnsupportedError."""
    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(name and sign and value for name, sign, value in parts):
        raise UnsupportedError(f"{text!r} is not a list of NAME=VALUE", hint="NAME=VALUE,NAME=VALUE")
    return {name: value for name, _, value in parts}


def run_command(command: Sequence[str]) -> int:
    """Exit status of a command that runs in the checkout and prints for itself."""
    own = child_environment({"PYTHONPATH": str(ROOT)}, keep=(*NETWORK, *ENGINE))
    return run_child(command, environment=own, cwd=ROOT).returncode


_PARSERS: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    "archs": ("arch", archs_of),
    "cache": ("cache", cache_folder),
    "jobs": ("jobs", job_count),
    "only": ("only", names),
    "images": ("images", lambda text: tuple(map(Path, text.split(","))) if text else ()),
}
"""Fields of requests whose flag has another name or type: flag, conversion."""

_GIVEN: Mapping[str, Callable[[], object]] = {
    "root": lambda: ROOT,
    "home": lambda: HOME,
    "environment": lambda: dict(os.environ),
}
"""Fields of requests that are not flags."""


def _flag(parameter: str, annotation: object, default: object) -> Flag:
    kind, text = get_args(annotation)
    return Flag(parameter=parameter, kind=kind_of(kind), default=default, help=text)


def _request_flags(kind: type[Any]) -> Iterator[Flag]:
    """The flags of a request. Only `archs` is required where it has no default."""
    for field in fields(kind):
        if get_origin(field.type) is Annotated:
            default = REQUIRED if field.default is MISSING else field.default
            if field.name in _PARSERS and (field.name != "archs" or default is not REQUIRED):
                default = None
            yield _flag(_PARSERS.get(field.name, (field.name,))[0], field.type, default)


def make_request(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """The request of flags. Raises UnknownNameError, UnsupportedError for values that are not valid."""
    made: dict[str, object] = {}
    for field in fields(kind):
        if field.name in _GIVEN:
            made[field.name] = _GIVEN[field.name]()
        elif field.name in _PARSERS:
            flag, parse = _PARSERS[field.name]
            made[field.name] = parse(values[flag])
        elif get_args(get_args(field.type)[0])[:1] == (Path,) or get_args(field.type)[0] is Path:
            made[field.name] = absolute(values[field.name])
        else:
            made[field.name] = values[field.name]
    return kind(**made)
