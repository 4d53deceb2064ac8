"""Tasks of `invoke TASK`: names, flags and errors of `./dev TASK`, in an environment that exists."""

from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import Task as InvokeTask

from aotforge.cli.command import TASKS
from aotforge.cli.flags import REQUIRED, Flag, Task
from aotforge.cli.program import main


def make_namespace() -> Collection:
    """Every task but those that forward their words, which invoke would parse."""
    namespace = Collection()
    for group in {name.rpartition(".")[0] for name in TASKS} - {""}:
        namespace.add_collection(Collection(group))
    for name, task in TASKS.items():
        group, _, last = name.rpartition(".")
        if task.forwards:
            continue
        if name in namespace.collections:  # invoke runs it as the default task of its group
            namespace.collections[name].add_task(_invoke_task(task, "make"), default=True)
        else:
            (namespace.collections[group] if group else namespace).add_task(_invoke_task(task, last))
    return namespace


def _invoke_task(task: Task, name: str) -> InvokeTask[Any]:
    """A task whose flags are all optional for invoke, so that `main` reports what is missing or not valid.

    Invoke takes any word as the value of a missing positional argument, `--help` too, which `main` then finds.
    """
    positional = [name for name in task.positional if _flag(task, name).default is REQUIRED]

    def body(_context: Context, **values: Any) -> None:
        main([task.name, *_words(task, values)])

    body.__doc__ = task.summary
    parameters = [
        Parameter(
            flag.parameter,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if flag.parameter in positional else _default(flag),
        )
        for flag in task.flags
    ]
    context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD)
    body.__signature__ = Signature([context, *parameters])  # type: ignore[attr-defined]
    return InvokeTask(
        body,
        name=name,
        positional=positional,
        iterable=[flag.parameter for flag in task.flags if flag.kind is list],
        help={flag.parameter: flag.help for flag in task.flags},
        auto_shortflags=False,
    )


def _flag(task: Task, parameter: str) -> Flag:
    return next(flag for flag in task.flags if flag.parameter == parameter)


def _default(flag: Flag) -> object:
    """Only flags without a value differ for invoke's parser."""
    return flag.default if flag.kind is bool else None


def _words(task: Task, values: Mapping[str, Any]) -> Iterator[str]:
    """The command line that gives these values."""
    for flag in task.flags:
        value = values[flag.parameter]
        if flag.kind is bool:
            if value is not flag.default:
                yield f"--{flag.name}" if value else f"--no-{flag.name}"
        elif value in ("-h", "--help"):
            yield str(value)
        else:
            for one in value if flag.kind is list else [value]:
                if one is not None:
                    yield from (f"--{flag.name}", str(one))
