"""Executes AOTriton's images through its own library on the virtual GPU, and compares with float64."""

import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np

from aotforge.base.files import scratch_folder
from aotforge.base.hazards import Hazards, load_hazards
from aotforge.base.machine import available_cpus
from aotforge.errors import ExecutionError, ReleaseError, ToolchainError, VerifyError
from aotforge.formats.archive import sha256_file, unpack
from aotforge.formats.shared_library import LibraryFileError, SharedLibrary, read_shared_library
from aotforge.formats.sums import SUMS
from aotforge.pipeline.display import BuildObserver
from aotforge.run.release_programs import ReleasePrograms, available_programs
from aotforge.upstream.calls import (
    BIAS_ROW,
    MAXIMA,
    Cell,
    Choices,
    Problem,
    cells,
    expected_outputs,
    from_stored,
    own_call,
    read_choices,
    stored_input,
    stored_shape,
)
from aotforge.upstream.images import IMAGES, RECORD, TEXTS, read_recorded
from aotforge.verify.hazards import find_hazards
from aotforge.verify.interpreter.number_formats import STORAGE, DType, decode, encode
from kernels.flash.call import DTYPE_KEY, Dropout
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.targets import emulated_target
from vgpu.hip.build_hip import VirtualHip, build_virtual_hip, environment, find_compiler

_CLIENT = Path(__file__).parent / "client.cpp"
_LIBRARY = "libaotriton_v2.so"
_COMPILE_SECONDS, _SECONDS = 300, 3600
_WRITES: Mapping[str, tuple[str, ...]] = {
    "attn_fwd": ("Out", "L"),
    "bwd_kernel_dk_dv": ("DK", "DV"),
    "bwd_kernel_dq": ("DQ", "DB"),
    "bwd_kernel_fuse": ("DK", "DV", "DQ", "DB"),
    "bwd_preprocess": ("DQ", "DK"),
    "bwd_preprocess_varlen": ("DQ", "DK"),
}
"""Outputs that an image's own results decide."""

Outcome = Literal["passed", "failed", "not executed"]


@dataclass
class ImageVerdict:
    """Result of the calls that an image served, `dense` of them dense. `worst`: the largest share of what the
    rule allows; `hazards`: those in the image's code, which the virtual GPU does not show."""

    functional: str
    entry: str
    sha256: str
    calls: int = 0
    dense: int = 0
    worst: float = 0.0
    failure: str = ""
    hazards: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """An image that no call reached was not executed."""
        return "failed" if self.failure else "passed" if self.calls else "not executed"


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """Verdicts on all images of the record. `calls` were made; `library`, by its SHA-256, failed those of
    `refused`."""

    library: str
    images: tuple[ImageVerdict, ...]
    calls: int
    refused: tuple[str, ...]
    seconds: float

    def of(self, outcome: Outcome) -> list[ImageVerdict]:
        """The images with an outcome."""
        return [image for image in self.images if image.outcome == outcome]

    @property
    def hazards(self) -> Counter[str]:
        """How many images have each hazard, which AOTriton does not cure."""
        return Counter(name for image in self.images for name in image.hazards)

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        images = [asdict(image) | {"outcome": image.outcome} for image in self.images]
        return asdict(self) | {"images": images}

    def lines(self) -> list[str]:
        """For people: a line per functional, then everything that is wrong."""
        rows = []
        for functional, group in groupby(self.images, key=lambda image: image.functional):
            images = list(group)
            counts = {
                name: sum(image.outcome == name for image in images)
                for name in ("passed", "failed", "not executed")
            }
            shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
            rows.append(f"{shown:32} {functional}")
        worst = max((image.worst for image in self.images), default=0.0)
        packed = sum(not image.dense for image in self.of("passed"))
        return [
            *rows,
            *(f"failed: {image.functional} {image.entry}: {image.failure}" for image in self.of("failed")),
            *(f"refused: {call}" for call in self.refused),
            *(f"hazard {name}: {count} images" for name, count in sorted(self.hazards.items())),
            f"{len(self.of('passed'))} of {len(self.images)} images passed in {self.calls} calls, "
            f"{len(self.of('failed'))} failed, {len(self.of('not executed'))} were not executed: no table "
            f"selects them for these calls; at most {worst:.2f} of what the verdict rule allows",
            f"{packed} passed on packed sequences alone",
        ]

    def require_passed(self) -> None:
        """Raises VerifyError for a wrong image, a call that fails, and without any call."""
        if not self.calls:
            raise VerifyError(
                "no image was executed",
                cause="the packs have no forward of packed sequences, or --only leaves it out",
                hint="select attn_fwd with the kernels that are to be executed",
            )
        if wrong := [*(image.entry for image in self.of("failed")), *self.refused]:
            raise VerifyError(
                f"{len(self.of('failed'))} images are wrong, {len(self.refused)} calls fail: {wrong[0]}",
                cause="an image or a table of the library is wrong, or the packs are another build's",
                hint="build packs and library from the same commit, with the same head_dims",
            )


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """The packager's library in `prefix` with the packs in `images`, which `./dev upstream.images` made.

    `maxima`: lengths that calls declare; `only`: a regular expression that a functional's label has; `jobs`:
    processes at once.
    """

    root: Path
    prefix: Path
    images: Path
    cache: Path
    only: str = ""
    jobs: int | None = None
    maxima: tuple[int, ...] = MAXIMA


