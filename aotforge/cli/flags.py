"""Tasks of invoke whose flags are annotated parameters, and annotated fields of requests."""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from invoke.collection import Collection
from invoke.exceptions import ParseError
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.tasks import Task

from aotforge.base.progress import Report
from aotforge.cli.output import Json, Output, exit_codes, print_report, with_program_name
from aotforge.cli.settings import kind_of, setting
from aotforge.cli.values import CONVERTED, GIVEN, absolute

SHORT = {"jobs": "j", "quiet": "q"}
"""Short flags besides -h, the same for every task that has the flag."""

TASKS: dict[str, "FlagTask"] = {}
"""Every task by its name: `task` or `group.task`."""


Body = Callable[..., Report | None]

DEFAULT = {"build": "linux", "release": "make"}
"""Names of the tasks that are also those of a group."""


PARAMETER = {"archs": "arch"}
"""Fields of requests whose flag has another name."""


class Flag(Argument):
    """An argument of invoke that refuses a flag, another word than its choices, or no number as its value."""

    def __init__(self, *, choices: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(**options)
        self.choices = choices
        self.context: ParserContext | None = None

    def __deepcopy__(self, memo: object) -> "Flag":
        return copy.copy(self)  # values are replaced, never changed: a third of a short command's time

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Raises ParseError."""
        name = f"--{self.names[0]}"
        if isinstance(value, str) and value.startswith("--"):
            what = f"unknown flag {value}" if self.positional else f"{name} needs a value, not {value}"
            raise ParseError(what, self.context)
        if self.choices and value not in self.choices:
            raise ParseError(
                f"{name} {value} is not valid; its values are {', '.join(self.choices)}", self.context
            )
        try:
            super().set_value(value, cast)
        except ValueError:
            kind = "an integer" if self.kind is int else "a number"
            raise ParseError(f"{name} {value} is not {kind}; {name}: {self.help}", self.context) from None


class FlagTask(Task[Any]):
    """A task whose body takes flags and requests of flags. What it returns is printed, in JSON with --json;
    errors become exit codes."""

    def __init__(self, body: Body, **options: Any) -> None:
        super().__init__(body, positional=(), **options)
        self.__doc__ = with_program_name(inspect.getdoc(body) or "")
        signature = inspect.signature(body)
        self.parameters = dict(signature.parameters)
        self.requests = {
            name: parameter.annotation
            for name, parameter in self.parameters.items()
            if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)
        }
        self.json = signature.return_annotation is not None and Output not in self.requests.values()

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Flags of the body; those without a default are positional, in their order."""
        flags: list[Argument] = []
        for name, parameter in self.parameters.items():
            if kind := self.requests.get(name):
                flags += list(_request_flags(kind))
            else:
                required = parameter.default is inspect.Parameter.empty
                flags.append(
                    _flag(name, parameter.annotation, None if required else parameter.default, required)
                )
        return [*flags, _flag("json", Json, False)] if self.json else flags

    def __call__(self, *_context: Any, **values: Any) -> Any:
        """Runs the body with values and requests; exits with the code of an error."""
        json = bool(values.get("json"))
        with exit_codes(json=json, events=values.get("progress") == "json"):
            made = {name: make_request(kind, values) for name, kind in self.requests.items()}
            own = {name: values[name] for name in self.parameters.keys() - made.keys()}
            if (report := self.body(**made, **own)) is not None:
                print_report(report, json=json)


def command(name: str) -> Callable[[Body], Body]:
    """Makes a function the task `name`, which may have a group: `group.task`."""

    def register(body: Body) -> Body:
        TASKS[name] = FlagTask(body, name=name.rpartition(".")[2])
        return body

    return register


def namespace(names: Iterable[str] = ()) -> Collection:
    """The tasks, or some of them, as a collection; the task of a group's own name is its default."""
    root = Collection()
    chosen = {name: TASKS[name] for name in names or sorted(TASKS)}
    groups = {group: Collection(group) for name in chosen if (group := name.rpartition(".")[0])}
    for name, task in chosen.items():
        group, _, last = name.rpartition(".")
        if name in groups:
            groups[name].add_task(task, name=DEFAULT[name], default=True)
        else:
            groups.get(group, root).add_task(task, name=last)
    for collection in groups.values():
        root.add_collection(collection)
    return root


def make_request(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """The request of flags, aotforge.toml and defaults. Raises UnknownNameError, ManifestError ..."""
    made: dict[str, object] = {}
    for field in fields(kind):
        if get_origin(field.type) is not Annotated:
            if field.name in GIVEN:
                made[field.name] = GIVEN[field.name]()
            continue
        type_, text, *_ = get_args(field.type)
        value = values.get(PARAMETER.get(field.name, field.name))
        if value is None or value is field.default is True:
            value = setting(field.name, text)
        if field.name in CONVERTED:
            made[field.name] = CONVERTED[field.name](value)
        elif value is not None:
            made[field.name] = absolute(value) if Path in (type_, *get_args(type_)) else value
    return kind(**made)


def _request_flags(kind: type[Any]) -> Iterator[Flag]:
    """The flags of a request: annotated fields that are not marked as a setting of aotforge.toml."""
    for field in fields(kind):
        if get_origin(field.type) is Annotated and "setting" not in get_args(field.type)[2:]:
            required = field.default is MISSING and field.name != "cache"
            name = PARAMETER.get(field.name, field.name)
            yield _flag(name, field.type, True if field.default is True else None, required)


def _flag(name: str, annotation: Any, default: Any, required: bool = False) -> Flag:
    kind, text, *choices = get_args(annotation)
    main = name.strip("_").replace("_", "-")
    return Flag(
        names=[main, *([SHORT[main]] if main in SHORT else [])],
        attr_name=name if name != main else None,
        kind=kind_of(kind),
        default=default,
        help=text,
        positional=required,
        choices=tuple(choices),
    )
