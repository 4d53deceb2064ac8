"""Commands of the virtual HIP for its C++ part: `python -m vgpu.hip.prepare`.

`prepare DEVICE plain|checks` (`gfx90a:sramecc+:xnack-`) reads an image from standard input. It prints `ok`
and the paths of program, interpreter and lines, a line each; or `error`, a hipError_t and a message.
`explain LINES FAULT` reads allocations and prints a message.
"""

import ctypes
import hashlib
import json
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from vgpu.cache import check_cache, default_cache, processor, sources_digest
from vgpu.code_object import metadata
from vgpu.errors import (
    CacheError,
    DecodeError,
    OutputError,
    ToolchainError,
    UnsupportedError,
    UserError,
)
from vgpu.native_code import is_intact

Variant = Literal["plain", "checks"]

_FOLDER = "virtual-hip-programs-1"
_ASM_HINT = "AOTFORGE_ASM names archives (aotriton-...-asm-<pack>.tar.gz) or folders, joined by colons"


class WrongArchError(UnsupportedError):
    """The image is for another arch than the device."""


class MissingAssemblyError(DecodeError):
    """The text of an image was not found."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Files of an image: its program, the interpreter for it, the lines of its instructions (JSON)."""

    program: Path
    interpreter: Path
    lines: Path


def prepare(
    hsaco: bytes, device: str, *, places: Sequence[Path], cache: Path, checks: bool = False
) -> Prepared:
    """The image's text, verified and bound; kept in `cache` by image, text and emulator sources. Raises
    WrongArchError, MissingAssemblyError, and other errors of `_HIP_ERRORS`."""
    check_cache(cache)
    digest = hashlib.sha256(hsaco).hexdigest()
    try:
        text = find_assembly(digest, places)
    except MissingAssemblyError:
        _check_arch(hsaco, device)
        raise
    arch = device.partition(":")[0]
    variant: Variant = "checks" if checks else "plain"
    parts = (digest, device, variant, text, sources_digest(), processor())
    stem = cache / _FOLDER / hashlib.sha256("\0".join(parts).encode()).hexdigest()
    if found := _stored(stem):
        return found
    _check_arch(hsaco, device)
    return _make(hsaco, text, digest, arch, variant, stem, cache)


def find_assembly(digest: str, places: Sequence[Path]) -> str:
    """The text `<digest>.s` in a folder or .tar.gz archive. Raises MissingAssemblyError, OutputError."""
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
    try:
        return next((path.read_bytes() for path in direct if path.is_file()), None)
    except OSError as error:
        raise _unreadable(error.filename, error) from error


def _in_archive(path: Path, name: str) -> bytes | None:
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                if PurePosixPath(member.name).name == name and (file := archive.extractfile(member)):
                    return file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise _unreadable(path, error) from error
    return None


def _unreadable(path: object, error: Exception) -> OutputError:
    return OutputError(
        f"{path} cannot be read: {error}", cause="no such file, or not a complete archive", hint=_ASM_HINT
    )


def _stored(stem: Path) -> Prepared | None:
    """The files of an earlier run, if complete; without numpy and the emulator, most of a process' time."""
    program, lines = stem.with_suffix(".bin"), stem.with_suffix(".json")
    try:
        known = json.loads(lines.read_bytes())
        interpreter = Path(known["interpreter"])
        unchanged = known["program"] == hashlib.sha256(program.read_bytes()).hexdigest()
        complete = unchanged and is_intact(interpreter.parent)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Prepared(program=program, interpreter=interpreter, lines=lines) if complete else None


def _make(
    hsaco: bytes, text: str, digest: str, arch: str, variant: Variant, stem: Path, cache: Path
) -> Prepared:
    from vgpu.emulator.arguments import absent_arguments  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.emulator.interpreter_library import build_library  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.emulator.program import Emulator  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.hip.blob import program_file  # noqa: PLC0415 - emulator: 0.4 s

    program = Emulator(arch, cache=cache).load(hsaco, text)
    file = program_file(program, digest)
    names = {line.name for line in program.lines}
    interpreter = build_library(program.target.lanes, cache, variant, names)
    known = {
        "program": hashlib.sha256(file).hexdigest(),
        "interpreter": str(interpreter),
        "kernel": program.listing.kernel,
        "absent": absent_arguments(program.parameters),
        "lines": [(line.number, line.text, line.address) for line in program.lines],
    }
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for suffix, data in ((".bin", file), (".json", json.dumps(known).encode())):
            with tempfile.NamedTemporaryFile(dir=stem.parent, delete=False) as part:
                part.write(data)
            Path(part.name).replace(stem.with_suffix(suffix))
    except OSError as error:
        raise OutputError(
            f"cannot write {stem}: {error.strerror}",
            hint="free space there, or set AOTFORGE_CACHE to a folder that can be written",
        ) from error
    return Prepared(
        program=stem.with_suffix(".bin"), interpreter=interpreter, lines=stem.with_suffix(".json")
    )


def _check_arch(hsaco: bytes, device: str) -> None:
    """The image is for the device's arch, and for its setting of every feature that the image names."""
    try:
        target = str(metadata(hsaco).get("amdhsa.target", ""))
    except ValueError as error:
        raise DecodeError(f"the image cannot be read: {error}") from error
    arch, *features = target.split("-", 4)[-1].split(":")
    device_arch, *device_features = device.split(":")
    if arch != device_arch or not set(features) <= set(device_features):
        raise WrongArchError(f"the image is for {':'.join((arch, *features))}, the device is {device}")


def describe_fault(lines: Path, fault: bytes, allocations: str) -> UserError:
    """The error for a FaultReport's bytes. `allocations`: lines of `name low high writable`."""
    from vgpu.emulator import native  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.emulator.decoded import Line  # noqa: PLC0415 - emulator: 0.4 s
    from vgpu.emulator.faults import explain  # noqa: PLC0415 - emulator: 0.4 s

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
    return explain(report, program, spans, None, kernel=known["kernel"], absent=absent)


_HIP_ERRORS: tuple[tuple[type[UserError], int], ...] = (
    (WrongArchError, 209),  # hipErrorNoBinaryForGpu
    (MissingAssemblyError, 301),  # hipErrorFileNotFound
    (DecodeError, 200),  # hipErrorInvalidImage
    (OutputError, 301),
    (CacheError, 304),  # hipErrorOperatingSystem
    (ToolchainError, 303),  # hipErrorSharedObjectInitFailed
    (UserError, 801),  # hipErrorNotSupported
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
    except UserError as error:
        number = next(number for kind, number in _HIP_ERRORS if isinstance(error, kind))
        found = f"error\n{number}\n{error}"
    sys.stdout.write(found + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
