"""Sources of candidates and their images: this machine's compiler, or a folder of another's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field, ValidationError

from aotforge.base.files import read_bytes, write_atomic
from aotforge.base.hardware import Line, Sha256
from aotforge.base.manifest_reader import Manifest
from aotforge.compile.model import KernelImage, Resources
from aotforge.devtools.cost.candidates import (
    Candidate,
    CostRequest,
    compile_together,
    compiled,
    find_candidates,
)
from aotforge.devtools.tune.space import Values
from aotforge.errors import AotforgeError, CompileError, OutputError, ResourceError, UnsupportedError
from aotforge.formats.untrusted_file import read_regular
from aotforge.plan.model import JobKey
from aotforge.targets.backend import KernelArgument
from aotforge.toolchain.triton import Toolchain

_INDEX, _IMAGES, _ASM, _LIBRARY = "candidates.json", "images", "asm", "lib"
_LIMIT = 64 * 1024 * 1024
_AGAIN = "make it again with --prepare"


def _in_range(numbers: Resources | KernelArgument) -> Resources | KernelArgument:
    if not all(0 <= one < 1 << 31 for one in astuple(numbers) if isinstance(one, int)):
        raise ValueError("a number is out of range")
    return numbers


class _Image(Manifest):
    """A `KernelImage` without its files, which have the name of `digest`."""

    digest: Sha256
    symbol: Annotated[Line, Field(min_length=1)]
    resources: Annotated[Resources, AfterValidator(_in_range)]
    arguments: tuple[Annotated[KernelArgument, AfterValidator(_in_range)], ...]


class _Entry(Manifest):
    """Images of a candidate by the keys of its jobs, or why it has none. `values` are empty for the rules' choice."""

    values: dict[Line, Annotated[int, Field(ge=0)]]
    images: dict[Sha256, _Image] = Field(default_factory=dict)
    refused: Line = ""


class _Index(Manifest):
    """What a folder has, made by `toolchain`. It names no file but by digest: plans and cases are this checkout's own."""

    schema_version: Literal[2] = Field(alias="schema")
    kernel: Line
    arch: Line
    keys: dict[Line, Line]
    toolchain: Toolchain
    candidates: tuple[_Entry, ...]


class Source(Protocol):
    """Candidates by setting, and their images."""

    def offered(self, settings: Sequence[Values]) -> list[Values]:
        """Those of these settings that it has, in their order."""

    def find(self, request: CostRequest) -> list[Candidate]:
        """Of the request's settings, or of the rules without any. Raises what planning raises."""

    def together(self, candidates: Sequence[Candidate], request: CostRequest) -> None:
        """Have their images ready; those that do not compile are left out."""

    def images(self, one: Candidate, request: CostRequest) -> dict[JobKey, KernelImage]:
        """All images of the candidate's plan. Raises CompileError, ResourceError."""


class Compiled:
    """Candidates that this machine plans and compiles into the cache."""

    def offered(self, settings: Sequence[Values]) -> list[Values]:
        """All."""
        return list(settings)

    def find(self, request: CostRequest) -> list[Candidate]:
        """Raises UnknownNameError, UnsupportedError and what planning raises."""
        return find_candidates(request)

    def together(self, candidates: Sequence[Candidate], request: CostRequest) -> None:
        """In several processes."""
        compile_together(candidates, request)

    def images(self, one: Candidate, request: CostRequest) -> dict[JobKey, KernelImage]:
        """Raises CompileError, ResourceError."""
        jobs = one.plan.jobs
        found = compiled([replace(one, job=job) for job in jobs], request)
        return {job.key: image for job, image in zip(jobs, found, strict=True)}


