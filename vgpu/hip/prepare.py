"""Commands of the virtual HIP for its C++ part: `python -m vgpu.hip.prepare`.

`prepare ARCH plain|checks` reads an image from standard input. It prints `ok` and the paths of program, interpreter and lines, a
line each; or `error`, a hipError_t and a message. `explain LINES FAULT` reads allocations and prints a message.
"""

import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from aotforge.base.cache_trust import check_cache
from aotforge.base.files import read_bytes, write_atomic
from aotforge.base.machine import default_cache, processor
from aotforge.base.source_groups import group_digest
from aotforge.errors import (
    AotforgeError,
    CacheError,
    DecodeError,
    OutputError,
    ToolchainError,
    UnsupportedError,
)
from aotforge.formats.code_object import metadata
from aotforge.formats.untrusted_tar import NoSink, UnsafeArchiveError, file_chunks, read_archive
from aotforge.targets.amd.backend import elf_flags
from aotforge.targets.amd.loaded import check_loaded
from aotforge.toolchain.native_code import is_intact

Variant = Literal["plain", "checks"]

_FOLDER = "virtual-hip-programs-1"
_ASM_HINT = "AOTFORGE_ASM names asm archives of releases (aotriton-...-asm-<pack>.tar.gz) or folders, joined by colons"


class WrongArchError(UnsupportedError):
    """The image is for another arch than the device."""


class MissingAssemblyError(DecodeError):
    """The text of an image was not found."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Files for one image: its program, the interpreter that can open it, and the lines of its instructions (JSON)."""

    program: Path
    interpreter: Path
    lines: Path


def prepare(
    hsaco: bytes, arch: str, *, places: Sequence[Path], cache: Path, checks: bool = False
) -> Prepared:
    """Find the image's text, verify and bind it, and keep the result in `cache`, by image, text and emulator sources.

    With `checks` the interpreter also finds missing waits and barriers, races and uninitialised data, at about half the
    speed. Raises WrongArchError, MissingAssemblyError, DecodeError when the text is not the image, UnsupportedError,
    UnknownNameError, ToolchainError, CacheError, OutputError.
    """
    check_cache(cache)
    digest = hashlib.sha256(hsaco).hexdigest()
    try:
        text = find_assembly(digest, places)
    except MissingAssemblyError:
        _check_arch(hsaco, arch)
        raise
    variant: Variant = "checks" if checks else "plain"
    parts = (digest, arch, variant, text, group_digest("virtual HIP"), processor())
    stem = cache / _FOLDER / hashlib.sha256("\0".join(parts).encode()).hexdigest()
    found = _stored(stem)
    if found is None:
        _check_arch(hsaco, arch)
        _check_segments(hsaco)
        _make(hsaco, text, digest, arch, variant, stem, cache)
        found = _stored(stem)
    if found is None:
        raise CacheError(f"{stem}.bin was removed while it was written", hint="load the image again")
    return found


def find_assembly(digest: str, places: Sequence[Path]) -> str:
    """The text `<digest>.s` in one of `places`, each a folder (searched with its sub-folders) or a .tar.gz.

    Raises MissingAssemblyError, OutputError for a place that cannot be read.
    """
    name = f"{digest}.s"
    for place in places:
        found = _in_folder(place, name) if place.is_dir() else _in_archive(place, name)
        if found is not None:
            try:
                return found.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DecodeError(f"{place}: {name} is not valid text: {error}") from error
    where = ", ".join(map(str, places)) or "nowhere: AOTFORGE_ASM is not set"
    raise MissingAssemblyError(
        f"no assembly text for the image {digest} (searched: {where})",
        cause="the image belongs to another release than the archive, or was altered",
        hint=_ASM_HINT,
    )


def _in_folder(folder: Path, name: str) -> bytes | None:
    direct = [folder / name] if (folder / name).is_file() else sorted(folder.rglob(name))
    texts = (read_bytes(path, OutputError, hint=_ASM_HINT) for path in direct if path.is_file())
    return next(texts, None)


class _FoundError(Exception):
    """Ends the reading of an archive at the wanted member, whose content is the argument."""


class _TextSink(NoSink):
    def __init__(self, name: str) -> None:
        self.name = name

    def file(self, path: PurePosixPath, *, executable: bool, pieces: Iterator[bytes]) -> None:
        if path.name != self.name:
            super().file(path, executable=executable, pieces=pieces)
            return
        raise _FoundError(b"".join(pieces))


def _in_archive(path: Path, name: str) -> bytes | None:
    try:
        read_archive(file_chunks(path), _TextSink(name), top=None)
    except _FoundError as found:
        text: bytes = found.args[0]
        return text
    except (OSError, UnsafeArchiveError) as error:
        raise OutputError(
            f"{path} cannot be read: {error}", cause="no such file, or not a complete archive", hint=_ASM_HINT
        ) from error
    return None