def verify_images(request: VerifyRequest, *, observer: BuildObserver) -> VerifyReport:
    """Calls for every functional of the record. Raises ReleaseError for packs that differ from their sums,
    ToolchainError, ExecutionError when the client does not run."""
    record = read_record(request.images)
    programs = available_programs()
    verdicts = {
        image["sha256"]: ImageVerdict(image["functional"], image["entry"], image["sha256"])
        for image in record["images"]
        if re.search(request.only, image["functional"])
    }
    with scratch_folder(request.cache / "upstream", "verify-") as folder:
        prefix = _joined(request.prefix, request.images, folder)
        virtual = build_virtual_hip(request.cache, major=_hip_major(prefix / "lib" / _LIBRARY))
        client = _build_client(request.root, prefix, virtual, folder / "client", programs)
        runs = {
            arch: _Run(request, prefix, folder, client, virtual, programs, arch) for arch in record["archs"]
        }
        made = _Calls(verdicts)
        wanted = _wanted(record["archs"], verdicts.values())
        count = max(1, min(request.jobs or available_cpus(), len(wanted)))
        with ProcessPoolExecutor(count, mp_context=get_context("fork")) as pool:
            groups = [
                pool.submit(_make_calls, runs[arch], choices, kernels, verdicts)
                for (arch, choices), kernels in wanted.items()
            ]
            for number, ((arch, choices), group) in enumerate(zip(wanted, groups, strict=True), 1):
                observer.stage(f"calls {number} of {len(wanted)}: {choices.label} on {arch}")
                made.merge(group.result())
            observer.stage("hazards")
            own = [(verdict, _arch_of(verdict, record["archs"])) for verdict in verdicts.values()]
            table = load_hazards(request.root / "manifests")
            texts = [(folder / "asm" / f"{verdict.sha256}.s", arch, table) for verdict, arch in own]
            for (verdict, _), names in zip(own, pool.map(hazards_in, texts, chunksize=8), strict=True):
                verdict.hazards = names
        digest = sha256_file(prefix / "lib" / _LIBRARY)
    return VerifyReport(
        library=digest,
        images=tuple(verdicts.values()),
        calls=made.count,
        refused=tuple(made.refused),
        seconds=made.seconds,
    )


