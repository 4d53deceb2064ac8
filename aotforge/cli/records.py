"""Tasks that show builds and settings: status, report, config.show."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from aotforge.base.child_processes import is_secret
from aotforge.cli.command import (
    HOME,
    ROOT,
    TASKS,
    Cache,
    Json,
    cache_folder,
    cli_command,
    print_either,
    print_result,
)
from aotforge.cli.flags import REQUIRED, Flag, given_flags
from aotforge.errors import UnknownNameError, suggest

_VARIABLE = re.compile(r"default: (AOTFORGE_[A-Z_]+)(?:, else ([^)]+))?")
_PROJECT: Mapping[str, tuple[str, str]] = {
    "profile": ("manifests/profiles.yaml", r"^default: *(\S+)"),
    "version": ("manifests/release.yaml", r"^api_level: *(\S+)"),
}
"""Flags whose default is in a file of the project: the file and the pattern of its line."""

_OTHERS: Mapping[str, str] = {
    "AOTFORGE_HOME": ".aotforge of the checkout",
    "AOTFORGE_PYTHON": "the first Python 3.11 to 3.15 on PATH",
    "AOTFORGE_STRICT": "not set: a cache that others can change is a warning",
    "AOTFORGE_ZSTD_SOURCE": "fetched from the package index",
    "CC": "cc",
    "CXX": "c++",
    "SOURCE_DATE_EPOCH": "manifests/release.yaml",
    "AWS_ENDPOINT_URL_S3": "Amazon's",
    "PIP_INDEX_URL": "pip's configuration",
    "NO_COLOR": "not set",
}
"""Variables that no flag names, with what holds without them."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A setting. `source`: flag, environment, project file or default, with its name."""

    name: str
    value: str
    source: str


@cli_command("status")
def status(
    cache: Cache = None,
    count: Annotated[int, "builds that are listed, the newest first (default 10)"] = 10,
    json: Json = False,
) -> None:
    """Running and past builds of a cache folder: state, time, images compiled and found."""
    from aotforge.pipeline.build_record import read_records

    records = read_records(cache_folder(cache))[:count]
    brief = [
        {name: value for name, value in asdict(one).items() if name not in ("compiled", "executed")}
        | {"compiled": len(one.compiled), "executed": len(one.executed), "seconds": one.seconds}
        for one in records
    ]
    print_either(brief, [one.line() for one in records] or ["no builds"], json=json)


@cli_command("report", positional=["name"])
def report(
    name: Annotated[
        str | None, "a build that `./dev status` lists (default: the newest that has ended)"
    ] = None,
    output: Annotated[str, "the trace's file (default: build-trace.json)"] = "build-trace.json",
    cache: Cache = None,
) -> None:
    """Write a build's stages and jobs over time as a Chrome trace, which https://ui.perfetto.dev opens."""
    from aotforge.base.files import write_atomic
    from aotforge.devtools.build_report import build_trace
    from aotforge.pipeline.build_record import read_records

    records = {one.name: one for one in read_records(cache_folder(cache))}
    ended = next((one for one in records.values() if one.state != "running"), None)
    record = records.get(name) if name else ended
    if record is None:
        raise UnknownNameError(
            f"unknown build {name}" if name else "no build has ended here",
            cause=suggest(name, records) if name and records else "",
            hint="./dev status lists the builds of a cache folder",
        )
    path = Path(output).absolute()
    write_atomic(path, build_trace(record).encode())
    print_result(f"{path}: build {record.name}, {record.state}")


@cli_command("config.show", forwards=True)
def config_show(arguments: Annotated[Sequence[str], "a task and its flags; --json"]) -> None:
    """Settings and where each comes from: flag, environment, project file, default; of a task with its flags, or of all tasks."""
    from aotforge.cli.program import find_task

    words = [word for word in arguments if word != "--json"]
    if words:
        task = find_task(words[0])
        given = given_flags(task, words[1:])
        settings = [_setting(flag, given) for flag in task.flags]
    else:
        settings = [*_variables(), *_project_settings()]
    width = max((len(one.name) for one in settings), default=0)
    lines = [f"{one.name:{width}}  {one.value}  ({one.source})" for one in settings]
    print_either([asdict(one) for one in settings], lines, json="--json" in arguments)


def _setting(flag: Flag, given: Mapping[str, object]) -> Setting:
    """A flag of a task with its value on this command line."""
    name, variable = f"--{flag.name}", _VARIABLE.search(flag.help)
    if flag.parameter in given:
        return Setting(name=name, value=_text(given[flag.parameter]), source="flag")
    if variable and os.environ.get(variable[1]):
        return Setting(
            name=name, value=_shown(variable[1], os.environ[variable[1]]), source=f"environment {variable[1]}"
        )
    if flag.parameter in _PROJECT:
        file, pattern = _PROJECT[flag.parameter]
        return Setting(name=name, value=_project_value(file, pattern), source=f"project file {file}")
    if flag.default is REQUIRED:
        return Setting(name=name, value="-", source="required")
    described = re.search(r"\(default: ([^)]*)\)", flag.help)
    rule = (variable[2] or "not set") if variable else described[1] if described else "not set"
    value = rule if flag.default is None else _text(flag.default)
    return Setting(name=name, value=value, source="default")


def _variables() -> Iterable[Setting]:
    """Every variable that a flag names as its default, and others that tasks read."""
    flags = [flag for task in TASKS.values() for flag in task.flags]
    named = {found[1]: found[2] or "not set" for flag in flags if (found := _VARIABLE.search(flag.help))}
    places = {"AOTFORGE_CACHE": str(HOME / "cache"), "AOTFORGE_HOME": str(ROOT / ".aotforge")}
    for name, default in sorted({**named, **_OTHERS, **places}.items()):
        value = os.environ.get(name)
        if name == "AOTFORGE_HOME" and value == default:
            value = None  # ./dev has set it
        yield Setting(
            name=name,
            value=default if value is None else _shown(name, value),
            source="default" if value is None else "environment",
        )


def _project_settings() -> Iterable[Setting]:
    rows = (
        *((name, *place) for name, place in _PROJECT.items()),
        ("revision", "manifests/release.yaml", r"^revision: *(\S+)"),
        ("triton", "requirements/build.in", r"^triton==(\S+)"),
    )
    for name, file, pattern in rows:
        yield Setting(name=name, value=_project_value(file, pattern), source=f"project file {file}")


def _project_value(file: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else "unknown"


def _shown(name: str, value: str) -> str:
    """A variable's value; keys are not shown, nor user, password and query of an address."""
    from aotforge.publish.stores.store import redact_urls

    if is_secret(name) or "\n" in value:
        return "set, not shown"
    return redact_urls(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return _shown("", str(value))