def _stored(stem: Path) -> Prepared | None:
    """The files of an earlier run, if complete. Without numpy and the emulator, which are most of a process' time."""
    program, lines = stem.with_suffix(".bin"), stem.with_suffix(".json")
    try:
        known = json.loads(lines.read_bytes())
        interpreter = Path(known["interpreter"])
        unchanged = known["program"] == hashlib.sha256(program.read_bytes()).hexdigest()
        complete = unchanged and is_intact(interpreter.parent)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Prepared(program=program, interpreter=interpreter, lines=lines) if complete else None


def _make(hsaco: bytes, text: str, digest: str, arch: str, variant: Variant, stem: Path, cache: Path) -> None:
    from vgpu.emulator.arguments import absent_arguments  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.emulator.interpreter_library import build_library  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.emulator.program import Emulator  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.hip.blob import program_file  # noqa: PLC0415 - emulator: 0.4 s

    program = Emulator(arch, cache=cache).load(hsaco, text)
    file = program_file(program, digest)
    names = {line.name for line in program.lines}
    known = {
        "program": hashlib.sha256(file).hexdigest(),
        "interpreter": str(build_library(program.target.lanes, cache, variant, names)),
        "kernel": program.listing.kernel,
        "absent": absent_arguments(program.parameters),
        "lines": [(line.number, line.text, line.address) for line in program.lines],
    }
    write_atomic(stem.with_suffix(".bin"), file)
    write_atomic(stem.with_suffix(".json"), json.dumps(known).encode())


def _check_arch(hsaco: bytes, arch: str) -> None:
    try:
        target = str(metadata(hsaco).get("amdhsa.target", ""))
    except ValueError as error:
        raise DecodeError(f"the image cannot be read: {error}") from error
    found = target.rsplit("-", 1)[-1].split(":", maxsplit=1)[0]
    if found != arch:
        raise WrongArchError(f"the image is for {found}, the device is {arch}")


def _check_segments(hsaco: bytes) -> None:
    try:
        check_loaded(hsaco, elf_flags())
    except ValueError as error:
        raise DecodeError(f"the image is refused: {error}") from error


def describe_fault(lines: Path, fault: bytes, allocations: str) -> AotforgeError:
    """The emulator's error for a FaultReport's bytes. `allocations`: lines of `name low high writable`.

    Raises UnsupportedError.
    """
    from vgpu.emulator import native  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.emulator.decoded import Line  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.emulator.faults import KernelNames, explain  # noqa: PLC0415 - emulator: 0.4 s

    if len(fault) != ctypes.sizeof(native.FaultReport):
        raise UnsupportedError("a fault report of another interpreter")
    report = native.FaultReport.from_buffer_copy(fault)
    known = json.loads(lines.read_text())
    program = [
        Line(number=number, text=text, name="", encoding="", operands=(), address=address)
        for number, text, address in known["lines"]
    ]
    fields = (entry.rsplit(" ", 3) for entry in allocations.splitlines())
    spans = [(name, int(low), int(high), writable == "1") for name, low, high, writable in fields]
    absent = {int(offset): name for offset, name in known["absent"].items()}
    names = KernelNames(kernel=known["kernel"], absent=absent)
    return explain(report, program, names, spans, None)


_HIP_ERRORS: tuple[tuple[type[AotforgeError], int], ...] = (
    (WrongArchError, 209),  # hipErrorNoBinaryForGpu
    (MissingAssemblyError, 301),  # hipErrorFileNotFound
    (DecodeError, 200),  # hipErrorInvalidImage
    (OutputError, 301),
    (CacheError, 304),  # hipErrorOperatingSystem
    (ToolchainError, 303),  # hipErrorSharedObjectInitFailed
    (AotforgeError, 801),  # hipErrorNotSupported
)


def main(arguments: list[str]) -> int:
    """Answer one request on standard output; the exit code is 0 for every answer, 2 for wrong arguments."""
    try:
        if arguments[:1] == ["prepare"] and len(arguments) == 3:
            places = [Path(place) for place in os.environ.get("AOTFORGE_ASM", "").split(":") if place]
            cache = default_cache().absolute()  # the program may change its folder later
            hsaco, checks = sys.stdin.buffer.read(), arguments[2] == "checks"
            made = prepare(hsaco, arguments[1], places=places, cache=cache, checks=checks)
            found = "\n".join(("ok", str(made.program), str(made.interpreter), str(made.lines)))
        elif arguments[:1] == ["explain"] and len(arguments) == 3:
            allocations = sys.stdin.read()
            found = str(describe_fault(Path(arguments[1]), bytes.fromhex(arguments[2]), allocations))
        else:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    except AotforgeError as error:
        number = next(number for kind, number in _HIP_ERRORS if isinstance(error, kind))
        found = f"error\n{number}\n{error}"
    sys.stdout.write(found + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