def _make_calls(
    run: "_Run", choices: Choices, kernels: set[str], verdicts: dict[str, ImageVerdict]
) -> "_Calls":
    """The calls of some choices, in a process of their own."""
    made = _Calls(verdicts)
    entries = made.add(list(cells(choices, kernels, run.request.maxima)), run)
    made.add([own_call(choices, maxima, backend) for maxima, backend in entries], run)
    return made


def hazards_in(image: tuple[Path, str, Hazards]) -> tuple[str, ...]:
    """Names of the hazards in the text of an image; an empty one has neither."""
    text, arch, table = image
    if not text.exists() or all(hazard.found == "results" for hazard in table.of(arch).values()):
        return ()
    listing = parse_listing(text.read_text("utf-8"))
    return tuple(
        line.removeprefix("hazard ").partition(":")[0]
        for line in find_hazards(listing, emulated_target(arch), table)
    )


def _arch_of(image: ImageVerdict, archs: Sequence[str]) -> str:
    arch = image.entry.rpartition("arch=")[2]
    return arch if arch in archs else archs[0]


def _wanted(archs: Sequence[str], images: Iterable[ImageVerdict]) -> dict[tuple[str, Choices], set[str]]:
    """Kernels of each arch and choices that calls have."""
    kernels_of: dict[tuple[str, Choices], set[str]] = {}
    for image in images:
        choices = read_choices(image.functional)
        if choices:
            arch = _arch_of(image, archs)
            kernel = image.functional.partition(";")[0].rpartition("/")[2]
            kernels_of.setdefault((arch, choices), set()).add(kernel)
    return {key: kernels for key, kernels in sorted(kernels_of.items()) if "attn_fwd" in kernels}


@dataclass
class _Calls:
    """Collects verdicts from calls."""

    verdicts: dict[str, ImageVerdict]
    refused: list[str] = field(default_factory=list)
    count: int = 0
    seconds: float = 0.0

    def merge(self, other: "_Calls") -> None:
        """Adds what other calls have shown."""
        for digest, verdict in other.verdicts.items():
            own = self.verdicts[digest]
            own.calls += verdict.calls
            own.dense += verdict.dense
            own.worst = max(own.worst, verdict.worst)
            own.failure = own.failure or verdict.failure
        self.refused += other.refused
        self.count += other.count
        self.seconds += other.seconds

    def add(self, planned: Sequence[Cell], run: "_Run") -> list[tuple[tuple[int, int], int]]:
        """Makes calls, those of one problem in one process. Declared maxima and backward of the smallest ones
        that reach every image."""
        by_problem: dict[Problem, list[Cell]] = {}
        for cell in planned:
            by_problem.setdefault(cell.problem, []).append(cell)
        entries: dict[str, tuple[tuple[int, int], int]] = {}
        for problem, group in by_problem.items():
            expected = expected_outputs(problem)
            for cell, status, outputs, launches in run.calls(problem, group):
                self.count += 1
                if any(status):
                    self.refused.append(f"{cell.label}: HIP's errors {status[0]} and {status[1]}")
                compared = {name: expected[name].compare(outputs[name]) for name in cell.outputs}
                for launch in launches:
                    self.seconds += launch["seconds"]
                    self._compare(launch, cell, status, compared)
                    if cell.maxima:
                        entry = (cell.maxima, cell.backend)
                        known = entries.setdefault(launch["image"], entry)
                        entries[launch["image"]] = min(known, entry, key=lambda e: (e[0][0] * e[0][1], e))
        return sorted({*entries.values()})

    def _compare(self, launch: Mapping[str, Any], cell: Cell, status: tuple[int, int], compared: Any) -> None:
        """The part of a call in an image's verdict."""
        verdict = self.verdicts.get(launch["image"])
        if verdict is None:
            self.refused.append(f"{cell.label}: {launch['kernel']} is an image that the record does not have")
            return
        names = _WRITES.get(launch["kernel"], ())
        forward_wrong = launch["kernel"] != "attn_fwd" and not compared["Out"].passed
        if any(status) or forward_wrong:
            if not launch["ok"]:
                verdict.failure = verdict.failure or f"{cell.label}: the virtual GPU stopped it"
            return
        verdict.calls += 1
        verdict.dense += cell.maxima is None
        for name in [name for name in names if name in compared]:
            comparison = compared[name]
            verdict.worst = max(verdict.worst, comparison.tensor, comparison.element, comparison.tile)
            for text in comparison.violations(name):
                verdict.failure = verdict.failure or f"{cell.label}: {text}"


