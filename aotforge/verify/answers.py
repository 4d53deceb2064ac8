"""Answers of verification workers as JSON: a verdict on an image, or an error.

Nothing else is taken from them: a worker that executes an image of others may be under that image's control.
"""

import json
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from aotforge.errors import AotforgeError, CacheError, RulesError, ToolchainError
from aotforge.formats.untrusted_file import parse_json
from aotforge.verify.verdict import ImageTask, Verdict
from aotforge.virtual_gpu.emulator.classes import InstructionClass

_ERRORS = {one.kind: one for one in (RulesError, ToolchainError, CacheError)}
_CLASSES = {str(one) for one in InstructionClass}
_MOST, _MOST_SECONDS = 1 << 63, 1e6


def write_answer(answer: Verdict | AotforgeError) -> bytes:
    """The bytes that `read_answer` reads."""
    fields = {"error": answer.fields()} if isinstance(answer, AotforgeError) else {"verdict": asdict(answer)}
    return json.dumps(fields).encode()


def read_answer(data: bytes, task: ImageTask) -> Verdict | AotforgeError:
    """A worker's answer to a task, with the task's own names and digests. Raises ValueError for other bytes."""
    try:
        fields = _plain(parse_json(data))
        if "error" in fields:
            return _error(**{name: str(text) for name, text in fields["error"].items()})
        found = _verdicts().validate_python(fields["verdict"])
        if not {kind for kind, _ in found.mix} <= _CLASSES:
            raise ValueError("an unknown class of instructions")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ValidationError) as error:
        raise ValueError("an answer without a verdict") from error
    return replace(
        found,
        key=task.key,
        label=task.label,
        digest=task.digest,
        resources=task.resources,
        verifier_digest=task.verifier_digest,
        skipped=False,
        cached=False,
        seconds=max(0.0, min(_MOST_SECONDS, found.seconds)),
    )


@cache
def _verdicts() -> TypeAdapter[Verdict]:
    return TypeAdapter(Verdict)


def _plain(value: Any) -> Any:
    """The values of a JSON text. Raises ValueError for numbers of more than 63 bits and texts that are not Unicode."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, int) and not -_MOST <= value < _MOST:
        raise ValueError("a number of more than 63 bits")
    elif isinstance(value, dict):
        for item in value.items():
            _plain(list(item))
    elif isinstance(value, list):
        for one in value:
            _plain(one)
    return value


def _error(*, kind: str, what: str, cause: str, hint: str) -> AotforgeError:
    return _ERRORS[kind](what, cause=cause, hint=hint)
