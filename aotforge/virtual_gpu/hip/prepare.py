"""What the C++ part asks Python for: a program file for an image, and words for a fault."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aotforge.base.files import write_atomic
from aotforge.base.source_groups import group_digest
from aotforge.errors import CacheError, DecodeError, ExecutionError, UnsupportedError
from aotforge.virtual_gpu.hip.asm_lookup import MissingAssemblyError, find_assembly

Variant = Literal["plain", "checks"]

_FOLDER = "virtual-hip-programs-1"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Files for one image: its program, the interpreter that can open it, and the lines of its instructions (JSON)."""

    program: Path
    interpreter: Path
    lines: Path


class WrongArchError(UnsupportedError):
    """The image is for another chip than the device."""


def prepare(
    hsaco: bytes, arch: str, *, places: Sequence[Path], cache: Path, checks: bool = False
) -> Prepared:
    """Find the image's text, prove and bind it, and keep the result in `cache`, by image, text and this code. With `checks` the
    interpreter is the one that looks for missing waits and barriers, races and uninitialised data, at about half the speed.

    Raises WrongArchError, MissingAssemblyError, DecodeError when the text is not the image, UnsupportedError, UnknownNameError, ToolchainError,
    CacheError, OutputError.
    """
    digest = hashlib.sha256(hsaco).hexdigest()
    try:
        text = find_assembly(digest, places)
    except MissingAssemblyError:
        _check_chip(hsaco, arch)
        raise
    variant: Variant = "checks" if checks else "plain"
    parts = (digest, arch, variant, text, group_digest("virtual HIP"), _processor())
    stem = cache / _FOLDER / hashlib.sha256("\0".join(parts).encode()).hexdigest()
    program, lines = stem.with_suffix(".bin"), stem.with_suffix(".json")
    found = _kept(program, lines)
    if found is None:
        _check_chip(hsaco, arch)
        _make(hsaco, text, digest, arch, variant, program, lines, cache)
        found = _kept(program, lines)
    if found is None:
        raise CacheError(f"{program} vanished while it was written", hint="load the image again")
    return found


def _kept(program: Path, lines: Path) -> Prepared | None:
    """What an earlier run left, if it is whole. Needs neither numpy nor the emulator, which are most of a process' time."""
    try:
        known = json.loads(lines.read_text())
        interpreter = Path(known["interpreter"])
        whole = known["program"] == hashlib.sha256(program.read_bytes()).hexdigest() and interpreter.exists()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Prepared(program=program, interpreter=interpreter, lines=lines) if whole else None


def _make(
    hsaco: bytes, text: str, digest: str, arch: str, variant: Variant, program: Path, lines: Path, cache: Path
) -> None:
    from aotforge.virtual_gpu.emulator.interpreter_library import build_library  # noqa: PLC0415
    from aotforge.virtual_gpu.emulator.program import Emulator  # noqa: PLC0415
    from aotforge.virtual_gpu.hip.blob import program_file  # noqa: PLC0415

    made = Emulator(arch, cache=cache).load(hsaco, text)
    file = program_file(made, digest)
    known = {
        "program": hashlib.sha256(file).hexdigest(),
        "interpreter": str(build_library(made.target.lanes, cache, variant)),
        "kernel": made.listing.kernel,
        "lines": [(line.number, line.text, line.address) for line in made.lines],
    }
    write_atomic(program, file)
    write_atomic(lines, json.dumps(known).encode())


def _processor() -> str:
    """What the interpreter is compiled for: caches may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def _check_chip(hsaco: bytes, arch: str) -> None:
    from aotforge.formats.code_object import CodeObjectError, metadata  # noqa: PLC0415

    try:
        target = str(metadata(hsaco).get("amdhsa.target", ""))
    except CodeObjectError as error:
        raise DecodeError(f"the image cannot be read: {error}") from error
    chip = target.rsplit("-", 1)[-1].split(":", maxsplit=1)[0]
    if chip != arch:
        raise WrongArchError(f"the image is for {chip}, the device is {arch}")


@dataclass(frozen=True, kw_only=True)
class _Spans:
    """The allocations of a device, as `faults.explain` wants buffers."""

    found: tuple[tuple[str, int, int, bool], ...]

    def spans(self) -> list[tuple[str, int, int, bool]]:
        return list(self.found)


def describe_fault(lines: Path, fault: bytes, allocations: str) -> ExecutionError:
    """The emulator's error for a FaultReport's bytes. `allocations`: a line `name low high writable` each. Raises UnsupportedError."""
    import ctypes  # noqa: PLC0415

    from aotforge.virtual_gpu.emulator import native  # noqa: PLC0415
    from aotforge.virtual_gpu.emulator.decoded import Line  # noqa: PLC0415
    from aotforge.virtual_gpu.emulator.faults import explain  # noqa: PLC0415

    if len(fault) != ctypes.sizeof(native.FaultReport):
        raise UnsupportedError("a fault report of another interpreter")
    report = native.FaultReport.from_buffer_copy(fault)
    known = json.loads(lines.read_text())
    program = [
        Line(number=number, text=text, name="", encoding="", operands=(), address=address)
        for number, text, address in known["lines"]
    ]
    spans = []
    for entry in allocations.splitlines():
        name, low, high, writable = entry.rsplit(" ", 3)
        spans.append((name, int(low), int(high), writable == "1"))
    memory = _Spans(found=tuple(sorted(spans, key=lambda span: span[1])))
    return explain(report, program, known["kernel"], memory, None)  # type: ignore[arg-type]
