"""Executes AOTriton's images through its own library on the virtual GPU, and compares with float64."""

import re
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from aotforge.base.files import scratch_folder
from aotforge.base.hazards import Hazards, load_hazards
from aotforge.base.machine import available_cpus
from aotforge.base.object_cache import DamagedObjectError
from aotforge.compile.cache import Cache
from aotforge.errors import ReleaseError, VerifyError
from aotforge.formats.archive import sha256_file, unpack
from aotforge.formats.shared_library import LibraryFileError, SharedLibrary, read_shared_library
from aotforge.formats.sums import SUMS
from aotforge.pipeline.display import BuildObserver
from aotforge.run.release_programs import available_programs
from aotforge.upstream.calls import (
    MAXIMA,
    Cell,
    Choices,
    Problem,
    cells,
    expected_gradients,
    expected_outputs,
    own_call,
    read_choices,
)
from aotforge.upstream.client import Client, build_client
from aotforge.upstream.images import IMAGES, RECORD, TEXTS, read_recorded
from aotforge.verify.hazards import find_hazards
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.targets import amd_archs, emulated_target
from vgpu.errors import UserError
from vgpu.hip.build_hip import build_virtual_hip
from vgpu.hip.prepare import prepare

_LIBRARY = "libaotriton_v2.so"
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
    }
    # calls need others, too
    selected = [image for image in verdicts.values() if re.search(request.only, image.functional)]
    with scratch_folder(request.cache / "upstream", "verify-") as folder:
        prefix = _joined(request.prefix, request.images, folder)
        virtual = build_virtual_hip(request.cache, major=_hip_major(prefix / "lib" / _LIBRARY))
        program = build_client(request.root, prefix, virtual, folder / "client", programs)
        clients = {
            arch: Client(
                root=request.root, prefix=prefix, folder=folder, cache=request.cache, program=program,
                virtual=virtual, programs=programs, arch=arch,
            )
            for arch in record["archs"]
        }  # fmt: skip
        made = _Calls(verdicts)
        wanted = _wanted(record["archs"], selected)
        count = max(1, min(request.jobs or available_cpus(), len(wanted)))
        with ProcessPoolExecutor(count, mp_context=get_context("fork")) as pool:
            observer.stage(f"decoding {len(selected)} images")
            jobs = {image["sha256"]: image["job"] for image in record["images"]}
            sources = [
                (request.cache, jobs[verdict.sha256], _arch_of(verdict, record["archs"]), folder / "asm")
                for verdict in selected
            ]
            list(pool.map(prepare_image, sources, chunksize=8))
            unmade = deepcopy(verdicts)  # the pool may pickle it later
            groups = [
                pool.submit(_make_calls, clients[arch], choices, kernels, unmade, request.maxima)
                for (arch, choices), kernels in wanted.items()
            ]
            for number, ((arch, choices), group) in enumerate(zip(wanted, groups, strict=True), 1):
                observer.stage(f"calls {number} of {len(wanted)}: {choices.label} on {arch}")
                made.merge(group.result())
            observer.stage("hazards")
            own = [(verdict, _arch_of(verdict, record["archs"])) for verdict in selected]
            table = load_hazards(request.root / "manifests")
            texts = [(folder / "asm" / f"{verdict.sha256}.s", arch, table) for verdict, arch in own]
            for (verdict, _), names in zip(own, pool.map(hazards_in, texts, chunksize=8), strict=True):
                verdict.hazards = names
        digest = sha256_file(prefix / "lib" / _LIBRARY)
    return VerifyReport(
        library=digest,
        images=tuple(selected),
        calls=made.count,
        refused=tuple(made.refused),
        seconds=made.seconds,
    )


def _make_calls(
    client: Client,
    choices: Choices,
    kernels: set[str],
    verdicts: dict[str, ImageVerdict],
    maxima: tuple[int, ...],
) -> "_Calls":
    """The calls of some choices, in a process of their own."""
    made = _Calls(verdicts)
    entries = made.add(list(cells(choices, kernels, maxima)), client)
    made.add([own_call(choices, declared, backend) for declared, backend in entries], client)
    return made


def prepare_image(source: tuple[Path, str, str, Path]) -> None:
    """Decodes a job's image for an arch's calls with its text in a folder, where the cache has it.

    A call would start a process for it, which takes longer than decoding. It reports what is wrong, too.
    """
    cache, job, arch, texts = source
    device = arch + amd_archs()[arch]["device"].get("features", "")
    with suppress(UserError, DamagedObjectError), Cache(cache) as images:
        if entry := images.load(job):
            prepare(entry.binary, device, places=[texts], cache=cache)


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

    def add(self, planned: Sequence[Cell], client: Client) -> list[tuple[tuple[int, int], int]]:
        """Makes calls in one process. Declared maxima and backward of the smallest ones that reach every
        image."""
        by_problem: dict[Problem, list[Cell]] = {}
        for cell in planned:
            by_problem.setdefault(cell.problem, []).append(cell)
        entries: dict[str, tuple[tuple[int, int], int]] = {}
        for problem, calls in groupby(client.calls(by_problem), key=lambda made: made[0]):
            expected = expected_outputs(problem)
            for _, cell, status, outputs, launches in calls:
                self.count += 1
                if any(status):
                    self.refused.append(f"{cell.label}: HIP's errors {status[0]} and {status[1]}")
                compared = {name: expected[name].compare(outputs[name]) for name in cell.outputs}
                forward = [compared[name].passed for name in cell.outputs[:2]]
                if all(forward) and not all(comparison.passed for comparison in compared.values()):
                    own = expected_gradients(problem, expected, outputs)
                    compared |= {name: wanted.compare(outputs[name]) for name, wanted in own.items()}
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
