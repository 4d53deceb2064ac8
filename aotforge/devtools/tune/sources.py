"""Sources of candidates and their images: this machine's compiler, or a folder of another's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from aotforge.base.files import make_folders, write_atomic
from aotforge.compile.model import KernelImage
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
from aotforge.plan.model import JobKey, build, plan_from_json, plan_to_json

_INDEX = "candidates.json"
_SCHEMA = 1


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
    """Candidates with their images in a folder, compiled by `prepare`; `index` is its content."""

    folder: Path
    index: Mapping[str, Any]

    def find(self, request: CostRequest) -> list[Candidate]:
        """Raises UnsupportedError for another kernel, arch, functional or setting than the folder has."""
        wanted = {"kernel": request.images[0], "arch": request.arch, "keys": dict(request.keys)}
        own = {name: self.index[name] for name in wanted}
        if own != wanted:
            raise UnsupportedError(
                f"{self.folder} has candidates of {_shown(own)}, not of {_shown(wanted)}",
                cause="the folder was made with other --arch, --key or kernel",
                hint="repeat them as they were with --prepare",
            )
        return [self._candidate(setting) for setting in request.settings or ({},)]

    def offered(self, settings: Sequence[Values]) -> list[Values]:
        """Those that it has."""
        own = [one["values"] for one in self.index["candidates"]]
        return [one for one in settings if one in own]

    def together(self, candidates: Sequence[Candidate], request: CostRequest) -> None:
        """They are."""

    def images(self, one: Candidate, request: CostRequest) -> dict[JobKey, KernelImage]:
        """Raises CompileError where there are none."""
        entry = self._entry(one.setting)
        if "refused" in entry:
            raise CompileError(entry["refused"])
        return {key: self._image(tree) for key, tree in entry["images"].items()}

    def _image(self, tree: Mapping[str, Any]) -> KernelImage:
        binary = read_regular(self.folder / "images" / tree["digest"])
        return build(KernelImage, {**tree, "binary": binary, "asm": ""})

    def _candidate(self, setting: Mapping[str, str]) -> Candidate:
        entry = self._entry(setting)
        plan = plan_from_json(json.dumps(entry["plan"]))
        return Candidate(
            name=entry["name"],
            plan=plan,
            job=plan.jobs[0],
            folder=entry["folder"],
            dispatched=not setting,
            setting=setting,
        )

    def _entry(self, setting: Mapping[str, str]) -> Mapping[str, Any]:
        values = {name: int(text) for name, text in setting.items()}
        for entry in self.index["candidates"]:
            if entry["values"] == values:
                found: Mapping[str, Any] = entry
                return found
        raise UnsupportedError(
            f"{self.folder} has no candidate {values}", hint="make it again with --prepare"
        )


def _shown(wanted: Mapping[str, Any]) -> str:
    keys = ",".join(f"{name}={value}" for name, value in wanted["keys"].items())
    return " ".join(text for text in (wanted["kernel"], wanted["arch"], keys) if text)


def open_folder(folder: Path) -> PreparedFolder:
    """A folder of `prepare`. Raises UnsupportedError for another one."""
    try:
        index = json.loads(read_regular(folder / _INDEX))
        if index["schema"] != _SCHEMA:
            raise ValueError(f"schema {index['schema']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnsupportedError(
            f"{folder} has no candidates",
            cause=f"{_INDEX}: {error}",
            hint="./dev tune KERNEL --arch ARCH --prepare FOLDER makes one",
        ) from error
    return PreparedFolder(folder=folder, index=index)


class FolderWriter:
    """Writes candidates of a request with their images and texts. `save` writes what is there so far."""

    def __init__(self, folder: Path, request: CostRequest) -> None:
        """Raises OutputError when it is not empty."""
        if folder.exists() and any(folder.iterdir()):
            raise OutputError(f"{folder} is not empty", hint="name another folder with --prepare")
        self._folder = folder
        self._index: dict[str, Any] = {
            "schema": _SCHEMA,
            "kernel": request.images[0],
            "arch": request.arch,
            "keys": dict(request.keys),
            "candidates": [],
        }
        make_folders(folder / "images")
        make_folders(folder / "asm")

    def add(self, values: Mapping[str, int], one: Candidate, request: CostRequest) -> str:
        """A candidate; the first one is the rules'. Returns why it has no images, '' where it has."""
        entry: dict[str, Any] = {
            "values": dict(values),
            "name": one.name,
            "folder": one.folder,
            "plan": json.loads(plan_to_json(one.plan)),
        }
        try:
            images = Compiled().images(one, request)
        except (CompileError, ResourceError) as error:
            entry["refused"] = reason(error)
        else:
            entry["images"] = {key: self._stored(image) for key, image in images.items()}
        self._index["candidates"].append(entry)
        return str(entry.get("refused", ""))

    def _stored(self, image: KernelImage) -> dict[str, Any]:
        write_atomic(self._folder / "images" / image.digest, image.binary)
        # by which readers and a virtual device find it
        write_atomic(self._folder / "asm" / f"{image.digest}.s", image.asm.encode())
        tree = asdict(image)
        return {name: value for name, value in tree.items() if name not in {"binary", "asm"}}

    def save(self) -> None:
        """Raises OutputError."""
        write_atomic(self._folder / _INDEX, (json.dumps(self._index, indent=1) + "\n").encode())


def reason(error: AotforgeError) -> str:
    """The last line of an error."""
    return error.what.splitlines()[-1].strip(" -")[:200]
