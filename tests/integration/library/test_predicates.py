"""Predicates as the C++ library and Python dispatch evaluate them: equal for every value around the
bounds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotforge.pack.dispatch import decode_dispatch
from aotforge.plan.model import PlannedChoice, PlannedKernel, PlannedParameter
from aotforge.rules import ValueType
from aotforge.verify.interpreter.dispatch import Use, launch_of, rungs_below
from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import Choice, Kernel, SmallPack, files, write

MULTIPLE, RANGE = 0, 1
LOWEST, HIGHEST = -(2**63), 2**63 - 1
TYPES: dict[str, ValueType] = {
    "p": "ptr", "a": "i32", "b": "i64", "c": "u64", "d": "i64", "e": "u64", "x": "f32", "which": "i32"
}  # fmt: skip
LIMITS = {
    "ptr": (0, 2**64 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (LOWEST, HIGHEST),
    "u64": (0, 2**64 - 1),
}
PREDICATES: list[tuple[int, tuple[str, ...], int, int]] = [
    *((MULTIPLE, (name,), low, 0) for name in "pabc" for low in (1, 3, 16, 24, 2**40, 3**39, HIGHEST)),
    *(
        (RANGE, (name,), low, high)
        for name in "abc"
        for low, high in (
            (1, 1), (0, 0), (-1, -1), (-7, 5), (3, 9), (9, 3), (LOWEST, 16), (17, HIGHEST), (LOWEST, HIGHEST),
            (LOWEST, -1), (HIGHEST, HIGHEST), (LOWEST, LOWEST), (2**31 - 1, 2**31), (-(2**31) - 1, -(2**31)),
        )
    ),
    *(
        (MULTIPLE, names, low, 0)
        for names in (("a", "b"), ("b", "c"), ("c", "e"), ("b", "d", "b"), ("a", "b", "c", "d"))
        for low in (1, 3, 64, 96, 2**32 - 1)
    ),
    *(
        (RANGE, names, low, high)
        for names in (("a", "b"), ("b", "c"), ("c", "e"), ("b", "d", "b"), ("a", "b", "c", "d"))
        for low, high in (
            (4096, 4096), (0, 0), (-12, 12), (1, HIGHEST), (LOWEST, -1), (LOWEST, LOWEST), (HIGHEST, HIGHEST),
        )
    ),
]  # fmt: skip


def pack() -> SmallPack:
    """A functional for each predicate: 64 threads when it holds, 128 otherwise."""
    image = fake_hsaco("gfx908", [FakeKernel(symbol="probe", types=["i32"])])
    choices: dict[tuple[str, tuple[int, ...]], list[Choice]] = {
        ("gfx908", (number,)): [
            Choice(image=image, symbol="probe", threads=64, predicates=[predicate]),
            Choice(image=image, symbol="probe", threads=128),
        ]
        for number, predicate in enumerate(PREDICATES)
    }
    kernel = Kernel(
        name="test.probe",
        operator="probe",
        keys=["which"],
        parameters=[("i32", "which")],
        functionals=choices,
    )
    return SmallPack(archs=["gfx908"], operators={"probe": list(TYPES.items())}, kernels=[kernel])


def samples(name: str, bounds: set[int], dice: random.Random) -> list[int]:
    """Values of one type around bounds, at its limits, multiples of 3, and random ones."""
    low, high = LIMITS[TYPES[name]]
    near = {bound + step for bound in bounds for step in (-1, 0, 1)}
    near |= {
        0,
        1,
        -1,
        3,
        6,
        48,
        2**32,
        2**32 + 1,
        2**33,
        HIGHEST,
        HIGHEST + 1,
        2**64 - 1,
        low,
        low + 1,
        high - 1,
        high,
    }
    near |= {dice.randint(low, high) for _ in range(3)} | {dice.randint(-99, 99) for _ in range(3)}
    return sorted(value for value in near if low <= value <= high)


def calls_of(number: int) -> Iterator[dict[str, int]]:
    """Calls of one predicate: every sample of a single value, pairs of samples of a product."""
    kind, names, low, high = PREDICATES[number]
    dice = random.Random(number)
    rest = dict.fromkeys(TYPES, 0) | {"which": number}
    bounds = {low, high, *(3 * low for _ in range(kind == MULTIPLE))}
    wanted = list(dict.fromkeys(names))
    if len(wanted) == 1:
        yield from (rest | {wanted[0]: value} for value in samples(wanted[0], bounds, dice))
        return
    bounds |= {math.isqrt(abs(bound)) for bound in bounds}
    grids = [samples(name, bounds, dice) for name in wanted]
    for _ in range(60):
        yield rest | {name: dice.choice(grid) for name, grid in zip(wanted, grids, strict=True)}
    # the product is a bound, or next to it
    for bound, step in itertools.product((low, high), (-1, 0, 1)):
        yield from (
            rest | dict.fromkeys(wanted, one) | {name: bound + step}
            for name, one in itertools.product(wanted, (1, -1))
            if LIMITS[TYPES[name]][0] <= bound + step <= LIMITS[TYPES[name]][1]
            and (one == 1 or not {"u64"} & {TYPES[other] for other in wanted})
        )


def python_choice(values: dict[str, int]) -> int:
    """The number of the choice that Python takes, from the bytes of the pack."""
    functional = TABLE.functionals[values["which"]]
    assert functional.key == (values["which"],)
    planned = tuple(PlannedChoice(job="", predicates=c.predicates, grid=c.grid) for c in functional.choices)
    kernel = PlannedKernel(
        family="test", name="probe", operator="probe", step=0, keys=TABLE.keys, functionals=(),
        parameters=(PlannedParameter(name="which", type="i32", value="which"),),
    )  # fmt: skip
    taken = [
        index
        for index in range(2)
        if launch_of(Use(kernel=kernel, key=functional.key, choices=planned, index=index), values)
    ]
    assert len(taken) == 1
    return taken[0]


TABLE = decode_dispatch(files(pack())["dispatch.aotd"], file="pack").kernels[0]


@pytest.fixture(scope="module")
def driver(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("predicates")
    write(pack(), folder / "amd-gfx908")
    with Driver(objects, folder) as started:
        started.rc("check")  # the library finds HIP, so the double can be used; the pack has no attention
        yield started


def library_choices(driver: Driver, calls: list[dict[str, int]]) -> list[int]:
    """The number of the choice that the library launches, for each call."""
    driver.send("clear")
    for values in calls:
        line = " ".join(f"{name}={TYPES[name]}:{value}" for name, value in values.items())
        assert driver.rc(f"launch probe {line}") == 0, values
    blocks = [launch["block"][0] for launch in driver.launches()]
    assert len(blocks) == len(calls)
    return [(64, 128).index(threads) for threads in blocks]


def test_library_and_python_choose_the_same_image(driver: Driver) -> None:
    outcomes = set()
    for number, predicate in enumerate(PREDICATES):
        calls = list(calls_of(number))
        wanted = [python_choice(values) for values in calls]
        found = library_choices(driver, calls)
        differing = [(values, w, f) for values, w, f in zip(calls, wanted, found, strict=True) if w != f]
        assert not differing, (predicate, differing[0])
        outcomes |= {(len(predicate[1]) > 1, predicate[0], taken) for taken in wanted}
    # each kind of predicate both held and did not, for single values and products
    assert len(outcomes) == 8


LADDER = (16, 48, 512)
_RUNGS = [
    ("gfx908", (which, rung)) for which, rungs in ((-1, (7,)), (0, LADDER), (2, (40,))) for rung in rungs
]


def test_library_and_python_choose_the_same_rung(objects: Objects, tmp_path: Path) -> None:
    image = fake_hsaco("gfx908", [FakeKernel(symbol="probe", types=["i32"])])
    kernel = Kernel(
        name="test.probe",
        operator="probe",
        keys=["which", "b"],
        ladder=True,
        parameters=[("i32", "which")],
        functionals={row: [Choice(image=image, symbol="probe", threads=row[1][1])] for row in _RUNGS},
    )
    wide = SmallPack(archs=["gfx908"], operators={"probe": list(TYPES.items())}, kernels=[kernel])
    write(wide, tmp_path / "amd-gfx908")
    (table,) = decode_dispatch(files(wide)["dispatch.aotd"], file="pack").kernels
    planned = PlannedKernel(
        family="test", name="probe", operator="probe", step=0, keys=table.keys, ladder=table.ladder,
            functionals=(), parameters=(),
    )  # fmt: skip
    below = rungs_below(table.ladder, [(f.arch, f.key) for f in table.functionals])
    with Driver(objects, tmp_path) as driver:
        driver.rc("check")
        for which, value in itertools.product((-1, 0, 1, 2), (-5, 0, 1, 16, 17, 40, 41, 48, 49, 512, 513)):
            values = dict.fromkeys(TYPES, 0) | {"which": which, "b": value}
            choice = PlannedChoice(job="", predicates=(), grid=())
            taken = [
                row[1][1]
                for row in _RUNGS
                if launch_of(
                    Use(kernel=planned, key=row[1], below=below[row], choices=(choice,), index=0), values
                )
            ]
            wanted = [min((r for _, (w, r) in _RUNGS if w == which and r >= value), default=None)]
            assert taken == [rung for rung in wanted if rung]
            driver.send("clear")
            line = " ".join(f"{name}={TYPES[name]}:{number}" for name, number in values.items())
            assert driver.rc(f"launch probe {line}") == (0 if taken else 801)
            assert [launch["block"][0] for launch in driver.launches()] == taken


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        # kind, values, low, high as in PREDICATES, and the answer by hand
        ((RANGE, ("b",), 3, 9, {"b": 2}), False),
        ((RANGE, ("b",), 3, 9, {"b": 3}), True),
        ((RANGE, ("b",), 3, 9, {"b": 9}), True),
        ((RANGE, ("b",), 3, 9, {"b": 10}), False),
        ((RANGE, ("b",), 1, 1, {"b": 1}), True),
        ((RANGE, ("c",), 17, HIGHEST, {"c": 2**63}), False),
        ((RANGE, ("c",), -7, 5, {"c": 2**64 - 1}), False),
        ((MULTIPLE, ("c",), 3, 0, {"c": 2**64 - 1}), True),
        ((MULTIPLE, ("b",), 3, 0, {"b": -6}), True),
        ((MULTIPLE, ("b",), 3, 0, {"b": -7}), False),
        ((RANGE, ("c", "e"), -12, 12, {"c": 2**32, "e": 2**32}), False),
        ((RANGE, ("c", "e"), 0, 0, {"c": 2**64 - 1, "e": 0}), True),
        ((RANGE, ("b", "c"), LOWEST, LOWEST, {"b": -(2**32), "c": 2**31}), True),
        ((RANGE, ("b", "c"), LOWEST, -1, {"b": -(2**32), "c": 2**31 + 1}), False),
        ((MULTIPLE, ("c", "e"), 2**32 - 1, 0, {"c": 2**64 - 1, "e": 2**64 - 2}), True),
        ((MULTIPLE, ("a", "b"), 64, 0, {"a": -8, "b": 24}), True),
        ((MULTIPLE, ("a", "b"), 64, 0, {"a": -8, "b": 12}), False),
    ],
)
def test_known_answers(
    driver: Driver, values: tuple[int, tuple[str, ...], int, int, dict[str, int]], holds: bool
) -> None:
    *predicate, given = values
    which = PREDICATES.index(tuple(predicate))  # type: ignore[arg-type]
    call = dict.fromkeys(TYPES, 0) | {"which": which} | given
    assert library_choices(driver, [call]) == [0 if holds else 1]
    assert python_choice(call) == (0 if holds else 1)


REPEATED = (
    [(RANGE, ("a",), -5, 5)],
    [(RANGE, ("a",), -5, 6)],
    [(RANGE, ("a",), -5, 5), (MULTIPLE, ("a",), 2, 0)],
    [(RANGE, ("a",), -5, 5)],
    [(RANGE, ("a",), -5, 5), (MULTIPLE, ("a",), 2, 0)],
)
"""Predicates of the functionals of a kernel, some equal and some alike."""


def test_equal_predicates_of_several_choices(objects: Objects, tmp_path: Path) -> None:
    """Equal ones are in the pack once for each kernel: the same bytes mean another value's type in another
    operator."""
    image = fake_hsaco("gfx908", [FakeKernel(symbol="probe", types=["i32"])])
    operators = {f"probe_{kind}": [("a", kind), ("which", "i32")] for kind in ("i64", "u64")}
    kernels = [
        Kernel(
            name=f"test.{name}", operator=name, keys=["which"], parameters=[("i32", "which")],
            functionals={
                ("gfx908", (number,)): [
                    Choice(image=image, symbol="probe", threads=64, predicates=predicates),
                    Choice(image=image, symbol="probe", threads=128),
                ]
                for number, predicates in enumerate(REPEATED)
            },
        )
        for name in operators
    ]  # fmt: skip
    write(SmallPack(archs=["gfx908"], operators=operators, kernels=kernels), tmp_path / "amd-gfx908")
    calls = [
        (kind, which, a) for kind in ("i64", "u64") for which in range(len(REPEATED)) for a in (-1, 2, 3, 6)
    ]
    with Driver(objects, tmp_path) as driver:
        driver.rc("check")
        driver.send("clear")
        for kind, which, a in calls:
            value = a % 2**64 if kind == "u64" else a
            assert driver.rc(f"launch probe_{kind} a={kind}:{value} which=i32:{which}") == 0
        found = [launch["block"][0] == 64 for launch in driver.launches()]
    tests = [
        (kind == "i64" or a >= 0)
        and -5 <= a <= (6 if which == 1 else 5)
        and (which not in {2, 4} or a % 2 == 0)
        for kind, which, a in calls
    ]
    assert found == tests
