"""Compiles features with the pinned Triton and executes them on the virtual GPU with every check on.

Processes of a few features each: a compiler that aborts ends one of them, and the rest of its features get
another one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from aotforge.base.architectures import load_architectures
from aotforge.errors import AotforgeError
from tests.integration.vgpu.coverage.feature import Feature
from tests.integration.vgpu.coverage.formats import Array, decode, storage
from vgpu.emulator.decoded import Checks
from vgpu.emulator.interpreter_library import load_library
from vgpu.emulator.program import Emulator, LaunchRequest, Program
from vgpu.emulator.targets import emulated_target
from vgpu.memory import Memory

PASSED, WRONG, REFUSED, NOT_COMPILED = "passed", "wrong", "refused", "not compiled"
SECONDS = 300
"""How long one feature may take."""
_MANY = 100
"""Tasks for which all handlers of the interpreter are compiled at once, and not those of each kernel."""
_BATCH = 24
"""Features that a process executes: the compiler's first one takes longer."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a feature on an arch; `reason` unless it passed. `ended`: with its process."""

    feature: str
    arch: str
    verdict: str
    reason: str = ""
    ended: bool = False


@dataclass(frozen=True, kw_only=True)
class Image:
    """A compiled feature; `lds_bytes` of dynamic LDS."""

    binary: bytes
    asm: str
    lds_bytes: int


class CompileError(Exception):
    """Triton refuses the kernel."""


def compiled(feature: Feature, arch: str, folder: Path) -> Image:
    """The feature's image, from the folder if it was compiled before. Raises CompileError."""
    options = {"num_warps": 4, **feature.options}
    key = json.dumps([arch, feature.source, feature.signature, dict(feature.constants), options])
    kept = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    if not kept.exists():
        made = _compile(feature, arch, options, folder)
        temporary = kept.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(made))
        temporary.replace(kept)
    found = json.loads(kept.read_text())
    if "error" in found:
        raise CompileError(found["error"])
    return Image(binary=bytes.fromhex(found["hsaco"]), asm=found["asm"], lds_bytes=found["lds_bytes"])


