"""Answers of verification workers as JSON: a verdict on an image, or an error."""

import json
from dataclasses import asdict, replace
from functools import cache

from pydantic import TypeAdapter, ValidationError

from aotforge.errors import AotforgeError, CacheError, RulesError, ToolchainError
from aotforge.formats.untrusted_file import parse_json
from aotforge.verify.verdict import ImageTask, Verdict

_ERRORS = {one.kind: one for one in (RulesError, ToolchainError, CacheError)}


def write_answer(answer: Verdict | AotforgeError) -> bytes:
    """The bytes that `read_answer` reads."""
    fields = {"error": answer.fields()} if isinstance(answer, AotforgeError) else {"verdict": asdict(answer)}
    return json.dumps(fields).encode()


def read_answer(data: bytes, task: ImageTask) -> Verdict | AotforgeError:
    """A worker's answer to a task, with the task's own names and digests. Raises ValueError for other bytes."""
    try:
        fields = parse_json(data)
        if "error" in fields:
            return _error(**{name: str(text) for name, text in fields["error"].items()})
        found = _verdicts().validate_python(fields["verdict"])
    except (ValueError, TypeError, KeyError, AttributeError, ValidationError) as error:
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
    )


@cache
def _verdicts() -> TypeAdapter[Verdict]:
    return TypeAdapter(Verdict)


def _error(*, kind: str, what: str, cause: str, hint: str) -> AotforgeError:
    return _ERRORS[kind](what, cause=cause, hint=hint)