@dataclass
class _Run:
    """Runs the client on a virtual device."""

    request: VerifyRequest
    prefix: Path
    folder: Path
    client: Path
    virtual: VirtualHip
    programs: ReleasePrograms
    arch: str

    def calls(
        self, problem: Problem, group: Sequence[Cell]
    ) -> Iterator[tuple[Cell, tuple[int, int], dict[str, Any], list[dict[str, Any]]]]:
        """Status, outputs and launches of each call. Raises ExecutionError."""
        with tempfile.TemporaryDirectory(prefix="call-", dir=self.folder) as made:
            own = Path(made)
            for name in ("record", "out"):
                (own / name).touch()
            (own / "in").write_bytes(_input(problem))
            dropout = problem.dropout or Dropout()
            numbers = (
                DTYPE_KEY[problem.dtype], problem.heads_q, problem.heads_k, problem.head_dim,
                int(problem.window_right is not None), problem.sm_scale, group[0].dropout_p,
                dropout.seed, dropout.offset1, dropout.offset2, problem.batch,
                BIAS_ROW if problem.bias else 0,
            )  # fmt: skip
            command = [
                str(self.client),
                *(str(own / name) for name in ("in", "out", "record")),
                *map(str, numbers),
            ]
            add = environment(
                self.virtual, devices=[self.arch], texts=[self.folder / "asm"], cache=self.request.cache
            )
            add["AOTFORGE_VIRTUAL"] += f",record={own / 'record'}"
            add["LD_LIBRARY_PATH"] = f"{self.prefix / 'lib'}:{add['LD_LIBRARY_PATH']}"
            done = self.programs.run(
                command,
                environment=add,
                readable=_readable(self.request, self.virtual, self.prefix, self.client),
                writable=[own, self.request.cache],
                seconds=_SECONDS,
                text="".join("{} {} {}\n".format(*(cell.maxima or (0, 0)), cell.backend) for cell in group),
            )
            records, data = ((own / name).read_bytes() for name in ("record", "out"))
        rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        if done.status or len(rows) != len(group):
            failed = group[min(len(rows), len(group) - 1)].label
            raise ExecutionError(
                f"AOTriton's library ended ({done.status}) in {failed}:\n{done.stderr.strip()[-2000:]}",
                cause="the library needs another HIP, or an image accesses what it must not",
            )
        before, at = 0, 0
        for cell, (first, second, size) in zip(group, rows, strict=True):
            outputs, at = _outputs(problem, data, at)
            events = [json.loads(line) for line in records[before:size].splitlines()]
            before = size
            yield cell, (first, second), outputs, [event for event in events if event["event"] == "launch"]


def _input(problem: Problem) -> bytes:
    sides = [problem.side(keys=keys) for keys in (False, True)]
    ends = [np.array(np.cumsum((0, *side.lengths)), dtype=np.int32).tobytes() for side in sides]
    tensors = [
        encode(np.ascontiguousarray(stored_input(problem, name, values)), problem.dtype).tobytes()
        for name, values in problem.inputs().items()
    ]
    return b"".join(ends + tensors)


def _outputs(problem: Problem, data: bytes, at: int) -> tuple[dict[str, Any], int]:
    outputs = {}
    for name in problem.outputs:
        dtype: DType = "fp32" if name == "L" else problem.dtype
        shape = stored_shape(problem, name)
        stored = np.frombuffer(data, dtype=STORAGE[dtype], count=int(np.prod(shape)), offset=at)
        outputs[name] = from_stored(problem, name, decode(stored, dtype).reshape(shape))
        at += stored.nbytes
    return outputs, at


