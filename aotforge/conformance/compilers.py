"""Compilers that PyTorch is built with: which of them are here, and one compilation, kept by everything that decides its result."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.library.build_tools import tool_environment

WANTED = (*(("gcc", n) for n in (9, 10, 11, 12)), *(("clang", n) for n in (11, 12, 13, 14)))
STANDARDS = ("17", "20")
_PROGRAMS = {"gcc": "g++", "clang": "clang++"}
_NAMED_20 = 10
_SECONDS = 120
_CACHE = "check-2"


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A C++ compiler. `identity` tells its output from another's."""

    family: str
    version: int
    path: Path
    identity: str

    @property
    def name(self) -> str:
        """E.g. `gcc 12`."""
        return f"{self.family} {self.version}"

    def standard(self, year: str) -> str:
        """The flag of a C++ standard; GCC 9 knows C++20 by its working name only."""
        early = self.family == "gcc" and self.version < _NAMED_20 and year == "20"
        return f"-std=c++{'2a' if early else year}"


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """What a compiler said. `program` is the linked program, None when there is none."""

    ok: bool
    output: str
    program: Path | None


def find_compilers(path: str | None = None) -> tuple[tuple[Compiler, ...], tuple[str, ...]]:
    """Those of the wanted versions on PATH, and the names of those that are missing."""
    found: dict[tuple[str, int], Compiler] = {}
    for family, program in _PROGRAMS.items():
        names = [f"{program}-{version}" for kind, version in WANTED if kind == family]
        for name in (*names, program):
            compiler = _look(family, shutil.which(name, path=path))
            if compiler and (family, compiler.version) in WANTED:
                found.setdefault((family, compiler.version), compiler)
    missing = tuple(f"{family} {version}" for family, version in WANTED if (family, version) not in found)
    return tuple(found[key] for key in WANTED if key in found), missing


def _look(family: str, path: str | None) -> Compiler | None:
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=False, env=tool_environment(os.environ)
        )
    except OSError:
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
    """HIP's headers: an include folder, its digest, macros, and what to call it."""

    name: str
    include: Path | None
    digest: str
    flags: tuple[str, ...] = ()


def find_hip(checkout: Path, installed: Path = Path("/usr/include")) -> Hip:
    """The distribution's headers where they are installed, else the stand-in declarations of the checkout."""
    version = installed / "hip" / "hip_version.h"
    try:
        text = version.read_text()
    except OSError:
        return standin_hip(checkout)
    numbers = [
        re.search(rf"#define HIP_VERSION_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")
    ]
    name = ".".join(match.group(1) for match in numbers if match)
    # /usr/include is searched anyhow, and naming it would change the order of the standard folders
    return Hip(
        name=f"HIP {name} headers",
        include=None if installed == Path("/usr/include") else installed,
        digest=tree_digest(installed / "hip"),
        flags=("-D__HIP_PLATFORM_AMD__",),
    )


def standin_hip(checkout: Path) -> Hip:
    """Declarations for machines without ROCm."""
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
    """Where compilations happen (`work`, temporary) and are kept (`cache`; None: nowhere)."""

    work: Path
    cache: Path | None

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
        """`source` as program.cpp, with `files` (name, text) beside it, to `program`. `inputs` are digests of what the includes and
        `objects` hold: with source, flags and compiler they decide the result, which is kept when it succeeds.
        """
        facts = [compiler.identity, source, list(inputs), list(flags), list(files)]
        facts.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in objects])
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        kept = self._kept(key)
        if kept is not None:
            return kept
        folder = Path(tempfile.mkdtemp(prefix="compile-", dir=self.work))
        for name, text in (("program.cpp", source), *files):
            (folder / name).write_text(text)
        command = [str(compiler.path), *(f"-I{path}" for path in includes), "program.cpp", "-o", "program"]
        command += [*flags, *map(str, objects)]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
                env=tool_environment(os.environ),
            )
            output, ok = done.stdout + done.stderr, done.returncode == 0
        except subprocess.TimeoutExpired:
            return Compilation(
                ok=False, output=f"{compiler.name} ran for more than {_SECONDS} s", program=None
            )
        program = folder / "program" if ok and (folder / "program").exists() else None
        if ok:  # what failed may have failed for a reason outside the key: a full disk, a broken linker
            self._keep(key, output, program)
        return Compilation(ok=ok, output=output, program=program)

    def _kept(self, key: str) -> Compilation | None:
        if self.cache is None:
            return None
        folder = self.cache / _CACHE / key
        try:
            said = json.loads((folder / "result.json").read_text())
            program = folder / "program" if said["program"] else None
            if program and hashlib.sha256(program.read_bytes()).hexdigest() != said["program"]:
                return None
            return Compilation(ok=True, output=str(said["output"]), program=program)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _keep(self, key: str, output: str, program: Path | None) -> None:
        """Losing a result costs a compilation, so a cache that cannot be written is no error."""
        if self.cache is None:
            return
        place = self.cache / _CACHE / key
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            staged = Path(tempfile.mkdtemp(prefix=f".{key[:8]}-", dir=place.parent))
            digest = ""
            if program:
                shutil.copy2(program, staged / "program")
                digest = hashlib.sha256(program.read_bytes()).hexdigest()
            said = {"output": output, "program": digest}
            (staged / "result.json").write_text(json.dumps(said))
            if place.exists():
                shutil.rmtree(place, ignore_errors=True)
            staged.rename(place)
        except OSError:
            return
