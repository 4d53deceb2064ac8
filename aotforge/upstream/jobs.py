"""Compile jobs from the generator's `Bare.compile`, and the functionals that its packer packs.

What the generator writes is checked: an unknown field, type or option is refused by name, never interpreted.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import UnsupportedError
from aotforge.plan.closure import SourceTree
from aotforge.plan.context import read_signature
from aotforge.plan.expand import with_key
from aotforge.plan.model import CompileJob, json_digest
from aotforge.rules import Scalar, Target
from aotforge.toolchain.triton import Toolchain

_FIELDS = (
    "environment",
    "interpreter",
    "image",
    "source",
    "kernel",
    "warps",
    "stages",
    "waves",
    "arch",
    "types",
)
_TYPE = re.compile(r"\*?(?:fp16|bf16|fp32|[iu](?:8|16|32|64))(?::(\d+))?")
_HINTS = (8, 16)
PACKAGE = "aotriton"
"""Folder of the staged sources, and the family of their jobs."""


@dataclass(frozen=True, kw_only=True)
class JobLine:
    """A line of `Bare.compile`: where the packer expects an image, and what to compile."""

    image: Path
    source: Path
    kernel: str
    options: tuple[tuple[str, int], ...]
    arch: str
    types: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Functional:
    """Images that are packed together. `folder` is below aotriton.images; `name` is that in the archive,
    `file` the packer's; `images` has entry names by image file."""

    folder: str
    kernel: str
    name: str
    file: Path
    images: Mapping[Path, str]

    @property
    def label(self) -> str:
        """The name that `--only` searches."""
        return f"{self.folder}/{self.kernel};{self.name}"


def parse_job_lines(text: str) -> tuple[JobLine, ...]:
    """The lines of `Bare.compile`. Raises UnsupportedError."""
    return tuple(_job_line(number, line) for number, line in enumerate(text.splitlines(), 1))


def _job_line(number: int, line: str) -> JobLine:
    values = line.split(";")
    if len(values) != len(_FIELDS):
        raise _drift(number, f"{len(values)} fields instead of {len(_FIELDS)}: {line[:200]}")
    named = dict(zip(_FIELDS, values, strict=True))
    numbers = [named[name] for name in ("warps", "stages", "waves")]
    if not all(value.isdecimal() for value in numbers) or not named["kernel"].isidentifier():
        raise _drift(number, f"kernel {named['kernel']!r}, options {numbers}")
    types = tuple(word.strip() for word in named["types"].split(","))
    for word in types:
        hint = match[1] if (match := _TYPE.fullmatch(word)) else None
        if (match is None and constant(word) is None) or (hint and int(hint) not in _HINTS):
            raise _drift(number, f"type {word!r}")
    options = zip(("num_warps", "num_stages", "waves_per_eu"), map(int, numbers), strict=True)
    return JobLine(
        image=Path(named["image"]),
        source=Path(named["source"]),
        kernel=named["kernel"],
        options=tuple(options),
        arch=named["arch"],
        types=types,
    )


def _drift(number: int, what: str) -> UnsupportedError:
    return _unknown(f"Bare.compile, line {number}: {what}")


def _unknown(what: str) -> UnsupportedError:
    cause = "another version of AOTriton's generator than those that are known"
    return UnsupportedError(what, cause=cause, hint="check out 0.13b")


def constant(word: str) -> Scalar | None:
    """The value of a constant parameter; None for a type."""
    if word in {"True", "False"}:
        return word == "True"
    return int(word) if re.fullmatch(r"-?\d+", word) else None


def read_functionals(build: Path) -> tuple[Functional, ...]:
    """What `Bare.flatzip` and the packer's lists name. Raises UnsupportedError."""
    functionals = []
    for line in (build / "Bare.flatzip").read_text(encoding="utf-8").splitlines():
        arch, family, kernel, *files = line.split(";")
        names = _read_names(build / "aotriton.images" / arch / family / f"{kernel}.nsv")
        for file in map(Path, files):
            images = _read_names(file.with_suffix(".nsv"))
            for path in (file, *images):
                if not path.is_relative_to(build) or ".." in path.parts:
                    raise _unknown(f"Bare.flatzip names {path}, outside of the build folder")
            functionals.append(
                Functional(
                    folder=f"{arch}/{family}", kernel=kernel, name=names[file], file=file, images=images
                )
            )
    return tuple(functionals)


def _read_names(file: Path) -> dict[Path, str]:
    """A list of the packer: a path and a name a line, each ended by NUL."""
    rows = [line.split("\0") for line in file.read_text(encoding="utf-8").splitlines()]
    if any(len(row) != 3 or row[2] for row in rows):
        raise _unknown(f"{file.name} is not a list of paths and names")
    return {Path(row[0]): row[1] for row in rows}


def write_names(file: Path, names: Mapping[Path, str]) -> None:
    """A list for the packer."""
    file.write_text("".join(f"{path}\0{name}\0\n" for path, name in names.items()), encoding="utf-8")


def stage_sources(kernels: Path, root: Path) -> SourceTree:
    """Copies the sources to the kernels root `root`, where siblings are imported relatively. RulesError."""
    folder = root / PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    files = sorted(kernels.glob("*.py"))
    names = {file.stem for file in files}
    for file in files:
        (folder / file.name).write_text(_relative(file.read_text(encoding="utf-8"), names), encoding="utf-8")
    return SourceTree(root=root)


def _relative(text: str, siblings: set[str]) -> str:
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module in siblings:
            line = lines[node.lineno - 1]
            before, after = line[: node.col_offset], line[node.col_offset :]
            lines[node.lineno - 1] = before + after.replace(node.module, f".{node.module}", 1)
    return "".join(lines)


def make_jobs(
    lines: Sequence[JobLine],
    tree: SourceTree,
    kernels: Path,
    targets: Mapping[str, Target],
    toolchain: Toolchain,
) -> Iterator[tuple[JobLine, CompileJob]]:
    """A job for each line, by the names of its kernel's parameters. Raises UnsupportedError, RulesError."""
    digest = json_digest(toolchain)
    for line in lines:
        if line.source.parent != kernels:
            raise _unknown(f"Bare.compile names {line.source}, outside of {kernels}")
        source = f"{PACKAGE}/{line.source.name}"
        names = read_signature(tree, source, line.kernel).parameters
        if len(names) != len(line.types):
            raise UnsupportedError(
                f"Bare.compile has {len(line.types)} types for {line.kernel} with {len(names)} parameters",
                cause="generator and kernels are of different commits",
                hint="clone the checkout again",
            )
        words = dict(zip(names, line.types, strict=True))
        constants = {name: value for name, word in words.items() if (value := constant(word)) is not None}
        hints = {name: int(word.partition(":")[2]) for name, word in words.items() if ":" in word}
        kinds = {
            name: "constexpr" if name in constants else word.partition(":")[0] for name, word in words.items()
        }
        job = CompileJob(
            key="",
            family=PACKAGE,
            kernel=line.kernel,
            label=f"{line.arch}:{line.image.stem}",
            source=source,
            function=line.kernel,
            source_digest=tree.digest(source),
            target=targets[line.arch],
            signature=tuple(kinds.items()),
            constants=tuple(constants.items()),
            hints=tuple(hints.items()),
            options=line.options,
            toolchain=toolchain,
            spills="report",
        )
        yield line, with_key(job, digest)
