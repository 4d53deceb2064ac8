"""Which image serves a call of `aotforge_launch`, by arch, keys, types of parameters and grids, as the HIP
double records it."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.runtime import Driver, Objects
from tests.support.small_pack import Choice, Kernel, SmallPack, write

INVALID_VALUE, NO_BINARY, NOT_SUPPORTED = 1, 209, 801
ARCHS = ("gfx1100", "gfx1101", "gfx1103", "gfx908", "gfx90a")
STRANGERS = ("gfx1102", "gfx1099", "gfx906", "gfx909", "gfx950")
"""Before, between and after the pack's archs."""
KEYS = ((-(2**63), 5), (-3, -1), (-3, 5), (0, 0), (0, 7), (2**63 - 1, 5))
FORMATS = {"ptr": "<Q", "i32": "<i", "i64": "<q", "u64": "<Q", "f32": "<f"}


def image(arch: str, symbol: str, types: Sequence[str]) -> bytes:
    return fake_hsaco(arch, [FakeKernel(symbol=symbol, types=types)])


def family() -> SmallPack:
    """A kernel of its own for every arch and key; gfx90a lacks the last key."""
    kernels: dict[tuple[str, tuple[int, ...]], Sequence[Choice]] = {}
    for (at, arch), (number, key) in itertools.product(enumerate(ARCHS), enumerate(KEYS)):
        if (arch, key) != ("gfx90a", KEYS[-1]):
            symbol = f"k{at}_{number}"
            kernels[arch, key] = [Choice(image=image(arch, symbol, ["i64"]), symbol=symbol)]
    kernel = Kernel(
        name="e.pick", operator="pick", keys=("a", "b"), parameters=[("i64", "a")], functionals=kernels
    )
    return SmallPack(archs=ARCHS, operators={"pick": [("a", "i64"), ("b", "i32")]}, kernels=[kernel])


def test_every_arch_and_key_of_a_family_pack(objects: Objects, tmp_path: Path) -> None:
    write(family(), tmp_path / "amd-family")
    devices = ",".join([*ARCHS, *STRANGERS])
    with Driver(objects, tmp_path, HIP_DOUBLE_DEVICES=devices) as driver:
        assert driver.send("cus") == "120"  # HIP is loaded
        for device in range(len(ARCHS) + len(STRANGERS)):
            driver.send(f"stream {device}")
        for at in reversed(range(len(ARCHS))):
            for number, (a, b) in enumerate(KEYS):
                driver.send("clear")
                code = driver.rc(f"launch pick a=i64:{a} b=i32:{b} stream={at}")
                absent = ARCHS[at] == "gfx90a" and number == len(KEYS) - 1
                assert code == (NOT_SUPPORTED if absent else 0), (ARCHS[at], a, b)
                assert [one["kernel"] for one in driver.launches()] == ([] if absent else [f"k{at}_{number}"])
            for a, b in ((-4, 5), (-3, 0), (-3, 6), (-1, -1), (0, 1), (1, 0), (2**63 - 1, 6)):
                assert driver.rc(f"launch pick a=i64:{a} b=i32:{b} stream={at}") == NOT_SUPPORTED
        for at in range(len(ARCHS), len(ARCHS) + len(STRANGERS)):
            assert driver.rc(f"launch pick a=i64:0 b=i32:0 stream={at}") == NO_BINARY


BIG = 2**31 - 1
FITS: Mapping[tuple[str, str], Mapping[int, bool]] = {
    ("i32", "i32"): {-(2**31): True, BIG: True},
    ("i32", "i64"): {-(2**31): True, -1: True, BIG: True},
    ("i32", "u64"): {-(2**31): False, -1: False, 0: True, BIG: True},
    ("i64", "i32"): {-(2**31) - 1: False, -(2**31): True, -1: True, BIG: True, BIG + 1: False, 2**32: False,
        2**63 - 1: False},
    ("i64", "i64"): {-(2**63): True, 2**63 - 1: True},
    ("i64", "u64"): {-(2**63): False, -1: False, 0: True, 2**63 - 1: True},
    ("u64", "i32"): {0: True, BIG: True, BIG + 1: False, 2**32: False, 2**63: False, 2**64 - 1: False},
    ("u64", "i64"): {0: True, 2**63 - 1: True, 2**63: False, 2**64 - 1: False},
    ("u64", "u64"): {2**63: True, 2**64 - 1: True},
    ("ptr", "ptr"): {0: True, 2**64 - 1: True},
}  # fmt: skip
"""(value's type, parameter's type) to numbers and whether they fit."""


