"""Sources of candidates and their images: this machine's compiler, or a folder of another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from aotforge.base.files import read_bytes, write_atomic
from aotforge.base.manifest_reader import Manifest
from aotforge.compile.model import KernelImage
from aotforge.devtools.cost.candidates import (
    Candidate,
    CostRequest,
    compile_together,
    compiled,
    find_candidates,
)
from aotforge.devtools.tune.space import Values
from aotforge.errors import AotforgeError, OutputError, UnsupportedError
from aotforge.plan.model import JobKey
from aotforge.toolchain.triton import Toolchain

_INDEX, _CACHE, _LIBRARY = "candidates.json", "cache", "lib"


class _Index(Manifest):
    """What a folder has, made by `toolchain`: the settings whose images are in its cache."""

    schema_version: Literal[3] = Field(alias="schema", default=3)
    kernel: str
    arch: str
    keys: dict[str, str]
    toolchain: Toolchain
    settings: tuple[dict[str, int], ...]


class Compiled:
    """Candidates that this machine plans and compiles into the cache."""

    def offered(self, settings: Sequence[Values]) -> list[Values]:
        """Those of these settings that it has, in their order: all."""
        return list(settings)

    def find(self, request: CostRequest) -> list[Candidate]:
        """Candidates of the request's settings, or of the rules without any. Raises what planning raises."""
        return find_candidates(request)

    def together(self, candidates: Sequence[Candidate], request: CostRequest) -> None:
        """Compiles in several processes; what does not compile is left out."""
        compile_together(candidates, request)

    def images(self, one: Candidate, request: CostRequest) -> dict[JobKey, KernelImage]:
        """All images of the candidate's plan. Raises CompileError, ResourceError."""
        jobs = one.plan.jobs
        found = compiled([replace(one, job=job) for job in jobs], request)
        return {job.key: image for job, image in zip(jobs, found, strict=True)}


@dataclass(frozen=True, kw_only=True)
class PreparedFolder(Compiled):
    """Candidates that `prepare` compiled into the cache of a folder; they are planned here."""

    folder: Path
    index: _Index

    def offered(self, settings: Sequence[Values]) -> list[Values]:
        """Those that it has."""
        return [one for one in settings if one in self.index.settings]

    def find(self, request: CostRequest) -> list[Candidate]:
        """Raises UnsupportedError for another kernel, arch or functional than the folder has."""
        own = (self.index.kernel, self.index.arch, self.index.keys)
        if own != (request.images[0], request.arch, dict(request.keys)):
            raise UnsupportedError(
                f"{self.folder} has candidates of {_shown(*own)}",
                cause="the folder was made with another kernel, --arch or --key",
                hint="repeat them as they were with --prepare",
            )
        return find_candidates(replace(request, toolchain=self.index.toolchain))

    def together(self, candidates: Sequence[Candidate], request: CostRequest) -> None:
        """They are compiled."""

    def images(self, one: Candidate, request: CostRequest) -> dict[JobKey, KernelImage]:
        """From the folder's cache."""
        return super().images(one, replace(request, cache=cache_in(self.folder)))

    def library(self) -> Path:
        """The library that launches them. Raises UnsupportedError when there is none."""
        found = sorted((self.folder / _LIBRARY).glob("libaotriton_v2.so.*"))
        if not found:
            raise UnsupportedError(f"{self.folder} has no library", hint="make it again with --prepare")
        return found[0].absolute()


def _shown(kernel: str, arch: str, keys: Mapping[str, str]) -> str:
    return " ".join((kernel, arch, ",".join(f"{name}={value}" for name, value in keys.items())))


def cache_in(folder: Path) -> Path:
    """The compile cache of a prepared folder."""
    return folder / _CACHE


def open_folder(folder: Path) -> PreparedFolder:
    """A folder of `prepare`. Raises UnsupportedError for another one."""
    hint = "./dev tune KERNEL --arch ARCH --prepare FOLDER makes one"
    try:
        index = _Index.model_validate_json(read_bytes(folder / _INDEX, UnsupportedError, hint=hint))
    except ValidationError as error:
        raise UnsupportedError(f"{folder} has no candidates: {error}", hint=hint) from error
    return PreparedFolder(folder=folder, index=index)


def write_folder(
    folder: Path, request: CostRequest, toolchain: Toolchain, settings: Sequence[Values], library: Path
) -> None:
    """Completes a folder whose cache has the images. Raises OutputError."""
    index = _Index(
        kernel=request.images[0],
        arch=request.arch,
        keys=dict(request.keys),
        toolchain=toolchain,
        settings=tuple(dict(one) for one in settings),
    )
    write_atomic(folder / _LIBRARY / library.name, read_bytes(library, OutputError))
    write_atomic(folder / _INDEX, index.model_dump_json(by_alias=True, indent=1).encode())


def reason(error: AotforgeError) -> str:
    """The last line of an error, without control characters."""
    text = error.what.splitlines()[-1].strip(" -")[:200]
    return "".join(one if one.isprintable() else " " for one in text) or "it does not compile"
