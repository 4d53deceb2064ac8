"""Store of passed verdicts: one object per image, cases and emulator, verified on every read.

An object is the SHA-256 of the rest in its first line, then JSON. Only passed verdicts are kept, so a failure
is reproduced every time.
"""

import hashlib
import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from aotforge.base.files import errors_as, write_atomic
from aotforge.base.object_cache import NOT_SHARED, DamagedObjectError, ObjectCache, SharedObjects
from aotforge.errors import CacheError
from aotforge.verify.verdict import ImageTask, Verdict

VERSION = 6
_VERDICT = TypeAdapter(Verdict)


def verdict_key(task: ImageTask) -> str:
    """SHA-256 of everything that can change a verdict."""
    # dispatch decides which cases the image serves, whether it comes from a plan or a pack; other images have
    # no part
    uses = [
        (
            use.kernel.name,
            use.kernel.keys,
            [(p.type, p.value) for p in use.kernel.parameters],
            use.key,
            use.below,
            # a plan leaves out axes that a pack has without factors; one between others counts
            [(choice.predicates, (*choice.grid, (), (), ())[:3]) for choice in use.choices],
            use.index,
        )
        for use in task.uses
    ]
    hashed = [
        VERSION,
        task.digest,
        # the text is what is executed
        hashlib.sha256(task.asm.encode()).hexdigest(),
        task.arch,
        task.resources.dynamic_shared_bytes,
        task.verifier_digest,
        np.__version__,
        repr(uses),
    ]
    return hashlib.sha256(json.dumps(hashed).encode()).hexdigest()


class VerdictStore:
    """Verdicts in a cache folder, and in `shared` places behind it. Methods raise CacheError."""

    def __init__(self, cache: Path, shared: SharedObjects = NOT_SHARED) -> None:
        self._objects = ObjectCache(
            cache=cache, kind=f"verdicts-{VERSION}", parse=_parsed, write=write_atomic, shared=shared
        )

    def expect(self, tasks: Iterable[ImageTask]) -> None:
        """These verdicts will be loaded: shared places may send those that are not here."""
        self._objects.expect(map(verdict_key, tasks))

    def load(self, task: ImageTask) -> Verdict | None:
        """The stored verdict under the task's own label; None without an intact one."""
        try:
            with self._errors():
                verdict = self._objects.load(verdict_key(task))
        except DamagedObjectError:
            return None
        # an image may serve several jobs; label, and what follows from the manifest of archs, are the task's
        own = {"key": task.key, "label": task.label, "resources": task.resources}
        return replace(verdict, **own, cached=True) if verdict else None  # type: ignore[arg-type]

    def store(self, task: ImageTask, verdict: Verdict) -> None:
        """Keeps a passed verdict."""
        key, body = verdict_key(task), _VERDICT.dump_json(verdict)
        with self._errors():
            self._objects.store(key, f"{_checksum(key, body)}\n".encode() + body)

    def _errors(self) -> AbstractContextManager[None]:
        hint = "free space there, or choose another cache folder"
        return errors_as(CacheError, self._objects.cache, hint=hint)


def _parsed(data: bytes, key: str) -> Verdict:
    head, _, body = data.partition(b"\n")
    if head.decode("ascii", "replace") != _checksum(key, body):
        raise DamagedObjectError("does not match its SHA-256")
    try:
        return _VERDICT.validate_json(body)
    except ValueError as error:
        raise DamagedObjectError(f"is not a verdict: {error}") from error


def _checksum(key: str, body: bytes) -> str:
    # with the key, so that a renamed file is not accepted
    return hashlib.sha256(key.encode() + b"\n" + body).hexdigest()
