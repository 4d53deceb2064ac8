"""Commands for the C++ part: `prepare ARCH plain|checks` and `explain LINES FAULT`.

`prepare` reads an image from standard input. It prints `ok` and the paths of program, interpreter and lines, a line each; or
`error`, a hipError_t and a message. `explain` reads allocations and prints a message.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from aotforge.errors import AotforgeError, CacheError, DecodeError, OutputError, ToolchainError
from aotforge.virtual_gpu.hip.prepare import MissingAssemblyError, WrongArchError, describe_fault, prepare

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
            found = _prepare(arguments[1], checks=arguments[2] == "checks")
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


def _prepare(arch: str, *, checks: bool) -> str:
    places = [Path(place) for place in os.environ.get("AOTFORGE_ASM", "").split(":") if place]
    made = prepare(sys.stdin.buffer.read(), arch, places=places, cache=_cache(), checks=checks)
    return "\n".join(("ok", str(made.program), str(made.interpreter), str(made.lines)))


def _cache() -> Path:
    if named := os.environ.get("AOTFORGE_CACHE"):
        return Path(named).absolute()  # the program may change its folder later
    from aotforge.virtual_gpu.emulator.interpreter_library import default_cache  # noqa: PLC0415 - emulator: 0.4 s

    return default_cache().absolute()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
