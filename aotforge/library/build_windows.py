"""Building the library for Windows x86-64 with mingw-w64, once per set of inputs, into the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotforge.base.files import staged_folder
from aotforge.errors import CacheError, RuntimeBuildError, ToolchainError
from aotforge.formats.pe import (
    DYNAMIC_BASE,
    HIGH_ENTROPY,
    NX_COMPATIBLE,
    characteristics,
    imports,
    link_time,
)
from aotforge.formats.pe import exports as read_exports
from aotforge.library.build_linux import (
    _cache_errors,
    _cache_lock,
    _digests,
    configure_and_build,
    shipped_files,
    source_digest,
)
from aotforge.library.build_tools import find_tools
from aotforge.library.cmake import WORK
from aotforge.library.dl_source import DlSource, dl_source
from aotforge.library.executor_build import build_in_executor, root_identity
from aotforge.library.exports import EXPORTS
from aotforge.library.library_build import Tools
from aotforge.library.library_manifest import load_runtime_manifest
from aotforge.library.zstd_source import Download, unpack_zstd

if TYPE_CHECKING:
    from aotforge.sandbox.executors.step import ExecutionTarget

PACKAGES = "g++-mingw-w64-x86-64-posix llvm-19 cmake ninja-build"
"""Debian's packages that a Windows build needs."""

LIBRARY = "lib/aotriton_v2.dll"
ALLOWED_IMPORTS = frozenset({"KERNEL32.DLL", "MSVCRT.DLL"})
"""Libraries that every Windows has. HIP is none of them: it is looked up at run time."""

_TARGET = "x86_64-w64-mingw32"
_TOOLCHAIN = "cmake/mingw.cmake"
_DLLTOOLS = ("llvm-dlltool-19", "llvm-dlltool", *(f"llvm-dlltool-{version}" for version in (22, 18, 16, 14)))
_STATIC = (
    "libstdc++.a",
    "libgcc.a",
    "libgcc_eh.a",
    "libwinpthread.a",
    "libmingw32.a",
    "libmingwex.a",
    "libmsvcrt.a",
)
_STAMP = "build.json"
_INSTALL = f"apt-get install {PACKAGES}"


@dataclass(frozen=True, kw_only=True)
class WindowsTools:
    """mingw-w64's compilers with cmake and ninja, and LLVM's dlltool, which writes import libraries. `identity` names everything of this
    machine that the files' bytes can depend on."""

    tools: Tools
    dlltool: Path
    identity: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class WindowsBuild:
    """A built and checked runtime for Windows. `prefix` holds lib/, include/ and lib/cmake/aotriton/; `digests` are the SHA-256 of its
    files by path there.

    `source_digest` covers the C++ sources, `inputs` everything that can change a file's bytes. `dl` says what dl.dll was built from.
    `fresh` is False when an earlier build had made exactly this.
    """

    prefix: Path
    digests: Mapping[str, str]
    source_digest: str
    inputs: str
    compiler: str
    dl: str
    fresh: bool


def find_windows_tools(environment: Mapping[str, str]) -> WindowsTools:
    """AOTFORGE_MINGW_CC and AOTFORGE_MINGW_CXX win when set. Raises ToolchainError with the command that installs what is missing."""
    path = environment.get("PATH", "")
    cxx = _program(environment.get("AOTFORGE_MINGW_CXX"), (f"{_TARGET}-g++-posix", f"{_TARGET}-g++"), path)
    cc = _program(environment.get("AOTFORGE_MINGW_CC"), (f"{_TARGET}-gcc-posix", f"{_TARGET}-gcc"), path)
    dlltool = Path(_program(None, _DLLTOOLS, path))
    tools = find_tools(dict(environment) | {"CC": cc, "CXX": cxx}, libraries=_STATIC)
    if _TARGET not in tools.compiler:
        raise ToolchainError(
            f"{cxx} is no compiler for {_TARGET}",
            cause=f"it is {tools.compiler}",
            hint=f"unset AOTFORGE_MINGW_CC and AOTFORGE_MINGW_CXX, or: {_INSTALL}",
        )
    # its --version does not tell it from the next one
    facts = ("dlltool", hashlib.sha256(dlltool.resolve().read_bytes()).hexdigest())
    return WindowsTools(tools=tools, dlltool=dlltool, identity=(*tools.identity, facts))


