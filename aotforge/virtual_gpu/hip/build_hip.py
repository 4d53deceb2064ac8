"""The C++ part, compiled once per sources, compiler and Python into a folder that programs can put on their library path."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import CacheError, ToolchainError, UnknownNameError, UnsupportedError, suggest

_HERE = Path(__file__).parent
_NATIVE = _HERE / "native"
_EMULATOR = _HERE.parent / "emulator" / "native"
_MAJORS = (5, 6, 7)
_FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-static-libstdc++", "-Wl,--exclude-libs,ALL",
)  # fmt: skip
_PREPARE = """#!/bin/sh
# Run by libamdhip64.so in this folder: text, proof and binding of an image. Made together with it.
python={python}
root={root}
if [ ! -x "$python" ] || [ ! -d "$root/aotforge" ]; then
    printf '%s\\n' "the Python environment or checkout that this virtual HIP was made from is gone: $python, $root" >&2
    echo "Next step: invoke virtual-hip, in a checkout that is there" >&2
    exit 14
fi
unset PYTHONHOME
PYTHONPATH="$root" exec "$python" -P -m aotforge.virtual_gpu.hip "$@"
"""


@dataclass(frozen=True, kw_only=True)
class VirtualHip:
    """`folder` holds libamdhip64.so.<major> with its links, and `prepare`."""

    folder: Path
    major: int

    @property
    def library(self) -> Path:
        """The library by its SONAME."""
        return self.folder / f"libamdhip64.so.{self.major}"


def build_virtual_hip(
    cache: Path, *, major: int = 7, environment: Mapping[str, str] | None = None
) -> VirtualHip:
    """Compile the library of HIP release `major` (5, 6 or 7) into `cache`, or find it there. CXX names the compiler.

    Folders appear whole or not at all, so processes may race. Raises ToolchainError, CacheError.
    """
    if major not in _MAJORS:
        raise ToolchainError(f"there is no virtual HIP {major}; known releases: 5, 6, 7")
    env = os.environ if environment is None else environment
    compiler = find_compiler(env)
    soname = f"libamdhip64.so.{major}"
    command = [*compiler, *_FLAGS, f"-DVIRTUAL_HIP_MAJOR={major}", f"-Wl,-soname,{soname}", f"-I{_EMULATOR}"]
    prepare = script(sys.executable, _HERE.parents[2].absolute())
    below = cache.absolute() / "virtual-hip-1"
    compiled = below / _key(command)
    _once(compiled, lambda made: _compile(command, made / soname))
    # every checkout has its own way to Python, and shares the compiled library
    folder = below / hashlib.sha256(f"{compiled.name}\0{prepare}".encode()).hexdigest()[:32]
    _once(folder, lambda made: _furnish(made, compiled / soname, prepare))
    return VirtualHip(folder=folder, major=major)


def script(python: str, root: Path) -> str:
    """The shell script that runs this package of the checkout `root` with an interpreter, whatever their names have in them."""
    return _PREPARE.format(python=shlex.quote(python), root=shlex.quote(str(root)))


def environment(
    virtual: VirtualHip, *, devices: Sequence[str], texts: Sequence[Path], cache: Path
) -> dict[str, str]:
    """Variables under which a program finds the library, its devices and the assembly texts of their images.

    Raises UnknownNameError for a device that cannot be played, UnsupportedError for texts that are not there.
    """
    known = re.findall(r'^CHIP\("(\w+)"', (_NATIVE / "chips.def").read_text(), re.MULTILINE)
    for device in devices:
        name = re.split("[@:]", device)[0]
        if name not in (*known, "none"):
            raise UnknownNameError(
                f"there is no virtual {name or 'device without a name'}", hint=suggest(name, known)
            )
    if missing := [place for place in texts if not place.exists()]:
        raise UnsupportedError(
            f"no assembly texts in {missing[0]}: it does not exist",
            hint="name the asm archive of a release, or a folder of texts",
        )
    return {
        "LD_LIBRARY_PATH": str(virtual.folder),
        "AOTFORGE_VIRTUAL_DEVICES": ",".join(devices) or "none",
        "AOTFORGE_ASM": ":".join(str(place.absolute()) for place in texts),
        "AOTFORGE_CACHE": str(cache.absolute()),
    }


def exports(variables: Mapping[str, str]) -> str:
    """The variables as lines for a shell. The library path goes before what is there."""
    lines = []
    for name, value in variables.items():
        rest = '"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' if name == "LD_LIBRARY_PATH" else ""
        lines.append(f"export {name}={shlex.quote(value)}{rest}")
    return "\n".join(lines)


def find_compiler(env: Mapping[str, str]) -> list[str]:
    """The C++ compiler as a command: CXX, else g++ or clang++. Raises ToolchainError."""
    named = shlex.split(env.get("CXX", ""))
    for candidate in [named] if named else [["g++"], ["clang++"], ["c++"]]:
        found = shutil.which(candidate[0], path=env.get("PATH"))
        if found is not None:
            return [found, *candidate[1:]]
    raise ToolchainError(
        f"no C++ compiler: {named[0] if named else 'g++'} is not there",
        cause="the virtual HIP is compiled once",
        hint="install g++ or clang, or set CXX",
    )


def _key(command: Sequence[str]) -> str:
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False).stdout
    total = hashlib.sha256("\0".join((*command, version)).encode())
    for path in (*sorted(_NATIVE.iterdir()), _EMULATOR / "serve_abi.h"):
        if path.is_file():
            total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:32]


def _once(folder: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder unless it is there: filled beside its place, then moved there in one step. Raises CacheError."""
    if folder.exists():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            fill(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was first
                    raise
    except OSError as error:
        raise CacheError(
            f"cannot keep the virtual HIP in {folder.parent}: {error.strerror or error}"
        ) from error


def _compile(command: Sequence[str], library: Path) -> None:
    sources = [str(path) for path in sorted(_NATIVE.glob("*.cpp"))]
    done = subprocess.run(
        [*command, "-o", str(library), *sources, "-ldl"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ToolchainError(
            f"{command[0]} cannot compile the virtual HIP:\n{done.stderr[:2000]}",
            cause="a compiler without C++17 and libstdc++",
            hint="use gcc 9 or clang 10, or newer",
        )


def _furnish(folder: Path, library: Path, prepare: str) -> None:
    (folder / library.name).symlink_to(Path("..") / library.parent.name / library.name)
    (folder / "libamdhip64.so").symlink_to(library.name)
    (folder / "prepare").write_text(prepare)
    (folder / "prepare").chmod(0o755)