@dataclass(frozen=True, kw_only=True)
class PreparedFolder:
    """Images of candidates in a folder, compiled by `prepare`; `index` is its content. The candidates are planned here, without a compiler."""

    folder: Path
    index: _Index

    def find(self, request: CostRequest) -> list[Candidate]:
        """Raises UnsupportedError for another kernel, arch or functional than the folder has, and what planning raises."""
        wanted = (request.images[0], request.arch, dict(request.keys))
        own = (self.index.kernel, self.index.arch, self.index.keys)
        if own != wanted:
            raise UnsupportedError(
                f"{self.folder} has candidates of {_shown(*own)}, not of {_shown(*wanted)}",
                cause="the folder was made with other --arch, --key or kernel",
                hint="repeat them as they were with --prepare",
            )
        return find_candidates(replace(request, toolchain=self.index.toolchain))

    def offered(self, settings: Sequence[Values]) -> list[Values]:
        """Those that it has."""
        own = [one.values for one in self.index.candidates]
        return [one for one in settings if one in own]

    def together(self, candidates: Sequence[Candidate], request: CostRequest) -> None:
        """They are."""

    def images(self, one: Candidate, request: CostRequest) -> dict[JobKey, KernelImage]:
        """Raises CompileError where there are none, UnsupportedError where those of the folder are of other jobs."""
        entry = self._entry(one)
        if entry.refused:
            raise CompileError(entry.refused)
        if missing := [job.label for job in one.plan.jobs if job.key not in entry.images]:
            raise UnsupportedError(
                f"{self.folder} has no image of {missing[0]}",
                cause="it was made by a checkout with other kernels, rules or manifests",
                hint=_AGAIN,
            )
        return {job.key: self._image(job.key, entry.images[job.key]) for job in one.plan.jobs}

    def library(self) -> Path:
        """The library that launches them. Raises UnsupportedError when there is none."""
        found = sorted((self.folder / _LIBRARY).glob("libaotriton_v2.so.*"))
        if not found:
            raise UnsupportedError(f"{self.folder} has no library", hint=_AGAIN)
        return found[0].absolute()

    def _image(self, key: JobKey, found: _Image) -> KernelImage:
        path = self.folder / _IMAGES / found.digest
        try:
            binary = read_regular(path, limit=_LIMIT)
        except OSError as error:
            raise UnsupportedError(f"{path} cannot be read: {error.strerror}", hint=_AGAIN) from error
        if hashlib.sha256(binary).hexdigest() != found.digest:
            raise UnsupportedError(f"{path} has another SHA-256 than its name", hint=_AGAIN)
        return KernelImage(
            key=key,
            digest=found.digest,
            symbol=found.symbol,
            binary=binary,
            asm="",
            resources=found.resources,
            arguments=found.arguments,
        )

    def _entry(self, one: Candidate) -> _Entry:
        values = {name: int(text) for name, text in one.setting.items()}
        found = next((entry for entry in self.index.candidates if entry.values == values), None)
        if found is None:
            raise UnsupportedError(f"{self.folder} has no candidate {one.name}", hint=_AGAIN)
        return found


def _shown(kernel: str, arch: str, keys: Mapping[str, str]) -> str:
    chosen = ",".join(f"{name}={value}" for name, value in keys.items())
    return " ".join(text for text in (kernel, arch, chosen) if text)


def open_folder(folder: Path) -> PreparedFolder:
    """A folder of `prepare`. Raises UnsupportedError for another one."""
    path = folder / _INDEX
    try:
        index = _Index.model_validate_json(read_regular(path, limit=_LIMIT))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (OSError, ValueError) as error:
        what = f"{error!s:.200}"
    else:
        return PreparedFolder(folder=folder, index=index)
    raise UnsupportedError(
        f"{folder} has no candidates",
        cause=f"{_INDEX}: {what}",
        hint="./dev tune KERNEL --arch ARCH --prepare FOLDER makes one",
    )


def check_new_folder(folder: Path) -> None:
    """Raises OutputError for a folder that is not empty."""
    if folder.is_dir() and any(folder.iterdir()):
        raise OutputError(f"{folder} is not empty", hint="name another folder with --prepare")


class FolderWriter:
    """Writes candidates of a request with their images and texts into a new folder."""

    def __init__(self, folder: Path, request: CostRequest, toolchain: Toolchain) -> None:
        """`toolchain` compiles them."""
        self._folder = folder
        self._index: dict[str, Any] = {
            "schema": 2,
            "kernel": request.images[0],
            "arch": request.arch,
            "keys": dict(request.keys),
            "toolchain": asdict(toolchain),
            "candidates": [],
        }

    def add(self, values: Mapping[str, int], one: Candidate, request: CostRequest) -> str:
        """A candidate; the first one is the rules'. Returns why it has no images, '' where it has."""
        entry: dict[str, Any] = {"values": dict(values)}
        try:
            images = Compiled().images(one, request)
        except (CompileError, ResourceError) as error:
            entry["refused"] = reason(error)
        else:
            entry["images"] = {key: self._stored(image) for key, image in images.items()}
        self._index["candidates"].append(entry)
        return str(entry.get("refused", ""))

    def _stored(self, image: KernelImage) -> dict[str, Any]:
        write_atomic(self._folder / _IMAGES / image.digest, image.binary)
        # by which readers and a virtual device find it
        write_atomic(self._folder / _ASM / f"{image.digest}.s", image.asm.encode())
        tree = asdict(image)
        return {name: value for name, value in tree.items() if name not in {"key", "binary", "asm"}}

    def save(self, library: Path) -> None:
        """Writes the index, and the library that launches the images. Raises OutputError."""
        write_atomic(self._folder / _LIBRARY / library.name, read_bytes(library, OutputError))
        write_atomic(self._folder / _INDEX, (json.dumps(self._index, indent=1) + "\n").encode())


def reason(error: AotforgeError) -> str:
    """The last line of an error, without control characters."""
    text = error.what.splitlines()[-1].strip(" -")[:200]
    return "".join(one if one.isprintable() else " " for one in text) or "it does not compile"
