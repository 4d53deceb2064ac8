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

from aotforge.errors import CacheError, OutputError, RuntimeBuildError, ToolchainError
from aotforge.files import staged_folder
from aotforge.runtime.inspect import check_library
from aotforge.runtime.manifest import RuntimeManifest, load_runtime_manifest
from aotforge.runtime.tools import BROKEN, find_tools, tool_environment
from aotforge.runtime.values import RuntimeBuild, Tools
from aotforge.runtime.zstd import Download, unpack_zstd

_NOT_SHIPPED = ("tests", "fuzz", "hip_double")
_BUILD_SECONDS = 1800
_STAMP = "build.json"


def build_runtime(
    root: Path,
    *,
    cache: Path,
    jobs: int | None = None,
    environment: Mapping[str, str] | None = None,
    download: Download | None = None,
) -> RuntimeBuild:
    """Build `root`/runtime into `cache`/runtime/<inputs>, or find it there and verify it.

    Any number of builds may share the cache. `environment` (default: the process') gives PATH, CXX, CC and
    AOTFORGE_ZSTD_SOURCE; compiler flags in it are ignored, because bytes must not depend on them. Raises ToolchainError,
    RuntimeBuildError, ManifestError, CacheError.
    """
    env = dict(os.environ if environment is None else environment)
    manifest = load_runtime_manifest(root / "manifests")
    tools = find_tools(env)
    sources = source_digest(root / "runtime")
    inputs = inputs_key(manifest, sources, tools)
    folder = cache / "runtime" / inputs
    with _cache_lock(folder), _cache_errors(cache):
        found = _finished(folder, manifest, tools.compiler, sources, inputs)
        if found is not None:
            return found
        with staged_folder(folder) as staged:
            work = staged / "work"
            zstd = unpack_zstd(
                manifest.zstd, cache=cache, folder=work / "zstd", environment=env, download=download
            )
            settings = {"AOTFORGE_ZSTD_DIR": str(zstd), "AOTRITON_GIT_SHA1": sources[:40]}
            configure_and_build(
                root / "runtime",
                work / "objects",
                tools,
                settings,
                jobs=jobs,
                environment=env,
                install=staged / "prefix",
            )
            check_library(staged / "prefix" / "lib" / manifest.soname, manifest.soname)
            shutil.rmtree(work)
            (staged / _STAMP).write_text(
                json.dumps(_digests(staged / "prefix"), indent=1, sort_keys=True) + "\n"
            )
        done = _finished(folder, manifest, tools.compiler, sources, inputs, fresh=True)
    if done is None:
        raise CacheError(f"{folder} changed while it was written", hint="build again")
    return done


def source_digest(folder: Path) -> str:
    """SHA-256 over names and contents of every shipped source below `folder`; tests do not count."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if (
            name.parts[0] in _NOT_SHIPPED
            or not path.is_file()
            or any(part.startswith(".") for part in name.parts)
        ):
            continue
        content = path.read_bytes()
        total.update(f"{name.as_posix()}\0{len(content)}\0".encode() + content)
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
    """cmake, ninja and, with `install`, cmake --install. Raises RuntimeBuildError with the end of the failed step's output."""
    env = tool_environment(environment)
    cmake = str(tools.cmake)
    configure = [
        cmake,
        "-S",
        str(source),
        "-B",
        str(objects),
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={tools.ninja}",
    ]
    configure += [f"-DCMAKE_C_COMPILER={tools.cc}", f"-DCMAKE_CXX_COMPILER={tools.cxx}"]
    configure += [f"-D{name}={value}" for name, value in sorted(settings.items())]
    steps = [configure, [cmake, "--build", str(objects), *(["--parallel", str(jobs)] if jobs else [])]]
    if install is not None:
        steps.append([cmake, "--install", str(objects), "--prefix", str(install)])
    for step in steps:
        _run(step, env)


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
        lines = (done.stdout + done.stderr).strip().splitlines()
        shown = [line for line in lines if "error" in line.lower()][:5] or lines[-5:]
        raise RuntimeBuildError(
            "the runtime library did not build:\n  " + "\n  ".join(shown),
            cause=f"{' '.join(command[:3])} ended with {done.returncode}",
            hint="runtime/CMakeLists.txt says what it needs: C++17 with libstdc++, GCC 9 or clang 10 at least",
        )


def inputs_key(manifest: RuntimeManifest, sources: str, tools: Tools) -> str:
    """SHA-256 of everything that can change the library's bytes: pins, sources, and the tools' identity."""
    facts = {"manifest": manifest.model_dump(mode="json"), "sources": sources, "tools": tools.identity}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _digests(prefix: Path) -> dict[str, str]:
    files = sorted(path for path in prefix.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        path.relative_to(prefix).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def _finished(
    folder: Path, manifest: RuntimeManifest, compiler: str, sources: str, inputs: str, *, fresh: bool = False
) -> RuntimeBuild | None:
    """The build in `folder` if every file is as it was installed, else None."""
    prefix = folder / "prefix"
    try:
        noted = json.loads((folder / _STAMP).read_text())
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
