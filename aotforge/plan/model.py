"""Values of the plan: every compile job, and which image serves which call; their digests and JSON."""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from aotforge.rules import Operator, Scalar, Target, ValueType
from aotforge.toolchain.triton import Toolchain

T = TypeVar("T")
_NO_LINE_INFO = "TRITON_DISABLE_LINE_INFO"

JobKey = str
"""SHA-256, hexadecimal, of everything that can change an image's bytes."""


@dataclass(frozen=True, kw_only=True)
class CompileJob:
    """One image to compile. All but `label` and `spills` enters `key`, `cures` and `aliases` if not empty.

    `signature` holds Triton's types in the order of the function's parameters ("constexpr" included), `hints`
    the divisibility per parameter, `source_digest` the digest of the syntax of the kernel's source closure,
    `cures` the hazards (`manifests/hazards.yaml`) that IR or text are changed for, `aliases` Triton's
    passes that get another arch than the target's.
    """

    key: JobKey
    family: str
    kernel: str
    label: str
    source: str
    function: str
    source_digest: str
    target: Target
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Scalar], ...]
    hints: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, Scalar], ...]
    toolchain: Toolchain
    spills: Literal["report", "reject"]
    cures: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Predicate:
    """A run-time condition: product of values % low == 0 (`multiple`), low <= product <= high (`range`)."""

    values: tuple[str, ...]
    kind: Literal["multiple", "range"]
    low: int
    high: int = 0

    def holds(self, value: Callable[[str], float]) -> bool:
        """Whether it holds of a call with these operator values."""
        product = math.prod(int(value(name)) for name in self.values)
        return product % self.low == 0 if self.kind == "multiple" else self.low <= product <= self.high


@dataclass(frozen=True, kw_only=True)
class GridTerm:
    """ceil(value / divisor), a factor of a grid axis."""

    value: str
    divisor: int


@dataclass(frozen=True, kw_only=True)
class PlannedChoice:
    """One image for one functional, tried when every predicate holds."""

    job: JobKey
    predicates: tuple[Predicate, ...]
    grid: tuple[tuple[GridTerm, ...], ...]


@dataclass(frozen=True, kw_only=True)
class PlannedFunctional:
    """`key` are the numbers that the kernel's key values hold, in `PlannedKernel.keys` order."""

    arch: str
    key: tuple[int, ...]
    choices: tuple[PlannedChoice, ...]


@dataclass(frozen=True, kw_only=True)
class PlannedParameter:
    """A run-time kernel parameter, in kernarg order: its type as passed, the operator value that fills it."""

    name: str
    type: ValueType
    value: str


@dataclass(frozen=True, kw_only=True)
class PlannedKernel:
    """A kernel's dispatch data. Functionals are sorted by (arch, key), choices by the order of trial.

    `ladder`: the last key selects the smallest functional at or above the call's value.
    """

    family: str
    name: str
    operator: str
    step: int
    keys: tuple[str, ...]
    ladder: bool = False
    parameters: tuple[PlannedParameter, ...]
    functionals: tuple[PlannedFunctional, ...]


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Functionals of a kernel (`family.kernel`) and values of choices that the profile leaves out."""

    kernel: str
    functionals: int
    values: tuple[str, ...]

    def text(self, profile: str) -> str:
        """One line."""
        what = "functional" if self.functionals == 1 else "functionals"
        values = ", ".join(self.values)
        return f"{self.functionals} {what} of {self.kernel} left out by profile {profile} ({values})"


@dataclass(frozen=True, kw_only=True, order=True)
class ServedGate:
    """A gate (`rules.Gate`) all of whose calls are served on an arch."""

    gate: str
    arch: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The contract of a build: `jobs` by family, kernel, arch, functional and setting, no key twice.

    `pack` is the directory below aotriton.images; `archs` are those that it serves; `complete` means that it
    may be released. `left_out` is what the profile does not keep, `gates` what is served completely.
    """

    pack: str
    archs: tuple[str, ...]
    profile: str
    complete: bool
    operators: tuple[Operator, ...]
    jobs: tuple[CompileJob, ...]
    kernels: tuple[PlannedKernel, ...]
    source_digest: str
    settings_digest: str
    toolchain: Toolchain
    left_out: tuple[LeftOut, ...] = ()
    gates: tuple[ServedGate, ...] = ()

    def notes(self) -> list[str]:
        """A line for each kernel of which the profile leaves functionals out."""
        return [one.text(self.profile) for one in self.left_out]


def json_digest(value: object) -> str:
    """SHA-256, hexadecimal, of the value's JSON with sorted keys and no spaces; dataclasses are objects."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=vars)
    return hashlib.sha256(text.encode()).hexdigest()


def with_line_info(job: CompileJob) -> CompileJob:
    """The same job with line info, thus paths, under another key: its image is never shipped."""
    environment = dict(job.toolchain.environment) | {_NO_LINE_INFO: "0"}
    return replace(
        job,
        key=hashlib.sha256(f"{job.key} with line info".encode()).hexdigest(),
        toolchain=replace(job.toolchain, environment=tuple(environment.items())),
    )


def has_line_info(job: CompileJob) -> bool:
    """Whether the job was made by `with_line_info`."""
    return dict(job.toolchain.environment).get(_NO_LINE_INFO) == "0"


def plan_to_json(plan: Plan) -> str:
    """Canonical JSON: equal plans give equal bytes. The toolchain is at the top, and not in jobs."""
    tree = asdict(plan)
    for job in tree["jobs"]:
        del job["toolchain"]
    return json.dumps(tree, sort_keys=True, indent=1) + "\n"


def build(wanted: type[T], tree: object) -> T:
    """A dataclass, with nested ones and tuples, from the JSON of its `asdict`. Raises KeyError, TypeError."""
    value = _build(wanted, tree)
    assert isinstance(value, wanted)
    return value


def _build(wanted: Any, value: Any) -> Any:
    if is_dataclass(wanted) and isinstance(wanted, type):
        return wanted(**{name: _build(kind, value[name]) for name, kind in _hints(wanted).items()})
    if get_origin(wanted) is tuple:
        inner = get_args(wanted)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_build(inner[0], item) for item in value)
        return tuple(_build(kind, item) for kind, item in zip(inner, value, strict=True))
    return value


_hints = cache(get_type_hints)
