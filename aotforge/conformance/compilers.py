"""Compilers that PyTorch is built with, HIP's headers for them, and cached compilations."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aotforge.base.cache_folder import COMPILED, COMPILED_STAMP
from aotforge.base.files import make_folders
from aotforge.base.object_cache import record_use
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.library.build_tools import run_tool
from aotforge.run.release_programs import ReleasePrograms

WANTED = {"gcc": (9, 10, 11, 12), "clang": (11, 12, 13, 14)}
"""Versions by family. A check takes the newest of each family; CI has tests with all of them."""

STANDARDS = ("17", "20")
_PROGRAMS = {"gcc": "g++", "clang": "clang++"}
_NAMED_20 = 10
_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A C++ compiler. `identity` distinguishes its output from another's."""

    family: str
    version: int
    path: Path
    identity: str

    @property
    def name(self) -> str:
        """E.g. `gcc 12`."""
        return f"{self.family} {self.version}"

    def standard(self, year: str) -> str:
        """The flag of a C++ standard; GCC 9 accepts C++20 by its working name only."""
        early = self.family == "gcc" and self.version < _NAMED_20 and year == "20"
        return f"-std=c++{'2a' if early else year}"


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """Result of a compiler run. `program` is the linked program, None when there is none."""

    ok: bool
    output: str
    program: Path | None


def find_compilers(path: str | None = None, *, every: bool = False) -> tuple[Compiler, ...]:
    """The newest wanted GCC and clang on PATH, or `every` one; the oldest first."""
    chosen: list[Compiler] = []
    for family, program in _PROGRAMS.items():
        names = (program, *(f"{program}-{version}" for version in WANTED[family]))
        by_version = {
            compiler.version: compiler
            for name in names
            if (compiler := _identify(family, shutil.which(name, path=path)))
        }
        fitting = [by_version[version] for version in WANTED[family] if version in by_version]
        chosen += fitting if every else fitting[-1:]
    return tuple(chosen)


def _identify(family: str, path: str | None) -> Compiler | None:
    if path is None:
        return None
    try:
        done = run_tool([path, "--version"], os.environ, seconds=_SECONDS)
    except ToolchainError:
        return None
    first = done.stdout.partition("\n")[0].strip()
    match = re.search(r"(?:version |\) )(\d+)\.", first)
    if done.returncode or match is None or ("clang" in first) != (family == "clang"):
        return None
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return Compiler(family=family, version=int(match.group(1)), path=Path(path), identity=f"{first} {digest}")


@dataclass(frozen=True, kw_only=True)
class Hip:
    """HIP's headers: their folder `tree`, the include folder to name, and macros."""

    name: str
    tree: Path
    include: Path | None
    flags: tuple[str, ...] = ()


def find_hip(checkout: Path, installed: Path = Path("/usr/include")) -> Hip:
    """The distribution's headers where they are installed, else the checkout's declarations."""
    try:
        text = (installed / "hip" / "hip_version.h").read_text()
    except OSError:
        return standin_hip(checkout)
    numbers = re.findall(r"#define HIP_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)", text)
    # /usr/include is searched anyhow, and naming it would change the order of the standard folders
    return Hip(
        name=f"HIP {'.'.join(numbers)} headers",
        include=None if installed == Path("/usr/include") else installed,
        tree=installed / "hip",
        flags=("-D__HIP_PLATFORM_AMD__",),
    )


def standin_hip(checkout: Path) -> Hip:
    """The checkout's declarations, for machines without ROCm."""
    folder = checkout / "runtime" / "src" / "standin"
    return Hip(name="stand-in HIP declarations", tree=folder, include=folder)


@cache
def tree_digest(folder: Path) -> str:
    """SHA-256 over names and contents of the files below `folder`."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        total.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def compile_program(
    compiler: Compiler,
    source: str,
    programs: ReleasePrograms,
    *,
    work: Path,
    cache: Path,
    includes: Sequence[Path],
    headers: Sequence[Path],
    flags: Sequence[str],
    objects: Sequence[Path],
    files: Mapping[str, str],
) -> Compilation:
    """Compiles `source` as program.cpp next to `files` in the temporary folder `work`, or has the result of
    an earlier run from `cache`. `headers`: folders whose contents count besides."""
    facts = [compiler.identity, source, list(map(tree_digest, headers)), list(flags), dict(files)]
    try:
        facts.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in objects])
    except OSError as error:
        raise ReleaseError(
            f"{error.filename} cannot be read: {error.strerror}",
            cause="the archive that has it is not complete",
            hint="fetch the release again",
        ) from None
    kept = cache / COMPILED / hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    if cached := _load(kept):
        return cached
    folder = Path(tempfile.mkdtemp(prefix="compile-", dir=work))
    for name, text in {"program.cpp": source, **files}.items():
        (folder / name).write_text(text)
    command = [str(compiler.path), *(f"-I{path}" for path in includes), "program.cpp", "-o", "program"]
    try:
        done = programs.compile(
            [*command, *flags, *map(str, objects)],
            readable=[work, *includes, *objects],
            writable=[folder],
            seconds=_SECONDS,
            folder=folder,
        )
    except ToolchainError as error:
        return Compilation(ok=False, output=error.what, program=None)
    program = folder / "program" if done.status == 0 and (folder / "program").exists() else None
    made = Compilation(ok=done.status == 0, output=done.stdout + done.stderr, program=program)
    if made.ok:  # a failure may have a cause outside the key: a full disk, a broken linker
        _save(kept, made)
    return made


def _load(kept: Path) -> Compilation | None:
    try:
        output = json.loads((kept / COMPILED_STAMP).read_bytes())["output"]
        record_use(kept / COMPILED_STAMP, (kept / COMPILED_STAMP).stat())
    except (OSError, ValueError, LookupError):
        return None
    program = kept / "program"
    return Compilation(ok=True, output=str(output), program=program if program.exists() else None)


def _save(kept: Path, made: Compilation) -> None:
    """A cache that cannot be written, or has it by now, is not an error."""
    with suppress(OSError):
        make_folders(kept.parent)
        with tempfile.TemporaryDirectory(prefix=".made-", dir=kept.parent) as work:
            staged = Path(work) / "made"
            staged.mkdir()
            if made.program:
                shutil.copy2(made.program, staged / "program")
            (staged / COMPILED_STAMP).write_text(json.dumps({"output": made.output}))
            staged.rename(kept)
