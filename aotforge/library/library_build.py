"""Builds of the library in the cache: one folder per set of inputs, verified whenever it is used."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from aotforge.base.cache_folder import LIBRARIES, STAMP, check_cache_name
from aotforge.base.files import errors_as, staged_folder, waiting_lock
from aotforge.base.object_cache import NOT_SHARED, SharedObjects, record_use
from aotforge.base.source_groups import files_digest
from aotforge.errors import CacheError
from aotforge.formats.api_level import library_name
from aotforge.formats.archive import Link, Member, sha256_file, write_tar_gz
from aotforge.formats.tar_reader import FolderWriter, TarFacts, UnsafeArchiveError, read_archive
from aotforge.library.build_tools import Tools
from aotforge.library.cmake_build import CMakeBuild, build_in_executor, local_execution
from aotforge.library.sources import RuntimeManifest, load_runtime_manifest, unpack_zstd
from aotforge.run.step import ExecutionTarget, RootFS

_NOT_SHIPPED = ("tests", "fuzz", "hip_double", "cuda_double")
_FORMAT = 2
"""Of the stamp."""

_KIND = f"library-{_FORMAT}"
_BOUNDS = TarFacts(sha256="", size=2**30, members=10_000)
"""Of a library in a shared cache."""


@dataclass(frozen=True, kw_only=True)
class LibraryBuild:
    """A built and verified library. `prefix` holds lib/, include/ and lib/cmake/aotriton/; `library` is the
    shared library in it, `digests` are the SHA-256 of all files by path there.

    `inputs` is the digest of everything that can change a file's bytes, `compiler` describes the C++
    compiler. `fresh` is False when an earlier build had the same inputs.
    """

    prefix: Path
    library: Path
    digests: Mapping[str, str]
    inputs: str
    fresh: bool
    compiler: str


@dataclass(frozen=True, kw_only=True)
class LibraryRequest:
    """A build of `root`/runtime in `cache` at the API level `level` (default: the manifest's).

    With a rootfs in `execution`, its tools build the library, and its digest is their identity; else this
    machine's. `environment` (default: the process') gives PATH, CXX, CC and AOTFORGE_SOURCES; compiler
    flags in it are ignored, because bytes must not depend on them.
    """

    root: Path
    cache: Path
    level: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    jobs: int | None = None
    shared: SharedObjects = NOT_SHARED
    execution: ExecutionTarget | None = None

    @cached_property
    def manifest(self) -> RuntimeManifest:
        """`manifests/runtime.yaml`."""
        return load_runtime_manifest(self.root / "manifests")

    @property
    def api_level(self) -> str:
        """The library's API level, e.g. 0.13b."""
        return self.level or self.manifest.api_level

    @property
    def soname(self) -> str:
        """The library's SONAME."""
        return library_name(self.api_level)

    @cached_property
    def sources(self) -> str:
        """Digest of the C++ sources."""
        return source_digest(self.root / "runtime")

    @property
    def rootfs(self) -> RootFS | None:
        """The rootfs whose tools build the library; None for this machine's."""
        return self.execution.rootfs if self.execution is not None else None

    def _build(self, build: CMakeBuild, tools: Tools | None, work: Path) -> str:
        """Completes `build` and installs it beside `work`, to prefix; returns the compiler's description."""
        zstd = work / "zstd"
        unpack_zstd(self.manifest.zstd, cache=self.cache, folder=zstd, environment=self.environment)
        complete = replace(
            build,
            tools=tools,
            sources=shipped_files(self.root / "runtime"),
            folders={"AOTFORGE_ZSTD_DIR": zstd, **build.folders},
            settings={
                "AOTRITON_GIT_SHA1": self.sources[:40],
                "AOTFORGE_API_LEVEL": self.api_level,
                **build.settings,
            },
            environment=self.environment,
            jobs=self.jobs,
        )
        execution = self.execution or local_execution(self.cache)
        return build_in_executor(execution, complete, work.with_name("prefix"))

    def make(
        self,
        library: str,
        find: Callable[[Mapping[str, str]], Tools],
        build: Callable[[Path], CMakeBuild],
        check: Callable[[Path], None],
        **facts: object,
    ) -> LibraryBuild:
        """The verified library in the cache, made if missing.

        `find`: tools of this machine, for builds without a rootfs; `build` may use a folder for its files;
        `check` raises for a prefix that cannot be used; `facts`: further inputs.
        """
        tools = find(self.environment) if self.rootfs is None else None
        identity = tools.identity if tools else (("root", self.rootfs.identity),) if self.rootfs else ()

        def fill(staged: Path) -> str:
            compiler = self._build(build(staged / "work"), tools, staged / "work")
            check(staged / "prefix")
            shutil.rmtree(staged / "work")
            return compiler

        inputs = inputs_key(
            manifest=self.manifest.model_dump(mode="json"),
            level=self.api_level,
            sources=self.sources,
            tools=identity,
            **facts,
        )
        return self.cached(library, inputs, fill)

    def cached(self, library: str, inputs: str, build: Callable[[Path], str]) -> LibraryBuild:
        """The verified build of `inputs` in the cache, made by `build` if missing: it fills the folder's
        prefix/ and returns the compiler's description. Processes may share the cache."""
        folder = self.cache / LIBRARIES / inputs

        def stored_build(*, fresh: bool) -> LibraryBuild | None:
            prefix = folder / "prefix"
            try:
                stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
                record_use(folder / STAMP, (folder / STAMP).stat())
                if stamp["files"] != file_digests(prefix):
                    return None
                return LibraryBuild(
                    prefix=prefix,
                    library=prefix / library,
                    digests=stamp["files"],
                    inputs=inputs,
                    fresh=fresh,
                    compiler=stamp["notes"]["compiler"],
                )
            except (OSError, ValueError, KeyError, TypeError):
                return None

        check_cache_name(self.cache.absolute())
        if (done := stored_build(fresh=False)) is not None:
            self._offer(inputs, folder)
            return done
        # the kernel releases the lock of a killed build
        hint = f"free some space in {self.cache}, or choose another folder with --cache; then build again"
        with (
            errors_as(CacheError, self.cache, hint=hint),
            waiting_lock(folder.parent / f"{folder.name}.build"),
        ):
            if (done := stored_build(fresh=False)) is not None:
                return done
            if self._fetch(inputs, folder):
                if (done := stored_build(fresh=False)) is not None:
                    return done
                self.shared.reject(_KIND, inputs, "is not an intact library")
            with staged_folder(folder) as staged:
                compiler = build(staged)
                stamp = {"files": file_digests(staged / "prefix"), "notes": {"compiler": compiler}}
                (staged / STAMP).write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n")
            done = stored_build(fresh=True)
        if done is None:
            raise CacheError(f"{folder} changed while it was written", hint="build again")
        self._offer(inputs, folder)
        return done

    def _fetch(self, inputs: str, folder: Path) -> bool:
        """Unpacks the build of a shared cache into `folder`; False when there is none."""
        self.shared.expect(_KIND, [inputs])
        if (data := self.shared.load(_KIND, inputs)) is None:
            return False
        try:
            with staged_folder(folder) as staged:
                read_archive([data], FolderWriter(root=staged), bounds=_BOUNDS)
        except UnsafeArchiveError as error:
            self.shared.reject(_KIND, inputs, str(error))
            return False
        return True

    def _offer(self, inputs: str, folder: Path) -> None:
        """Packs the build in `folder` for the shared cache, if that lacks it."""
        if not self.shared.wants(_KIND, inputs):
            return
        with tempfile.TemporaryDirectory(prefix="aotforge-library-") as scratch:
            packed = Path(scratch) / "library.tar.gz"
            write_tar_gz(packed, dict(_members(folder)), epoch=0)
            self.shared.offer(_KIND, inputs, packed.read_bytes())


def _members(folder: Path) -> Iterator[tuple[str, Member | Link]]:
    """The stamp of a build and the files below its prefix."""
    for path in (folder / STAMP, *sorted((folder / "prefix").rglob("*"))):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield name, Link(target=str(path.readlink()))
        elif path.is_file():
            yield name, Member(content=path.read_bytes(), executable=bool(path.stat().st_mode & 0o100))


def shipped_files(folder: Path) -> dict[str, Path]:
    """Every shipped source below `folder` by its name there; without tests."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        if name.parts[0] not in _NOT_SHIPPED and not hidden and path.is_file():
            files[name.as_posix()] = path
    return files


def source_digest(folder: Path) -> str:
    """SHA-256 over names and contents of every shipped source below `folder`; tests do not count."""
    return files_digest(shipped_files(folder))


def inputs_key(**facts: object) -> str:
    """SHA-256 of everything that can change the library's bytes: pins, sources, identity of the tools."""
    return hashlib.sha256(json.dumps(facts | {"format": _FORMAT}, sort_keys=True).encode()).hexdigest()


def file_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below `folder` by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files}
