"""Compilers that PyTorch is built with, HIP's headers for them, and cached compilations."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.cache_folder import COMPILED, COMPILED_STAMP
from aotforge.base.files import make_folders, new_folder_in
from aotforge.base.object_cache import record_use
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.library.build_tools import run_tool
from aotforge.run.release_programs import ReleasePrograms

WANTED = (*(("gcc", n) for n in (9, 10, 11, 12)), *(("clang", n) for n in (11, 12, 13, 14)))
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


def find_compilers(path: str | None = None) -> tuple[tuple[Compiler, ...], tuple[str, ...]]:
    """Compilers of the wanted versions on PATH, and the names of those that are missing."""
    found: dict[tuple[str, int], Compiler] = {}
    for family, program in _PROGRAMS.items():
        names = [f"{program}-{version}" for kind, version in WANTED if kind == family]
        for name in (*names, program):
            compiler = _identify(family, shutil.which(name, path=path))
            if compiler and (family, compiler.version) in WANTED:
                found.setdefault((family, compiler.version), compiler)
    missing = tuple(f"{family} {version}" for family, version in WANTED if (family, version) not in found)
    return tuple(found[key] for key in WANTED if key in found), missing


def _identify(family: str, path: str | None) -> Compiler | None:
    if path is None:
        return None
    try:
        done = run_tool([path, "--version"], os.environ, seconds=_SECONDS)
    except ToolchainError:
        return None
    first = done.stdout.partition("\n")[0].strip()
    match = re.search(r"(?:version |\) )(\d+)\.", first)
    is_clang = "clang" in first
    if done.returncode or match is None or is_clang != (family == "clang"):
        return None
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return Compiler(family=family, version=int(match.group(1)), path=Path(path), identity=f"{first} {digest}")


@dataclass(frozen=True, kw_only=True)
class Hip:
    """HIP's headers: an include folder, its digest, and macros."""

    name: str
    include: Path | None
    digest: str
    flags: tuple[str, ...] = ()


def find_hip(checkout: Path, installed: Path = Path("/usr/include")) -> Hip:
    """The distribution's headers where they are installed, else the checkout's declarations."""
    version = installed / "hip" / "hip_version.h"
    try:
        text = version.read_text()
    except OSError:
        return standin_hip(checkout)
    numbers = re.findall(r"#define HIP_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)", text)
    # /usr/include is searched anyhow, and naming it would change the order of the standard folders
    return Hip(
        name=f"HIP {'.'.join(numbers)} headers",
        include=None if installed == Path("/usr/include") else installed,
        digest=tree_digest(installed / "hip"),
        flags=("-D__HIP_PLATFORM_AMD__",),
    )


def standin_hip(checkout: Path) -> Hip:
    """The checkout's declarations, for machines without ROCm."""
    folder = checkout / "runtime" / "src" / "standin"
    return Hip(name="stand-in HIP declarations", include=folder, digest=tree_digest(folder))


def tree_digest(folder: Path) -> str:
    """SHA-256 over names and contents of the files below `folder`."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        total.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


@dataclass(frozen=True, kw_only=True)
class CompilationCache:
    """Compilations in the temporary folder `work`, by `programs`; successful results are kept in `cache`."""

    work: Path
    cache: Path
    programs: ReleasePrograms

    def compile(
        self,
        compiler: Compiler,
        source: str,
        *,
        includes: Sequence[Path] = (),
        inputs: Sequence[str] = (),
        flags: Sequence[str] = (),
        objects: Sequence[Path] = (),
        files: Sequence[tuple[str, str]] = (),
    ) -> Compilation:
        """Compiles `source` as program.cpp, next to `files` (name, text), to `program`.

        `inputs` are digests of the includes' contents: with source, flags, objects and compiler they are the cache key.
        """
        facts = [compiler.identity, source, list(inputs), list(flags), list(files)]
        try:
            facts.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in objects])
        except OSError as error:
            raise ReleaseError(
                f"{error.filename} cannot be read: {error.strerror}",
                cause="the archive that has it is not complete",
                hint="fetch the release again",
            ) from None
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        cached = self._load(key)
        if cached is not None:
            return cached
        folder = Path(tempfile.mkdtemp(prefix="compile-", dir=self.work))
        for name, text in (("program.cpp", source), *files):
            (folder / name).write_text(text)
        command = [str(compiler.path), *(f"-I{path}" for path in includes), "program.cpp", "-o", "program"]
        command += [*flags, *map(str, objects)]
        try:
            done = self.programs.compile(
                command,
                readable=[self.work, *includes, *objects],
                writable=[folder],
                seconds=_SECONDS,
                folder=folder,
            )
        except ToolchainError as error:
            return Compilation(ok=False, output=error.what, program=None)
        output, ok = done.stdout + done.stderr, done.status == 0
        program = folder / "program" if ok and (folder / "program").exists() else None
        if ok:  # a failure may have a cause outside the key: a full disk, a broken linker
            self._save(key, output, program)
        return Compilation(ok=ok, output=output, program=program)

    def _load(self, key: str) -> Compilation | None:
        folder = self.cache / COMPILED / key
        try:
            result = json.loads((folder / COMPILED_STAMP).read_bytes())
            record_use(folder / COMPILED_STAMP, (folder / COMPILED_STAMP).stat())
            program = folder / "program" if result["program"] else None
            if program and hashlib.sha256(program.read_bytes()).hexdigest() != result["program"]:
                return None
            return Compilation(ok=True, output=str(result["output"]), program=program)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _save(self, key: str, output: str, program: Path | None) -> None:
        """A cache that cannot be written is not an error: it costs a compilation."""
        target = self.cache / COMPILED / key
        with suppress(OSError):
            make_folders(target.parent)
            staged = new_folder_in(target.parent, prefix=f".{key[:8]}-")
            digest = ""
            if program:
                shutil.copy2(program, staged / "program")
                digest = hashlib.sha256(program.read_bytes()).hexdigest()
            (staged / COMPILED_STAMP).write_text(json.dumps({"output": output, "program": digest}))
            if target.exists():
                shutil.rmtree(target, ignore_errors=True)
            staged.rename(target)
