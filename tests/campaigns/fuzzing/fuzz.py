"""A coverage-guided loop: inputs that execute new lines are kept and mutated further."""

from __future__ import annotations

import hashlib
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.fuzzing import mutated

Run = Callable[[bytes], None]
CORPUS = Path(__file__).parent / "corpus"
_LARGEST = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Target:
    """`open` makes the function and removes its files afterwards; `modules`: parts of names of the files that
    are tested, whose lines count as coverage; `compiled`: it needs a C++ compiler."""

    open: Callable[[], AbstractContextManager[tuple[Sequence[bytes], Run]]]
    modules: tuple[str, ...]
    compiled: bool = False


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Removed at the end."""
    with tempfile.TemporaryDirectory(prefix="aotforge-fuzz-") as name:
        yield Path(name)


@dataclass(kw_only=True)
class Outcome:
    """Of one target: executions, lines or edges executed, inputs that raised with the error, seconds of CPU
    time."""

    runs: int
    lines: int
    findings: list[tuple[bytes, str]]
    seconds: float = 0.0


def folder_of(name: str) -> Path:
    """The kept inputs of a target."""
    return CORPUS / re.sub(r"\W+", "-", name).lower()


def stored(name: str) -> list[bytes]:
    """Inputs that earlier campaigns kept."""
    return [path.read_bytes() for path in sorted(folder_of(name).glob("*"))]


def fuzz(name: str, target: Target, *, seconds: float, seed: int, kept: Path) -> Outcome:
    """Mutates seeds and kept inputs for some seconds of CPU time; inputs with new lines are added to the
    folder `kept`. The input that runs is in the file "running" beside it: what ends the process, or does not
    end, can be found there."""
    dice, lines = random.Random(seed), set[tuple[str, int]]()
    kept.mkdir(parents=True, exist_ok=True)
    running = kept.with_name("running")
    with target.open() as (seeds, run):
        known = [*seeds, *stored(name)]
        for data in known:
            lines |= _lines(run, data, target.modules)
        outcome = Outcome(runs=len(known), lines=0, findings=[])
        began = time.process_time()
        while (spent := time.process_time() - began) < seconds:
            data = _made(dice, known)
            running.write_bytes(data)
            outcome.runs += 1
            try:
                new = _lines(run, data, target.modules) - lines
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                if len(outcome.findings) < 20:
                    outcome.findings.append((data, repr(error)))
                continue
            if new:
                lines |= new
                known.append(data)
                (kept / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    outcome.lines, outcome.seconds = len(lines), spent
    return outcome


def _made(dice: random.Random, known: Sequence[bytes]) -> bytes:
    data = dice.choice(known)
    if dice.randrange(8) == 0:  # two inputs in one
        other = dice.choice(known)
        data = data[: dice.randrange(len(data) + 1)] + other[dice.randrange(len(other) + 1) :]
    return mutated(data, dice)[:_LARGEST]


def _lines(run: Run, data: bytes, modules: tuple[str, ...]) -> set[tuple[str, int]]:
    """Lines of these modules that an input executes, in all threads."""
    found: set[tuple[str, int]] = set()
    wanted: dict[str, bool] = {}

    def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line":
            found.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if file not in wanted:
            wanted[file] = any(part in file for part in modules)
        return line if wanted[file] else None

    before = sys.gettrace()
    threading.settrace(call)
    sys.settrace(call)
    try:
        run(data)
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return found
