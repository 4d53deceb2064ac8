"""Both readers of image packs, C++ and Python, accept and refuse the same bytes; each rule of the format has
its own bytes.

Bodies have right digests, so that the readers look at what is in them.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.readers import Readers, python_reads
from tests.support.small_pack import Choice, Kernel, SmallPack, container, files, seal

IMAGE = fake_hsaco("gfx908", [FakeKernel(symbol="one", types=["i64"])])
OTHER = fake_hsaco("gfx908", [FakeKernel(symbol="two", types=["i64"])])
VALUES = [("p", "ptr"), ("i", "i32"), ("l", "i64"), ("u", "u64"), ("f", "f32")]
CONDITIONS = (
    (0, ["p"], 16, 0),
    (1, ["i"], -5, 7),
    (0, ["l"], 3, 0),
    (1, ["u"], 1, 2),
    (0, ["i", "u"], 8, 0),
    (1, ["l"] * 4, 0, 9),
)
ONE = Choice(
    image=IMAGE, symbol="one", lds=64, predicates=CONDITIONS, grid=((("i", 4),), (("l", 1), ("u", 2)), ())
)
KERNEL = Kernel(
    name="e.one",
    operator="opA",
    keys=("i", "l"),
    parameters=[("ptr", "p"), ("i64", "i"), ("i32", "u"), ("f32", "f")],
    nulls=2,
    functionals={("gfx908", (-1, 2)): [ONE, replace(ONE, image=OTHER)], ("gfx908", (-1, 3)): [ONE],
        ("gfx90a", (0, 0)): [ONE]},
)  # fmt: skip
PACK = SmallPack(
    archs=["gfx908", "gfx90a"],
    operators={"opA": VALUES, "opB": [("n", "i64")]},
    kernels=[
        KERNEL,
        replace(KERNEL, name="e.two", step=1, keys=(), functionals={("gfx90a", ()): [ONE]}),
        Kernel(
            name="f.sum", operator="opB", functionals={("gfx908", ()): [Choice(image=IMAGE, symbol="sum")]}
        ),
    ],
)


def body(pack: SmallPack = PACK) -> bytes:
    return files(pack)["dispatch.aotd"][64:]


def choice(**changes: object) -> bytes:
    """The body with another first choice of the first kernel."""
    new = replace(ONE, **changes)  # type: ignore[arg-type]
    functionals = {**KERNEL.functionals, ("gfx908", (-1, 3)): [new]}
    return body(replace(PACK, kernels=[replace(KERNEL, functionals=functionals), *PACK.kernels[1:]]))


def kernel(**changes: object) -> bytes:
    """The body with another first kernel."""
    new = replace(KERNEL, **changes)  # type: ignore[arg-type]
    return body(replace(PACK, kernels=[new, *PACK.kernels[1:]]))


def swapped(first: bytes, second: bytes) -> bytes:
    """The body with two names of one length exchanged."""
    mark = b"\xfe" * len(first)
    return body().replace(first, mark).replace(second, first).replace(mark, second)


def changed(old: bytes, new: bytes) -> bytes:
    """The body with the only occurrence of some bytes replaced."""
    assert body().count(old) == 1, body().count(old)
    return body().replace(old, new)


def with_index(at: int, value: int) -> bytes:
    """The body with another number at this distance behind the name of the first kernel."""
    place = body().index(b"\x05e.one", body().index(b"\3opB")) + 6 + at
    return body()[:place] + struct.pack("<H", value) + body()[place + 2 :]


def without_count(count: int, first: bytes) -> bytes:
    """The body with a count of 0 in front of the first item."""
    return changed(struct.pack("<H", count) + first, struct.pack("<H", 0) + first)


def second_step(step: int) -> bytes:
    """The body with another step of the second kernel."""
    return body(replace(PACK, kernels=[KERNEL, replace(PACK.kernels[1], step=step), PACK.kernels[2]]))


def functional(arch: int, key: int) -> bytes:
    """The body with another arch and key of the second functional."""
    return changed(_SECOND, struct.pack("<Hqq", arch, -1, key))


def first_of_last_arch() -> bytes:
    """The body with the last arch in front of the first functional."""
    return body().replace(_FIRST, struct.pack("<H", 1) + _FIRST[2:])


def kernel_without_lists() -> bytes:
    """The body with a first kernel whose choice has no predicates, and without the list of none that it
    names."""
    data = kernel(functionals={("gfx908", (0, 0)): [replace(ONE, predicates=())]})
    assert data.count(struct.pack("<BHBI", 2, 1, 0, 1)) == 1
    return data.replace(struct.pack("<BHBI", 2, 1, 0, 1), struct.pack("<BHI", 2, 0, 1))


_TERMS = struct.pack("<HIHIHI", 1, 4, 2, 1, 3, 2)
_WITH_LIST = struct.pack("<HH3B", 256, 0, 1, 2, 0) + _TERMS
_LISTS = struct.pack("<BHBBBH", 2, 1, len(CONDITIONS), 0, 1, 0)
_FIRST, _SECOND = (struct.pack("<Hqq", 0, -1, key) for key in (2, 3))
MANY = [(f"v{number}", "i32") for number in range(513)]
BODIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "no archs": (lambda: struct.pack("<H", 0) + body()[2:], "arch count out of bounds"),
    "65 archs": (lambda: body(replace(PACK, archs=[f"a{n:02}" for n in range(63)] + ["gfx908", "gfx90a"])),
        "arch count out of bounds"),
    "archs out of order": (lambda: swapped(b"gfx908", b"gfx90a"), "archs are not sorted or not unique"),
    "an arch twice": (lambda: body().replace(b"gfx90a", b"gfx908"), "archs are not sorted or not unique"),
    "an empty name": (lambda: changed(b"\x06gfx908\x06gfx90a", b"\x06gfx908\x00"), "empty name"),
    "a space in a name": (lambda: body().replace(b"gfx90a", b"gfx9 a"), "name is not printable ASCII"),
    "a control character in a name": (lambda: body().replace(b"gfx90a", b"gfx9\x7fa"),
        "name is not printable ASCII"),
    "no containers": (lambda: without_count(3, b"\x0ae.one.aoti"), "container count out of bounds"),
    "containers out of order": (lambda: swapped(b"e.one.aoti", b"e.two.aoti"),
        "containers are not sorted or not unique"),
    "a container twice": (lambda: body().replace(b"e.two.aoti", b"e.one.aoti"),
        "containers are not sorted or not unique"),
    "a hidden container": (lambda: body().replace(b"\x0ae.one.aoti", b"\x0a..one.aoti"),
        "container name is not a file name of a pack"),
    "a container elsewhere": (lambda: body().replace(b"\x0ae.one.aoti", b"\x0ae/one.aoti"),
        "container name is not a file name of a pack"),
    "a container with a backslash": (lambda: body().replace(b"\x0ae.one.aoti", b"\x0ae\\one.aoti"),
        "container name is not a file name of a pack"),
    "a container of 65 characters": (lambda: body().replace(b"\x0ae.one.aoti", b"\x41" + b"e" * 65),
        "container name is not a file name of a pack"),
    "no operators": (lambda: without_count(2, b"\3opA"), "operator count out of bounds"),
    "operators out of order": (lambda: swapped(b"\3opA", b"\3opB"), "operators are not sorted or not unique"),
    "an operator twice": (lambda: body().replace(b"\3opB", b"\3opA"),
        "operators are not sorted or not unique"),
    "no values": (lambda: changed(b"\3opA" + struct.pack("<H", 5), b"\3opA" + struct.pack("<H", 0)),
        "value count out of bounds"),
    "513 values": (lambda: body(replace(PACK, operators={"opA": VALUES, "opB": MANY},
        kernels=PACK.kernels[:2])), "value count out of bounds"),
    "two values of one name": (lambda: body(replace(PACK,
        operators={**PACK.operators, "opA": [*VALUES, ("p", "i32")]})), "two values have one name"),
    "an unknown type": (lambda: changed(b"\1f\4", b"\1f\5"), "unknown type"),
    "no kernels": (lambda: without_count(3, b"\x05e.one"), "kernel count out of bounds"),
    "an operator that is not there": (lambda: with_index(0, 2), "operator index out of bounds"),
    "a container that is not there": (lambda: with_index(3, 3), "container index out of bounds"),
    "a step left out": (lambda: second_step(2), "kernels are not sorted by operator and step"),
    "a step twice": (lambda: second_step(0), "kernels are not sorted by operator and step"),
    "a first step of 1": (lambda: kernel(step=1), "kernels are not sorted by operator and step"),
    "a pointer as key": (lambda: kernel(keys=("p", "l")), "key is not an integer"),
    "a float as key": (lambda: kernel(keys=("f", "l")), "key is not an integer"),
    "33 keys": (lambda: kernel(keys=("i",) * 33, functionals={("gfx908", (0,) * 33): [ONE]}),
        "key count out of bounds"),
    "a ladder flag of 2": (lambda: kernel(ladder=2), "ladder flag out of bounds"),
    "a ladder without keys": (lambda: kernel(ladder=True, keys=(), functionals={("gfx908", ()): [ONE]}),
        "ladder flag out of bounds"),
    "257 parameters": (lambda: kernel(parameters=[("i32", "i")] * 257), "parameter count out of bounds"),
    "a pointer as i64": (lambda: kernel(parameters=[("i64", "p")]),
        "parameter and value types do not convert"),
    "an i64 as pointer": (lambda: kernel(parameters=[("ptr", "l")]),
        "parameter and value types do not convert"),
    "a float as i32": (lambda: kernel(parameters=[("i32", "f")]), "parameter and value types do not convert"),
    "an i32 as float": (lambda: kernel(parameters=[("f32", "i")]),
        "parameter and value types do not convert"),
    "nine null pointers": (lambda: kernel(nulls=9), "null pointer count out of bounds"),
    "an arch that is not there": (lambda: changed(struct.pack("<Hqq", 1, 0, 0),
        struct.pack("<Hqq", 2, 0, 0)), "arch index out of bounds"),
    "functionals out of order by key": (lambda: functional(0, 1), "functionals are not sorted or not unique"),
    "a functional twice": (lambda: functional(0, 2), "functionals are not sorted or not unique"),
    "functionals out of order by arch": (first_of_last_arch, "functionals are not sorted or not unique"),
    "more functionals than bytes": (
        lambda: changed(struct.pack("<I", 3) + _FIRST, struct.pack("<I", 2**32 - 1) + _FIRST),
            "functional count out of bounds"),
    "more predicate lists than bytes": (
        lambda: body().replace(_LISTS, struct.pack("<BH", 2, 2**16 - 1) + _LISTS[3:]),
            "predicate list count out of bounds"),
    "no predicate lists": (kernel_without_lists, "predicate list index out of bounds"),
    "a predicate list that is not there": (
        lambda: changed(_WITH_LIST + _SECOND, struct.pack("<HH", 256, 1) + _WITH_LIST[4:] + _SECOND),
            "predicate list index out of bounds"),
    "no choices": (lambda: kernel(functionals={("gfx908", (0, 0)): []}), "choice count out of bounds"),
    "257 choices": (lambda: kernel(functionals={("gfx908", (0, 0)): [ONE] * 257}),
        "choice count out of bounds"),
    "256 KiB of shared memory and a byte": (lambda: choice(lds=256 * 1024 + 1), "shared memory over 256 KiB"),
    "no threads": (lambda: choice(threads=0), "threads per workgroup out of bounds"),
    "1025 threads": (lambda: choice(threads=1025), "threads per workgroup out of bounds"),
    "an unknown predicate": (lambda: choice(predicates=[(2, ["i"], 1, 0)]), "unknown predicate"),
    "a predicate without values": (lambda: choice(predicates=[(0, [], 1, 0)]),
        "predicate's value count out of bounds"),
    "a predicate of five values": (lambda: choice(predicates=[(0, ["i"] * 5, 1, 0)]),
        "predicate's value count out of bounds"),
    "a multiple of a float": (lambda: choice(predicates=[(0, ["f"], 1, 0)]), "predicate on a float"),
    "a range of a float": (lambda: choice(predicates=[(1, ["f"], 1, 2)]), "predicate on a float"),
    "a range of a pointer": (lambda: choice(predicates=[(1, ["p"], 1, 2)]), "range or product of a pointer"),
    "a product with a pointer": (lambda: choice(predicates=[(0, ["i", "p"], 2, 0)]),
        "range or product of a pointer"),
    "a multiple of zero": (lambda: choice(predicates=[(0, ["i"], 0, 0)]), "predicate bounds"),
    "a multiple of -1": (lambda: choice(predicates=[(0, ["i"], -1, 0)]), "predicate bounds"),
    "a multiple with a second bound": (lambda: choice(predicates=[(0, ["i"], 4, 1)]), "predicate bounds"),
    "a product with a divisor of 33 bits": (lambda: choice(predicates=[(0, ["i", "l"], 2**32, 0)]),
        "predicate bounds"),
    "a gate twice": (lambda: body(replace(PACK, gates=[("g", "gfx908")] * 2)),
        "gates are not sorted or not unique"),
    "a gate of no arch": (lambda: body(replace(PACK, gates=[("g", "gfx908")]))[:-2] + b"\x02\0",
        "arch index out of bounds"),
    "1025 gates": (lambda: body(replace(PACK, gates=[(f"g{i}", "gfx908") for i in range(1025)])),
        "gate count out of bounds"),
    "five grid terms": (lambda: choice(grid=((), (("i", 1),) * 5, ())),
        "more than four terms on a grid axis"),
    "a divisor of zero": (lambda: choice(grid=((), (), (("i", 0),))), "divisor is zero"),
    "a pointer as size": (lambda: choice(grid=((("p", 1),), (), ())), "grid term is not an integer"),
    "a float as size": (lambda: choice(grid=((("f", 1),), (), ())), "grid term is not an integer"),
    "a value that is not there": (lambda: changed(_TERMS + _SECOND,
        struct.pack("<H", 5) + _TERMS[2:] + _SECOND), "value index out of bounds"),
    "a byte after the end": (lambda: body() + b"\0", "bytes after the end"),
    "a byte too few": (lambda: body()[:-1], "truncated"),
}  # fmt: skip
"""Rule to the bytes that break it alone, and the reason of the C++ reader."""

LIMITS: dict[str, Callable[[], bytes]] = {
    "64 archs": lambda: body(replace(PACK, archs=[f"a{n:02}" for n in range(62)] + ["gfx908", "gfx90a"])),
    "512 values": lambda: body(replace(PACK, operators={"opA": VALUES, "opB": MANY[:512]},
        kernels=PACK.kernels[:2])),
    "32 keys": lambda: kernel(keys=("i",) * 32, functionals={("gfx908", (0,) * 32): [ONE]}),
    "256 parameters": lambda: kernel(parameters=[("i32", "i")] * 256),
    "eight null pointers": lambda: kernel(nulls=8),
    "256 choices": lambda: kernel(functionals={("gfx908", (0, 0)): [ONE] * 256}),
    "no functionals": lambda: kernel(functionals={}),
    "no parameters": lambda: kernel(parameters=[]),
    "256 KiB of shared memory": lambda: choice(lds=256 * 1024),
    "one thread": lambda: choice(threads=1),
    "1024 threads": lambda: choice(threads=1024),
    "255 predicates": lambda: choice(predicates=[(1, ["i"], 0, 0)] * 255),
    "the largest divisors": lambda: choice(predicates=[(0, ["u"], 2**63 - 1, 0),
        (0, ["i", "u"], 2**32 - 1, 0)]),
    "the widest range": lambda: choice(predicates=[(1, ["u", "i", "l", "i"], -(2**63), 2**63 - 1)]),
    "an empty range": lambda: choice(predicates=[(1, ["i"], 1, 0)]),
    "four terms an axis": lambda: choice(grid=((("i", 1),) * 4,) * 3),
    "the largest divisor": lambda: choice(grid=((("i", 2**32 - 1),), (), ())),
    "a container of 64 characters": lambda: body().replace(b"\x0ae.one.aoti", b"\x40e." + b"-" * 62),
    "printable characters": lambda: body().replace(b"gfx90a", b"g~!|<~"),
    "every integer as every other": lambda: kernel(parameters=[(to, at) for to in ("i32", "i64",
        "u64") for at in "ilu"]),
}  # fmt: skip


@pytest.mark.parametrize("why", BODIES)
def test_each_rule_refuses_its_body(readers: Readers, why: str) -> None:
    make, reason = BODIES[why]
    data = seal(make())
    assert readers("dispatch", data).split(" ", 2)[0::2] == ["refused", reason]
    assert python_reads("dispatch", data)


@pytest.mark.parametrize("what", LIMITS)
def test_each_limit_itself_is_accepted(readers: Readers, what: str) -> None:
    data = seal(LIMITS[what]())
    assert readers("dispatch", data).startswith("accepted")
    assert python_reads("dispatch", data) == ""


def header(offset: int, code: str, value: int) -> bytes:
    """A right file with one field of its header changed."""
    data = bytearray(seal(body()))
    struct.pack_into(code, data, offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (seal(body())[:63], "truncated"),
        (header(0, "<B", 66), "magic is not that of dispatch data"),
        (header(12, "<I", 63), "header size is not 64"),
        (header(16, "<Q", 64 + len(body()) + 1), "file size differs from the header's"),
        (header(24, "<Q", 1), "reserved field is not zero"),
        (header(32, "<Q", 1), "SHA-256 of the body differs"),
        (header(8, "<I", 99), "format version is not"),
    ],
)
def test_each_field_of_the_header(readers: Readers, data: bytes, reason: str) -> None:
    assert readers("dispatch", data).split(" ", 2)[2].startswith(reason)
    assert python_reads("dispatch", data)


def mutated(data: bytes, dice: random.Random) -> bytes:
    """One to four changes: bytes, numbers at their limits, parts left out, doubled or exchanged."""
    new = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(new))
        match dice.randrange(8):
            case 0 | 1:
                new[at] = dice.choice((0, 1, 2, 3, 4, 5, 0x7F, 0xFF, dice.randrange(256)))
            case 2:
                new[at] = (new[at] + dice.choice((1, -1))) % 256
            case 3:
                number = dice.choice((0, 1, 2, 2**15, 2**16 - 1))
                new[at : at + 2] = struct.pack("<H", number)
            case 4:
                number = dice.choice((0, 1, -1, 2**31, -(2**63), 2**63 - 1))
                new[at : at + 8] = struct.pack("<q", number)
            case 5:
                del new[at : at + dice.randrange(1, 40)]
            case 6:
                end = at + dice.randrange(1, 40)
                new[end:end] = new[at:end]
            case _:
                other, size = dice.randrange(len(new)), dice.choice((1, 2, 4, 8))
                new[at : at + size], new[other : other + size] = (
                    new[other : other + size],
                    new[at : at + size],
                )
        if not new:
            return bytes(data)
    return bytes(new)


def disagreements(readers: Readers, kind: str, bodies: Iterator[bytes]) -> tuple[list[str], int, int]:
    """Bytes on which the readers differ, and how many were accepted and refused."""
    found, accepted, refused = [], 0, 0
    for data in bodies:
        theirs, ours = readers(kind, data), python_reads(kind, data)
        if theirs.startswith("accepted") != (ours == ""):
            found.append(f"{data.hex()}: {theirs[:60]} / {ours or 'accepted'}")
        accepted, refused = accepted + (ours == ""), refused + (ours != "")
    return found, accepted, refused


@pytest.mark.parametrize("seed", range(2))
def test_hostile_dispatch_bodies(readers: Readers, seed: int) -> None:
    dice = random.Random(seed)
    right = body()
    bodies = (seal(mutated(right, dice)) for _ in range(1500))
    found, accepted, refused = disagreements(readers, "dispatch", bodies)
    assert found == []
    assert accepted > 100 and refused > 500, (accepted, refused)


def sealed_container(data: bytes) -> bytes:
    """A container with its index digest put right."""
    count = struct.unpack_from("<I", data, 24)[0]
    index = data[128 : 128 + 64 * min(count, 1000)]
    return data[:96] + hashlib.sha256(index).digest() + data[128:]


@pytest.mark.parametrize("dictionary", [b"", IMAGE * 2])
def test_hostile_containers(readers: Readers, dictionary: bytes) -> None:
    right = container([IMAGE, OTHER, IMAGE + b"\0"], dictionary)
    dice = random.Random(len(dictionary))

    def bodies() -> Iterator[bytes]:
        for _ in range(600):
            end = dice.choice((128, 128 + 3 * 64, len(right)))
            data = bytearray(right)
            data[8:end] = mutated(right[8:end], dice)[: end - 8].ljust(end - 8, b"\0")
            yield sealed_container(bytes(data))

    found, accepted, refused = disagreements(readers, "container", bodies())
    assert found == []
    assert refused > 300, (accepted, refused)
