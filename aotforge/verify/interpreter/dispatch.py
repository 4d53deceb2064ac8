"""Dispatch of a call by a plan: the first image whose predicates hold."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aotforge.errors import RulesError
from aotforge.plan.model import CompileJob, GridTerm, JobKey, Plan, PlannedChoice, PlannedKernel, Predicate
from aotforge.rules import GENERAL_SUFFIX

Values = Mapping[str, int | float]
"""Operator values by name; pointers are addresses."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Grid (0: nothing is launched), and arguments by parameter name in the kernel's order."""

    grid: tuple[int, int, int]
    arguments: Values


@dataclass(frozen=True, kw_only=True)
class Use:
    """One way in which a plan dispatches to an image: the choice at `index` of a functional.

    `below`: the next lower number of the kernel's ladder, if any. `general`: of a general function.
    """

    kernel: PlannedKernel
    key: tuple[int, ...]
    below: int | None = None
    choices: tuple[PlannedChoice, ...]
    index: int
    general: bool = False

    @property
    def called(self) -> str:
        """Name of the image's kernel in cases.py: of a general function with GENERAL_SUFFIX."""
        return f"{self.kernel.name}{GENERAL_SUFFIX}" if self.general else self.kernel.name


def uses_of(plan: Plan, arch_of: Mapping[JobKey, str]) -> dict[JobKey, tuple[Use, ...]]:
    """Every way in which the plan dispatches to each image, in the plan's order."""
    found: dict[JobKey, list[Use]] = {key: [] for key in arch_of}
    general = {job.key for job in plan.jobs if job.function.endswith(GENERAL_SUFFIX)}
    for kernel in plan.kernels:
        below = rungs_below(kernel.ladder, [(f.arch, f.key) for f in kernel.functionals])
        for functional in kernel.functionals:
            for index, choice in enumerate(functional.choices):
                if arch_of.get(choice.job) == functional.arch:
                    use = Use(
                        kernel=kernel,
                        key=functional.key,
                        below=below[functional.arch, functional.key],
                        choices=functional.choices,
                        index=index,
                        general=choice.job in general,
                    )
                    found[choice.job].append(use)
    return {key: tuple(uses) for key, uses in found.items()}


Row = tuple[str, tuple[int, ...]]
"""Arch and key of a functional."""


def rungs_below(ladder: bool, rows: Sequence[Row]) -> dict[Row, int | None]:
    """The next lower number of a ladder for each sorted functional; None for the lowest, and without."""
    found: dict[Row, int | None] = dict.fromkeys(rows)
    for (arch, key), (next_arch, next_key) in pairwise(rows if ladder else ()):
        if (arch, key[:-1]) == (next_arch, next_key[:-1]):
            found[next_arch, next_key] = key[-1]
    return found


def launch_of(use: Use, values: Values) -> Launch | None:
    """The launch, or None when another image serves the call. Raises RulesError for a missing value."""
    call = KernelCall(use.kernel.name, values)
    if not _agrees(use, tuple(int(call[name]) for name in use.kernel.keys)):
        return None
    if call.first_match(choice.predicates for choice in use.choices) != use.index:
        return None
    return Launch(
        grid=call.grid(use.choices[use.index].grid),
        arguments={p.name: (float if p.type == "f32" else int)(call[p.value]) for p in use.kernel.parameters},
    )


def _agrees(use: Use, key: tuple[int, ...]) -> bool:
    if not use.kernel.ladder:
        return key == use.key
    return key[:-1] == use.key[:-1] and (use.below is None or use.below < key[-1]) and key[-1] <= use.key[-1]


def launches_of(plan: Plan, values: Values) -> Iterator[tuple[CompileJob, Launch]]:
    """Jobs whose images serve a call, with their launches. Raises RulesError."""
    uses = uses_of(plan, {job.key: job.target.arch for job in plan.jobs})
    for job in plan.jobs:
        launches = (launch_of(use, values) for use in uses[job.key])
        yield from ((job, launch) for launch in launches if launch)


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel's operator."""

    kernel: str
    values: Values

    def __getitem__(self, name: str) -> int | float:
        if name not in self.values:
            raise RulesError(
                f"a call of {self.kernel} lacks the value {name}",
                cause="the operator has the value, and the case does not set it",
                hint="add it to the call in the family's cases.py",
            )
        return self.values[name]

    def first_match(self, offered: Iterable[Sequence[Predicate]]) -> int | None:
        """Number of the first whose predicates all hold."""
        return next(
            (i for i, every in enumerate(offered) if all(one.holds(self.__getitem__) for one in every)), None
        )

    def grid(self, axes: Sequence[Sequence[GridTerm]]) -> tuple[int, int, int]:
        """Programs by axis."""
        sizes = [math.prod(-(-int(self[t.value]) // t.divisor) for t in axis) for axis in axes]
        x, y, z = (*sizes, 1, 1, 1)[:3]
        return x, y, z
