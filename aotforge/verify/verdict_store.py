"""Store of passed verdicts by content: one file per image, cases and emulator, verified on every read.

Layout: `verdicts-6/<first two digits>/<key>`, the SHA-256 of the rest in the first line, then JSON. Only
passed verdicts are kept, so a failure is reproduced every time.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from aotforge.base.files import write_atomic
from aotforge.errors import CacheError, OutputError
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


def load_verdict(folder: Path, key: str, task: ImageTask) -> Verdict | None:
    """The stored verdict under the task's own label; None without a readable one. Raises CacheError."""
    try:
        head, _, body = _path(folder, key).read_bytes().partition(b"\n")
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        raise CacheError(f"cannot read verdicts in {folder}: {error.strerror}") from error
    if head.decode("ascii", "replace") != _checksum(key, body):
        return None
    # an image may serve several jobs; the label and what follows from the manifest of archs are the task's
    own = {"key": task.key, "label": task.label, "resources": task.resources}
    return replace(_VERDICT.validate_json(body), **own, cached=True)  # type: ignore[arg-type]


def store_verdict(folder: Path, key: str, verdict: Verdict) -> None:
    """Keep a passed verdict. Raises CacheError."""
    body = _VERDICT.dump_json(verdict)
    try:
        write_atomic(_path(folder, key), f"{_checksum(key, body)}\n".encode() + body)
    except OutputError as error:
        raise CacheError(f"cannot store a verdict: {error.what}", cause=error.cause) from error


def _checksum(key: str, body: bytes) -> str:
    # with the key, so that a renamed file is not accepted
    return hashlib.sha256(key.encode() + b"\n" + body).hexdigest()


def _path(folder: Path, key: str) -> Path:
    return folder / f"verdicts-{VERSION}" / key[:2] / key