def read_record(images: Path) -> dict[str, Any]:
    """The record of packs whose files are those of their sums. Raises ReleaseError."""
    try:
        lines = [line.split("  ", 1) for line in (images / SUMS).read_text("ascii").splitlines()]
        changed = [name for digest, name in lines if sha256_file(images / name) != digest]
    except (OSError, ValueError) as error:
        raise ReleaseError(
            f"{images} cannot be read: {error}", hint="name the --output of ./dev upstream.images"
        ) from error
    if changed:
        raise ReleaseError(
            f"{images / changed[0]} differs from {SUMS}",
            cause="it was altered, or belongs to another build",
            hint="build the packs again: ./dev upstream.images",
        )
    return read_recorded(images / RECORD)


def _joined(prefix: Path, images: Path, folder: Path) -> Path:
    """A prefix with the packager's library and headers and these packs; unpacks the texts to `asm`."""
    made = folder / "prefix"
    (made / "lib").mkdir(parents=True)
    try:
        library = (prefix / "lib" / _LIBRARY).resolve(strict=True)
        shutil.copyfile(library, made / "lib" / _LIBRARY)
        for name in set(_read_library(library).sonames) - {_LIBRARY}:
            (made / "lib" / name).symlink_to(_LIBRARY)
        shutil.copytree(prefix / "include", made / "include")
    except OSError as error:
        raise ReleaseError(
            f"{prefix} is not an installed AOTriton: {error.strerror}: {error.filename}",
            hint="name the CMAKE_INSTALL_PREFIX of AOTriton's own build, with lib/ and include/",
        ) from error
    shutil.copytree(images / IMAGES, made / "lib" / IMAGES)
    with tarfile.open(images / TEXTS) as texts:
        unpack(texts, folder / "asm")
    return made


def _read_library(library: Path) -> SharedLibrary:
    """Raises ReleaseError for another file than a library, OSError."""
    try:
        return read_shared_library(library)
    except LibraryFileError as error:
        raise ReleaseError(str(error), hint="build AOTriton's library again") from error


def _hip_major(library: Path) -> int:
    """HIP's release that the library is linked with. Raises ReleaseError."""
    needed = _read_library(library).needed
    majors = [match[1] for name in needed if (match := re.fullmatch(r"libamdhip64\.so\.(\d+)", name))]
    return int(majors[0]) if majors else 7


def _readable(request: VerifyRequest, virtual: VirtualHip, prefix: Path, client: Path) -> list[Path]:
    python = [Path(sys.prefix), Path(sys.base_prefix)]
    places = [request.root, prefix.parent, virtual.folder.parent, client.parent, *python]
    return [place for place in places if not place.is_relative_to("/usr")]


def _build_client(
    root: Path, prefix: Path, virtual: VirtualHip, out: Path, programs: ReleasePrograms
) -> Path:
    """Compiles the client against the library. Raises ToolchainError."""
    standin = root / "runtime" / "src" / "standin"
    command = [
        *find_compiler(os.environ), "-std=c++20", "-O1", str(_CLIENT), "-o", str(out), f"-I{standin}",
        f"-I{prefix / 'include'}", "-D__HIP_PLATFORM_AMD__", f"-L{prefix / 'lib'}", "-laotriton_v2",
        f"-L{virtual.folder}", "-lamdhip64", f"-Wl,-rpath,{prefix / 'lib'}",
    ]  # fmt: skip
    readable = [_CLIENT, standin, prefix, virtual.folder.parent]
    done = programs.compile(command, readable=readable, writable=[out.parent], seconds=_COMPILE_SECONDS)
    if done.status:
        raise ToolchainError(
            f"no program compiles against AOTriton's library:\n{done.stderr[:2000]}",
            cause="its headers are those of another version than 0.13",
            hint="name the prefix of a library that was built from the same checkout",
        )
    return out
