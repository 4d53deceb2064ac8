"""Building the library with cmake, once per set of inputs, into the cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aotforge.base.files import staged_folder
from aotforge.errors import CacheError, OutputError, RuntimeBuildError, ToolchainError
from aotforge.library.build_tools import BROKEN, find_tools, tool_environment, tool_settings
from aotforge.library.cmake import cmake_commands
from aotforge.library.elf_check import check_library
from aotforge.library.executor_build import build_error, build_in_executor, local_execution, root_identity
from aotforge.library.library_build import RuntimeBuild, Tools
from aotforge.library.library_manifest import RuntimeManifest, load_runtime_manifest
from aotforge.library.zstd_source import Download, unpack_zstd

if TYPE_CHECKING:
    from aotforge.sandbox.executors.step import ExecutionTarget

_NOT_SHIPPED = ("tests", "fuzz", "hip_double")
_BUILD_SECONDS = 1800
_STAMP = "build.json"
_COMPILER = "compiler.txt"


def build_runtime(
    root: Path,
    *,
    cache: Path,
    jobs: int | None = None,
    environment: Mapping[str, str] | None = None,
    download: Download | None = None,
    execution: ExecutionTarget | None = None,
) -> RuntimeBuild:
    """Build `root`/runtime into `cache`/runtime/<inputs>, or find it there and verify it.

    Any number of builds may share the cache. With a rootfs in `execution`, its tools build the library, and its digest is their identity;
    else this machine's. `environment` (default: the process') gives PATH, CXX, CC and
    AOTFORGE_ZSTD_SOURCE; compiler flags in it are ignored, because bytes must not depend on them. Raises ToolchainError,
    RuntimeBuildError, ManifestError, CacheError; with an execution target LimitError and ExecutorError.
    """
    env = dict(os.environ if environment is None else environment)
    manifest = load_runtime_manifest(root / "manifests")
    rootfs = execution.rootfs if execution is not None else None
    tools = find_tools(env) if rootfs is None else None
    sources = source_digest(root / "runtime")
    identity = tools.identity if tools is not None else root_identity(rootfs)
    inputs = inputs_key(manifest, sources, identity)
    folder = cache / "runtime" / inputs
    with _cache_lock(folder), _cache_errors(cache):
        found = _finished(folder, manifest, sources, inputs)
        if found is not None:
            return found
        with staged_folder(folder) as staged:
            work = staged / "work"
            zstd = unpack_zstd(
                manifest.zstd, cache=cache, folder=work / "zstd", environment=env, download=download
            )
            settings = {"AOTRITON_GIT_SHA1": sources[:40]}
            compiler = build_in_executor(
                execution or local_execution(cache),
                name="runtime library",
                source=shipped_files(root / "runtime"),
                beside={"AOTFORGE_ZSTD_DIR": zstd},
                settings=settings,
                jobs=jobs,
                install=staged / "prefix",
                tools=tools,
                environment=env,
            )
            check_library(staged / "prefix" / "lib" / manifest.soname, manifest.soname)
            shutil.rmtree(work)
            (staged / _COMPILER).write_text(compiler + "\n", encoding="utf-8")
            (staged / _STAMP).write_text(
                json.dumps(_digests(staged / "prefix"), indent=1, sort_keys=True) + "\n"
            )
        done = _finished(folder, manifest, sources, inputs, fresh=True)
    if done is None:
        raise CacheError(f"{folder} changed while it was written", hint="build again")
    return done


def shipped_files(folder: Path) -> dict[str, Path]:
    """Every shipped source below `folder` by its name there; tests do not count."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        if name.parts[0] not in _NOT_SHIPPED and not hidden and path.is_file():
            found[name.as_posix()] = path
    return found


def source_digest(folder: Path) -> str:
    """SHA-256 over names and contents of every shipped source below `folder`; tests do not count."""
    total = hashlib.sha256()
    for name, path in shipped_files(folder).items():
        content = path.read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def configure_and_build(
    source: Path,
    objects: Path,
    tools: Tools,
    settings: Mapping[str, str],
    *,
    jobs: int | None = None,
    environment: Mapping[str, str],
    install: Path | None = None,
) -> None:
    """cmake, ninja and, with `install`, cmake --install in folders that stay, for those who build again and again. Raises
    RuntimeBuildError with the end of the failed step's output."""
    commands = cmake_commands(
        cmake=str(tools.cmake),
        source=str(source),
        objects=str(objects),
        settings=tool_settings(tools) | dict(settings),
        jobs=jobs,
        install=str(install) if install is not None else None,
    )
    for command in commands:
        _run(command, tool_environment(environment))


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeBuildError(f"{command[0]} ran for more than {_BUILD_SECONDS} s") from error
    except OSError as error:
        raise ToolchainError(
            f"{command[0]} does not run: {error.strerror}",
            cause=BROKEN,
            hint="install it again, then build again",
        ) from error
    if done.returncode != 0:
        raise build_error(" ".join(command[:3]), done.returncode, done.stdout + done.stderr)


def inputs_key(manifest: RuntimeManifest, sources: str, identity: tuple[tuple[str, str], ...]) -> str:
    """SHA-256 of everything that can change the library's bytes: pins, sources, and the tools' identity."""
    facts = {"manifest": manifest.model_dump(mode="json"), "sources": sources, "tools": identity}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _digests(prefix: Path) -> dict[str, str]:
    files = sorted(path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        path.relative_to(prefix).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def _finished(
    folder: Path, manifest: RuntimeManifest, sources: str, inputs: str, *, fresh: bool = False
) -> RuntimeBuild | None:
    """The build in `folder` if every file is as it was installed, else None."""
    prefix = folder / "prefix"
    try:
        noted = json.loads((folder / _STAMP).read_text())
        compiler = (folder / _COMPILER).read_text(encoding="utf-8").strip()
        if noted != _digests(prefix):
            return None
    except (OSError, ValueError):
        return None
    library = prefix / "lib" / manifest.soname
    return RuntimeBuild(
        prefix=prefix,
        library=library,
        soname=manifest.soname,
        sha256=noted[f"lib/{manifest.soname}"],
        source_digest=sources,
        inputs=inputs,
        compiler=compiler,
        glibc=check_library(library, manifest.soname),
        fresh=fresh,
    )


@contextmanager
def _cache_errors(cache: Path) -> Iterator[None]:
    """What cannot be written here is the cache; no output folder has been touched yet."""
    try:
        yield
    except OutputError as error:
        raise CacheError(
            error.what,
            cause=error.cause,
            hint=f"make room in the cache folder {cache}, or choose another one with --cache; then build again",
        ) from error


@contextmanager
def _cache_lock(folder: Path) -> Iterator[None]:
    """Builds of the same inputs wait for one another; the kernel frees the lock of a killed one."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(
            folder.parent / f".{folder.name}.build.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
    except OSError as error:
        raise CacheError(
            f"{folder.parent} cannot be used: {error.strerror}", hint="choose another cache folder"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