def _compile(feature: Feature, arch: str, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    from triton.backends.compiler import GPUTarget

    from aotforge.compile.triton_compiler import lower
    from aotforge.targets.amd.backend import AMD

    kernel = kernel_of(feature, folder)
    target = GPUTarget("hip", arch, emulated_target(arch).lanes)
    hints: dict[tuple[int], list[list[Any]]] = {
        (i,): [["tt.divisibility", 16]] for i in range(len(feature.tensors))
    }
    try:
        with AMD.aliased(load_architectures().aliases(arch)):
            hsaco, asm, metadata = lower(
                kernel, target, feature.signature, dict(feature.constants), hints, options
            )
    except Exception as error:  # noqa: BLE001 - compilers may raise anything
        return {"error": compiler_reason(error)}
    return {"hsaco": hsaco.hex(), "asm": asm, "lds_bytes": metadata["shared"]}


def kernel_of(feature: Feature, folder: Path) -> Any:
    """The Triton function of a feature, from a module in the folder."""
    name = f"feature_{hashlib.sha256(feature.source.encode()).hexdigest()[:16]}"
    path = folder / f"{name}.py"
    if not path.exists():  # another process may be reading it
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(feature.source)
        temporary.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.kernel


def compiler_reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def load(image: Image, arch: str) -> Program:
    """The image's program. Raises DecodeError, UnsupportedError."""
    return Emulator(arch).load(image.binary, image.asm)


def run(feature: Feature, arch: str, folder: Path) -> Outcome:
    """Compile, execute with every check, and compare."""
    try:
        image = compiled(feature, arch, folder)
    except CompileError as error:
        return Outcome(feature=feature.name, arch=arch, verdict=NOT_COMPILED, reason=str(error))
    try:
        found = execute(feature, load(image, arch), image)
    except AotforgeError as error:
        text = " ".join(part for part in (error.what, error.cause) if part)
        if feature.expects and feature.expects in text:
            return Outcome(feature=feature.name, arch=arch, verdict=PASSED)
        return Outcome(feature=feature.name, arch=arch, verdict=REFUSED, reason=text)
    reason = f"no fault {feature.expects!r}" if feature.expects else difference(feature, found)
    return Outcome(feature=feature.name, arch=arch, verdict=WRONG if reason else PASSED, reason=reason)


def buffers_of(feature: Feature) -> dict[str, Array]:
    """A feature's tensors, aligned to 16 bytes; what is not given is garbage."""
    buffers: dict[str, Array] = {}
    for name, tensor in feature.tensors.items():
        kind = storage(tensor.kind)
        raw = np.full(tensor.size * kind.itemsize + 16, 0xA5, dtype=np.uint8)
        start = -raw.ctypes.data % 16  # the kernels are compiled for aligned tensors
        buffers[name] = raw[start : start + tensor.size * kind.itemsize].view(kind)
        if tensor.stored is not None:
            buffers[name][:] = tensor.stored
        buffers[name].flags.writeable = tensor.written
    return buffers


def execute(feature: Feature, program: Program, image: Image) -> dict[str, Array]:
    """Launch with every check on; the tensors afterwards. Raises ExecutionError, UnsupportedError,
    DecodeError."""
    buffers = buffers_of(feature)
    unset = frozenset(name for name, tensor in feature.tensors.items() if tensor.stored is None)
    arguments = [*(b.ctypes.data for b in buffers.values()), *(value for _, value in feature.values.values())]
    program.launch(
        LaunchRequest(
            grid=feature.grid,
            arguments=arguments,
            memory=Memory(buffers),
            lds_bytes=image.lds_bytes,
            checks=Checks(unwritten=unset),
            jobs=1,
        )
    )
    return buffers


def difference(feature: Feature, found: dict[str, Array]) -> str:
    """The first wrong element, or ''."""
    for name, expected in feature.expected().items():
        got = decode(found[name], feature.tensors[name].kind)
        if got.size != expected.size:
            return f"{name} has {got.size} elements, the reference {expected.size}"
        with np.errstate(all="ignore"):
            right = np.asarray(got == expected)
            if feature.tolerance:
                error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
                right |= error <= feature.tolerance * np.maximum(1.0, np.abs(expected.astype(np.float64)))
            if expected.dtype.kind == "f":
                right |= np.isnan(got) & np.isnan(expected)
        wrong = np.flatnonzero(~right)
        if wrong.size:
            at = int(wrong[0])
            return (
                f"{name}[{at}] is {got[at]}, not {expected[at]} ({wrong.size} of {got.size} elements differ)"
            )
    return ""


Task = tuple[Feature, str]


Run = Callable[[Feature, str, Path], Outcome]


def run_all(tasks: Sequence[Task], folder: Path, workers: int = 2) -> Iterator[Outcome]:
    """Outcomes in the order in which they are known, on the virtual GPU."""
    import aotforge.compile.triton_compiler  # noqa: F401 - loaded before the processes fork

    if len(tasks) > _MANY:
        for lanes in sorted({emulated_target(arch).lanes for _, arch in tasks}):
            load_library(lanes, variant="checks")
    yield from run_in_processes(run, tasks, folder, workers)


def run_in_processes(
    run_one: Run, tasks: Sequence[Task], folder: Path, workers: int = 2
) -> Iterator[Outcome]:
    """A process executes several tasks by `run_one`, until the compiler ends it."""
    waiting = [list(tasks[at : at + _BATCH]) for at in range(0, len(tasks), _BATCH)][::-1]
    running: dict[Any, tuple[Any, list[Task]]] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            batch = waiting.pop()
            receiver, process = _start(run_one, batch, folder)
            running[receiver] = process, batch
        for ready in wait(list(running), SECONDS) or list(running):
            process, batch = running[ready]
            outcome = _received(ready, process, batch[0])
            yield outcome
            batch.pop(0)
            if outcome.ended or not batch:
                process.join()
                del running[ready]
                waiting += [batch] if batch else []


def _start(run_one: Run, batch: list[Task], folder: Path) -> tuple[Any, Any]:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(run_one, list(batch), folder, sender))
    process.start()
    sender.close()
    return receiver, process


def _received(receiver: Any, process: Any, task: Task) -> Outcome:
    """The outcome of a task, or that its process has ended."""
    feature, arch = task
    try:
        if receiver.poll(0):
            outcome: Outcome = receiver.recv()
            return outcome
        process.kill()
        reason = f"more than {SECONDS} s"
    except EOFError:
        reason = "the compiler aborts"
    verdict = NOT_COMPILED if reason == "the compiler aborts" else REFUSED
    return Outcome(feature=feature.name, arch=arch, verdict=verdict, reason=reason, ended=True)


def _child(run_one: Run, batch: list[Task], folder: Path, sender: Connection) -> None:
    with tempfile.TemporaryFile() as quiet:  # the compiler prints what it raises
        os.dup2(quiet.fileno(), 2)
        for feature, arch in batch:
            try:
                sender.send(run_one(feature, arch, folder))
            except Exception as error:  # noqa: BLE001 - a defect that the page shows
                reason = f"the feature's own code failed: {error!r}"
                sender.send(Outcome(feature=feature.name, arch=arch, verdict=WRONG, reason=reason))
    sender.close()
    os._exit(0)