def _program(chosen: str | None, names: tuple[str, ...], path: str) -> str:
    wanted = (chosen,) if chosen else names
    for name in wanted:
        if found := shutil.which(name, path=path):
            return found
    raise ToolchainError(
        f"no {wanted[0]} found, which a build for Windows needs",
        cause="the machine does not have mingw-w64 (with POSIX threads) and LLVM's tools on PATH",
        hint=_INSTALL,
    )


def build_windows_runtime(
    root: Path,
    *,
    cache: Path,
    jobs: int | None = None,
    environment: Mapping[str, str] | None = None,
    download: Download | None = None,
    execution: ExecutionTarget | None = None,
) -> WindowsBuild:
    """Build `root`/runtime for Windows into `cache`/runtime/<inputs>, or find it there and verify it.

    Any number of builds may share the cache. With a rootfs in `execution`, its tools build the library, and its digest is their identity.
    Raises ToolchainError, RuntimeBuildError, ManifestError, CacheError; with an execution target LimitError and ExecutorError.
    """
    env = dict(os.environ if environment is None else environment)
    manifest = load_runtime_manifest(root / "manifests")
    rootfs = execution.rootfs if execution is not None else None
    found = find_windows_tools(env) if rootfs is None else None
    sources = source_digest(root / "runtime")
    pins = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((root / "manifests").glob("dl.yaml"))
    }
    facts: dict[str, object] = {
        "platform": "win_amd64",
        "manifest": manifest.model_dump(mode="json"),
        "pins": pins,
    }
    facts |= {"sources": sources, "tools": found.identity if found else root_identity(rootfs)}
    inputs = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    folder = cache / "runtime" / inputs
    with _cache_lock(folder), _cache_errors(cache):
        done = _finished(folder, sources, inputs, fresh=False)
        if done is not None:
            return done
        with staged_folder(folder) as staged:
            work = staged / "work"
            zstd = unpack_zstd(
                manifest.zstd, cache=cache, folder=work / "zstd", environment=env, download=download
            )
            dl = dl_source(root, cache=cache, folder=work / "dl", environment=env)
            if found is not None:
                _build_here(root, found, zstd, dl, sources, staged, jobs=jobs, environment=env)
                compiler = found.tools.compiler
            else:
                assert execution is not None
                compiler = _build_away(root, execution, zstd, dl, sources, staged, jobs=jobs)
            check_dll(staged / "prefix" / LIBRARY, exported_names(root))
            _keep_licence(dl, staged / "prefix")
            shutil.rmtree(work)
            noted = {
                "files": _digests(staged / "prefix"),
                "compiler": compiler,
                "dl": dl.name,
            }
            (staged / _STAMP).write_text(json.dumps(noted, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        done = _finished(folder, sources, inputs, fresh=True)
    if done is None:
        raise CacheError(f"{folder} changed while it was written", hint="build again")
    return done


def _build_here(
    root: Path, found: WindowsTools, zstd: Path, dl: DlSource, sources: str, staged: Path,
    *, jobs: int | None, environment: Mapping[str, str],
) -> None:  # fmt: skip
    settings = {"AOTFORGE_ZSTD_DIR": str(zstd), "AOTRITON_GIT_SHA1": sources[:40]}
    settings |= {"CMAKE_TOOLCHAIN_FILE": str(root / "runtime" / _TOOLCHAIN)}
    settings |= {"AOTFORGE_LLVM_DLLTOOL": str(found.dlltool)} | dl.settings
    configure_and_build(
        root / "runtime", staged / "work" / "objects", found.tools, settings,
        jobs=jobs, environment=environment, install=staged / "prefix",
    )  # fmt: skip


def _build_away(
    root: Path,
    execution: ExecutionTarget,
    zstd: Path,
    dl: DlSource,
    sources: str,
    staged: Path,
    *,
    jobs: int | None,
) -> str:
    """In a root, by its own mingw-w64; the compiler's description."""
    beside = {"AOTFORGE_ZSTD_DIR": zstd}
    if dl.original is not None:
        beside["AOTFORGE_DL_ORIGINAL"] = dl.original
    return build_in_executor(
        execution,
        name="runtime library for Windows",
        source=shipped_files(root / "runtime"),
        beside=beside,
        settings={
            "AOTRITON_GIT_SHA1": sources[:40],
            "CMAKE_TOOLCHAIN_FILE": f"{WORK}/in/source/{_TOOLCHAIN}",
        },
        jobs=jobs,
        install=staged / "prefix",
        variables={"CC": f"{_TARGET}-gcc-posix", "CXX": f"{_TARGET}-g++-posix"},
    )


def _keep_licence(dl: DlSource, prefix: Path) -> None:
    """That of dlfcn-win32, when dl is its."""
    text = dl.original / "COPYING" if dl.original is not None else None
    if text is not None and text.exists():
        target = prefix / "share" / "licenses" / "aotriton" / "LICENSE.dlfcn-win32"
        target.parent.mkdir(parents=True)
        target.write_bytes(text.read_bytes())


def exported_names(root: Path) -> frozenset[str]:
    """What the library must export and nothing else: the names of `EXPORTS`."""
    lines = (root / EXPORTS).read_text(encoding="utf-8").partition("\nEXPORTS\n")[2].splitlines()
    return frozenset(line.partition(" = ")[0].strip().strip('"') for line in lines)


def check_dll(path: Path, exports: frozenset[str]) -> None:
    """Raises RuntimeBuildError for an import beyond `ALLOWED_IMPORTS`, other exports, a link time, or missing hardening."""
    try:
        data = path.read_bytes()
        needed, names = (
            imports(data),
            {entry.name or f"number {entry.ordinal}" for entry in read_exports(data)},
        )
    except OSError as error:
        raise RuntimeBuildError(f"{path} cannot be read: {error.strerror}") from error
    except RuntimeBuildError as error:
        raise RuntimeBuildError(f"{path}: {error.what}") from error
    complaints = []
    if strangers := set(needed) - ALLOWED_IMPORTS:
        complaints.append(f"it imports {', '.join(sorted(strangers))}")
    if odd := names - exports:
        complaints.append(f"it exports {min(odd)}")
    if lacking := exports - names:
        complaints.append(f"it lacks {min(lacking)}")
    if link_time(data) != 0:
        complaints.append("it holds the time of its linking")
    if ~characteristics(data) & (HIGH_ENTROPY | DYNAMIC_BASE | NX_COMPATIBLE):
        complaints.append("its addresses are fixed or its data can be executed")
    if complaints:
        raise RuntimeBuildError(
            f"{path}: {'; '.join(complaints)}",
            cause="a compiler or linker that does not follow runtime/cmake/windows.cmake",
            hint=_INSTALL,
        )


def _finished(folder: Path, sources: str, inputs: str, *, fresh: bool) -> WindowsBuild | None:
    """The build in `folder` if every file is as it was installed, else None."""
    prefix = folder / "prefix"
    try:
        noted = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        files, compiler, dl = noted["files"], str(noted["compiler"]), str(noted["dl"])
        if files != _digests(prefix):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return WindowsBuild(
        prefix=prefix, digests=files, source_digest=sources, inputs=inputs, compiler=compiler, dl=dl, fresh=fresh
    )  # fmt: skip
