"""What the C++ part asks Python for: a program file for an image, and words for a fault."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aotforge.compile.codeobject import CodeObjectError, metadata
from aotforge.emulator import native
from aotforge.emulator.faults import explain
from aotforge.emulator.values import Line
from aotforge.errors import DecodeError, ExecutionError, UnsupportedError
from aotforge.files import write_atomic
from aotforge.virtual_hip.texts import find_text

_FOLDER = "virtual-hip-programs-1"
_SOURCES = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Files for one image: its program, the interpreter that can open it, and the lines of its instructions (JSON)."""

    program: Path
    interpreter: Path
    lines: Path


class OtherChipError(UnsupportedError):
    """The image is for another chip than the device."""


def prepare(hsaco: bytes, arch: str, *, places: Sequence[Path], cache: Path) -> Prepared:
    """Find the image's text, prove and bind it, and keep the result in `cache`, by image, text and this code.

    Raises OtherChipError, NoTextError, DecodeError when the text is not the image, UnsupportedError, UnknownNameError, ToolchainError,
    CacheError, OutputError.
    """
    chip = _chip_of(hsaco)
    if chip != arch:
        raise OtherChipError(f"the image is for {chip}, the device is {arch}")
    digest = hashlib.sha256(hsaco).hexdigest()
    text = find_text(digest, places)
    from aotforge.emulator.chips import chip_named  # noqa: PLC0415 - what a cached image does not need stays unloaded
    from aotforge.emulator.library import build_library  # noqa: PLC0415

    interpreter = build_library(chip_named(arch).lanes, cache)
    key = hashlib.sha256("\0".join((digest, text, interpreter.name, sources_digest())).encode()).hexdigest()
    folder = cache / _FOLDER
    made = Prepared(program=folder / f"{key}.bin", interpreter=interpreter, lines=folder / f"{key}.json")
    if not (made.program.exists() and made.lines.exists()):
        _make(hsaco, text, digest, arch, made, cache)
    return made


def _make(hsaco: bytes, text: str, digest: str, arch: str, made: Prepared, cache: Path) -> None:
    from aotforge.emulator import Emulator  # noqa: PLC0415
    from aotforge.virtual_hip.blob import program_file  # noqa: PLC0415

    program = Emulator(arch, cache=cache).load(hsaco, text)
    lines = [(line.number, line.text, line.address) for line in program._binding.lines]
    made.program.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(made.lines, json.dumps({"kernel": program.listing.kernel, "lines": lines}).encode())
    write_atomic(made.program, program_file(program, digest))


@cache
def sources_digest() -> str:
    """SHA-256 over the emulator's and this package's Python: other code may bind an image differently."""
    total = hashlib.sha256()
    for package in ("emulator", "virtual_hip"):
        for path in sorted((_SOURCES / package).rglob("*.py")):
            total.update(path.relative_to(_SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def _chip_of(hsaco: bytes) -> str:
    try:
        target = str(metadata(hsaco).get("amdhsa.target", ""))
    except CodeObjectError as error:
        raise DecodeError(f"the image cannot be read: {error}") from error
    return target.rsplit("-", 1)[-1].split(":", maxsplit=1)[0]


@dataclass(frozen=True, kw_only=True)
class _Spans:
    """The allocations of a device, as `faults.explain` wants buffers."""

    found: tuple[tuple[str, int, int, bool], ...]

    def spans(self) -> list[tuple[str, int, int, bool]]:
        return list(self.found)


def fault_words(lines: Path, fault: bytes, allocations: str) -> ExecutionError:
    """The emulator's error for a FaultReport's bytes. `allocations`: a line `name low high writable` each. Raises UnsupportedError."""
    if len(fault) != ctypes.sizeof(native.FaultReport):
        raise UnsupportedError("a fault report of another interpreter")
    report = native.FaultReport.from_buffer_copy(fault)
    known = json.loads(lines.read_text())
    number, text, address = known["lines"][min(int(report.instruction), len(known["lines"]) - 1)]
    line = Line(number=number, text=text, name="", encoding="", operands=(), address=address)
    spans = []
    for entry in allocations.splitlines():
        name, low, high, writable = entry.rsplit(" ", 3)
        spans.append((name, int(low), int(high), writable == "1"))
    memory = _Spans(found=tuple(sorted(spans, key=lambda span: span[1])))
    return explain(report, line, known["kernel"], memory, None)  # type: ignore[arg-type]