@pytest.fixture(scope="module")
def converting(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """An operator for each pair of types, with one value and one parameter."""
    folder = tmp_path_factory.mktemp("converting")
    operators, kernels = {}, []
    for have, want in FITS:
        name = f"{have}-{want}"
        operators[name] = [("x", have)]
        choice = Choice(image=image("gfx908", name, [want]), symbol=name)
        kernels.append(
            Kernel(
                name=f"e.{name}",
                operator=name,
                parameters=[(want, "x")],
                functionals={("gfx908", ()): [choice]},
            )
        )
    write(SmallPack(archs=["gfx908"], operators=operators, kernels=kernels), folder / "amd-gfx908")
    with Driver(objects, folder) as driver:
        assert driver.send("cus") == "120"  # HIP is loaded
        yield driver


@pytest.mark.parametrize(("have", "want"), FITS)
def test_a_value_that_does_not_fit_its_parameter_is_not_supported(
    converting: Driver, have: str, want: str
) -> None:
    for number, fits in FITS[have, want].items():
        converting.send("clear")
        code = converting.rc(f"launch {have}-{want} x={have}:{number}")
        assert code == (0 if fits else NOT_SUPPORTED), number
        if fits:
            (launch,) = converting.launches()
            assert launch["arguments"][0]["bytes"] == struct.pack(FORMATS[want], number).hex(), number


REFUSED = {
    "op": "op: x: is missing",
    "op x=i32:1": "op: x: is of another type",
    "op x=ptr:1": "op: x: is of another type",
    "op y=i64:1": "op: y: the operator has no such value",
    "op x=i64:1 x=i64:1": "op: x: given twice",
    "op x=i64:1 y=i64:1": "op: y: the operator has no such value",
    "op x=i64:1 (null)=i64:1": "op: (null): value without a name",
    "(null) x=i64:1": "(null): op: is a null pointer",
}
"""Call to the line of the log that explains its refusal."""


def test_values_that_are_not_the_operators_are_invalid(objects: Objects, tmp_path: Path) -> None:
    choice = Choice(image=image("gfx908", "k", ["i64"]), symbol="k")
    kernel = Kernel(
        name="e.k", operator="op", parameters=[("i64", "x")], functionals={("gfx908", ()): [choice]}
    )
    write(SmallPack(archs=["gfx908"], operators={"op": [("x", "i64")]}, kernels=[kernel]), tmp_path / "amd")
    with Driver(objects, tmp_path, log="warn") as driver:
        assert [driver.rc(f"launch {call}") for call in REFUSED] == [INVALID_VALUE] * len(REFUSED)
        assert driver.launches() == []
        assert driver.rc("launch op x=i64:1") == 0
        assert driver.rc("launch none x=i64:1") == NOT_SUPPORTED
    lines = [line.removeprefix("aotriton: warn: aotforge_launch: ") for line in driver.log.splitlines()]
    assert lines == [*REFUSED.values(), "none: no operator of that name for gfx908"]


M = 2**32 - 1
GRIDS: list[tuple[list[list[tuple[str, int]]], dict[str, int], list[int] | None]] = [
    ([[("a", 1)], [("b", 1)], [("c", 1)]], {"a": 2, "b": 3, "c": 4}, [2, 3, 4]),
    ([[("a", 4)], [], []], {"a": 8}, [2, 1, 1]),
    ([[("a", 4)], [], []], {"a": 9}, [3, 1, 1]),
    ([[("a", 2), ("b", 3)], [("c", 5)], [("c", 2), ("c", 1)]], {"a": 3, "b": 10, "c": 6}, [8, 2, 18]),
    # 64 threads: at most 2^32 - 1 of them along x
    ([[("a", 1)], [], []], {"a": M // 64}, [M // 64, 1, 1]),
    ([[("a", 1)], [], []], {"a": M // 64 + 1}, None),
    ([[], [("b", 1)], []], {"b": 65536}, [1, 65536, 1]),
    ([[], [("b", 1)], []], {"b": 65537}, None),
    ([[], [], [("c", 1)]], {"c": 65536}, [1, 1, 65536]),
    ([[], [], [("c", 1)]], {"c": 65537}, None),
    # products that would be small again in 32 or 64 bits
    ([[], [], [("a", 1), ("b", 1)]], {"a": 2**32, "b": 1}, None),
    ([[("a", 1), ("b", 1), ("c", 1)], [], []], {"a": 2**31, "b": 2, "c": 1}, None),
    ([[("a", 1), ("b", 1)], [], []], {"a": 2**32, "b": 2**32}, None),
    ([[("a", 1), ("b", 1)], [], []], {"a": 65536, "b": 65536}, None),
    ([[("a", 1), ("b", 1)], [], []], {"a": 0, "b": 2**63 - 1}, []),
    ([[("a", 1), ("b", 1)], [], []], {"a": 2**63 - 1, "b": 0}, []),
    ([[("a", 1)], [("b", 1)], []], {"a": M, "b": 0}, []),
    ([[("a", 1)], [("u", 1)], []], {"a": 1, "u": 0}, []),
    ([[], [], [("u", 2**31)]], {"u": 2**64 - 1}, None),
    ([[], [], [("u", 2**32 - 1)]], {"u": 2**45}, [1, 1, 8193]),
    ([[("a", 1)], [], []], {"a": -1}, None),
    ([[("a", 1), ("b", 1)], [], []], {"a": -1, "b": -1}, None),
    ([[("a", 1)], [("b", 1)], []], {"a": 0, "b": -1}, None),
]  # fmt: skip
"""Terms per axis, values (others are 1), the recorded grid; [] for no launch, None for not supported."""


def test_grids(objects: Objects, tmp_path: Path) -> None:
    values = [("a", "i64"), ("b", "i64"), ("c", "i64"), ("u", "u64")]
    operators, kernels = {}, []
    for number, (terms, _, _) in enumerate(GRIDS):
        name = f"g{number:02}"
        operators[name] = values
        choice = Choice(image=image("gfx908", name, ["i64"]), symbol=name, threads=64, grid=terms)
        kernels.append(
            Kernel(
                name=f"e.{name}",
                operator=name,
                parameters=[("i64", "a")],
                functionals={("gfx908", ()): [choice]},
            )
        )
    write(SmallPack(archs=["gfx908"], operators=operators, kernels=kernels), tmp_path / "amd-gfx908")
    with Driver(objects, tmp_path) as driver:
        assert driver.send("cus") == "120"  # HIP is loaded
        for number, (terms, given, grid) in enumerate(GRIDS):
            driver.send("clear")
            words = " ".join(f"{name}={kind}:{given.get(name, 1)}" for name, kind in values)
            code = driver.rc(f"launch g{number:02} {words}")
            assert code == (NOT_SUPPORTED if grid is None else 0), (terms, given)
            assert [one["grid"] for one in driver.launches()] == ([grid] if grid else []), (terms, given)


def test_a_kernel_without_workgroups_is_not_loaded(objects: Objects, tmp_path: Path) -> None:
    """An empty call succeeds, whatever state the image is in."""
    choice = Choice(image=image("gfx908", "k", ["i64"]), symbol="k", grid=((("a", 1),), (), ()))
    kernel = Kernel(
        name="e.k", operator="op", parameters=[("i64", "a")], functionals={("gfx908", ()): [choice]}
    )
    write(SmallPack(archs=["gfx908"], operators={"op": [("a", "i64")]}, kernels=[kernel]), tmp_path / "amd")
    with Driver(objects, tmp_path) as driver:
        assert driver.rc("launch op a=i64:0") == 0
        assert [event for event in driver.record() if event["event"] in ("load", "launch")] == []
        assert driver.rc("launch op a=i64:1") == 0


def test_steps_run_in_order_or_not_at_all(objects: Objects, tmp_path: Path) -> None:
    """Two kernels of one operator; a value that the second cannot take keeps the first from starting."""
    kernels = []
    for step, kind in ((0, "i64"), (1, "i32")):
        choice = Choice(image=image("gfx908", f"s{step}", [kind]), symbol=f"s{step}")
        kernels.append(
            Kernel(
                name=f"e.s{step}", operator="two", step=step, parameters=[(kind, "x")],
                functionals={("gfx908", ()): [choice]},
            )
        )  # fmt: skip
    write(
        SmallPack(archs=["gfx908"], operators={"two": [("x", "i64")]}, kernels=kernels),
        tmp_path / "amd-gfx908",
    )
    with Driver(objects, tmp_path) as driver:
        assert driver.rc(f"launch two x=i64:{2**31}") == NOT_SUPPORTED
        assert driver.record() == []
        assert driver.rc("launch two x=i64:7") == 0
        assert [one["kernel"] for one in driver.launches()] == ["s0", "s1"]
