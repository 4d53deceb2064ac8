"""The dispatch data (`dispatch.aotd`), written and strictly read; see docs/image-pack-format.md."""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from aotforge.pack.binary import FILE_NAME, UNREAD, Cursor, Stream, Writer, check_version, damaged
from aotforge.pack.model import (
    FORMAT,
    DispatchChoice,
    DispatchContainer,
    DispatchFunctional,
    DispatchKernel,
    DispatchTable,
)
from aotforge.plan.conditions import FACTOR_LIMIT, PRODUCT_DIVISOR_LIMIT
from aotforge.plan.model import GridTerm, Predicate, ServedGate
from aotforge.rules import Operator, Value, ValueType

MAGIC = b"AOTFDSP\n"
HEADER = struct.Struct("<8sIIQQ32s")
HEADER_SIZE = 64
SIZE_LIMIT = 4 * 1024 * 1024
ARCH_LIMIT = 64
CONTAINER_LIMIT = 1024
OPERATOR_LIMIT = 256
VALUE_LIMIT = 512
KERNEL_LIMIT = 1024
GATE_LIMIT = 1024
KEY_LIMIT = 32
PARAMETER_LIMIT = 256
NULL_POINTER_LIMIT = 8
CHOICE_LIMIT = 256
SHARED_LIMIT = 256 * 1024
THREAD_LIMIT = 1024
TERM_LIMIT = 4
TYPES: tuple[ValueType, ...] = ("ptr", "i32", "i64", "u64", "f32")
INTEGERS: tuple[ValueType, ...] = ("i32", "i64", "u64")
PREDICATE_TYPES: tuple[ValueType, ...] = (*INTEGERS, "ptr")
KINDS: tuple[Literal["multiple", "range"], ...] = ("multiple", "range")


def encode_dispatch(table: DispatchTable, *, file: str) -> bytes:
    """The bytes of a table in the format's order. Raises PackError when a bound is exceeded."""
    out = Writer(file=file)
    _table(out, table)
    body = out.bytes()
    if HEADER_SIZE + len(body) > SIZE_LIMIT:
        raise out.error(f"{HEADER_SIZE + len(body)} bytes, {SIZE_LIMIT} are allowed")
    digest = hashlib.sha256(body).digest()
    return HEADER.pack(MAGIC, FORMAT, HEADER_SIZE, HEADER_SIZE + len(body), 0, digest) + body


def decode_dispatch(data: bytes, *, file: str) -> DispatchTable:
    """The table that the file holds. Raises PackError naming `file`, the reason and the offset."""
    _header(data, file)
    cursor = Cursor(data, file=file, start=HEADER_SIZE)
    table = _table(cursor, UNREAD)
    cursor.end()
    _check_steps(cursor, table.kernels)
    return table


def _header(data: bytes, file: str) -> None:
    if len(data) < HEADER_SIZE:
        raise damaged(file, f"{len(data)} bytes are fewer than the header")
    magic, version, header_size, file_size, reserved, digest = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise damaged(file, "does not start with the magic of dispatch data")
    check_version(file, version)
    if file_size != len(data):
        raise damaged(file, f"has {len(data)} bytes, its header states {file_size}")
    if file_size > SIZE_LIMIT:
        raise damaged(file, f"has {file_size} bytes, {SIZE_LIMIT} are allowed")
    if (header_size, reserved) != (HEADER_SIZE, 0):
        raise damaged(file, "has a header that format 1 does not allow")
    if hashlib.sha256(data[HEADER_SIZE:]).digest() != digest:
        raise damaged(file, "does not match its SHA-256")


def _table(io: Stream, table: DispatchTable) -> DispatchTable:
    """Reads or writes the body."""
    archs = io.items(
        "u16", "the arch count", lambda arch: io.string("an arch", arch), table.archs, 1, ARCH_LIMIT
    )
    _ascending(io, archs, "archs")
    containers = io.items(
        "u16", "the container count", lambda c: _container(io, c), table.containers, 1, CONTAINER_LIMIT
    )
    _ascending(io, [container.file for container in containers], "containers")
    operators = io.items(
        "u16", "the operator count", lambda o: _operator(io, o), table.operators, 1, OPERATOR_LIMIT
    )
    _ascending(io, [operator.name for operator in operators], "operators")
    known = DispatchTable(archs=archs, containers=containers, operators=operators, kernels=())
    kernels = io.items(
        "u16", "the kernel count", lambda k: _kernel(io, known, k), table.kernels, 1, KERNEL_LIMIT
    )

    def gate(served: ServedGate) -> ServedGate:
        name = io.string("a gate", served.gate)
        return ServedGate(gate=name, arch=io.one_of("u16", "an arch index", archs, served.arch))

    gates = io.items("u16", "the gate count", gate, table.gates, 0, GATE_LIMIT)
    _ascending(io, gates, "gates")
    return replace(known, kernels=kernels, gates=gates)


def _container(io: Stream, container: DispatchContainer) -> DispatchContainer:
    file = io.string("a container", container.file)
    if not FILE_NAME.fullmatch(file):
        raise io.error(f"{file!r} is not a valid file name of a pack")
    return DispatchContainer(file=file, identity=io.raw(32, "a container ID", container.identity))


def _operator(io: Stream, operator: Operator) -> Operator:
    name = io.string("an operator", operator.name)

    def value(declared: Value) -> Value:
        label = io.string("an operator value", declared.name)
        return Value(name=label, type=io.one_of("u8", "a type", TYPES, declared.type))

    values = io.items("u16", f"the value count of {name}", value, operator.values, 1, VALUE_LIMIT)
    if len({value.name for value in values}) != len(values):
        raise io.error(f"operator {name} has two values of one name")
    return Operator(name=name, values=values)


def _value(io: Stream, operator: Operator, name: str, allowed: Sequence[ValueType] = INTEGERS) -> str:
    """The name of a value of the operator, which has one of the allowed types."""
    named: Any = UNREAD
    if name is not UNREAD and not (named := next((v for v in operator.values if v.name == name), None)):
        raise io.error(f"{name} is not a value of operator {operator.name}")
    value: Value = io.one_of("u16", "a value index", operator.values, named)
    if value.type not in allowed:
        raise io.error(
            f"value {value.name} of {operator.name} has type {value.type}, which does not fit here"
        )
    return value.name


def _kernel(io: Stream, table: DispatchTable, kernel: DispatchKernel) -> DispatchKernel:
    name = io.string("a kernel", kernel.name)
    names = [entry.name for entry in table.operators]
    operator = table.operators[names.index(io.one_of("u16", "an operator index", names, kernel.operator))]
    step = io.integer("u8", "a step", kernel.step)
    files = [entry.file for entry in table.containers]
    container = io.one_of("u16", "a container index", files, kernel.container)
    keys = io.items(
        "u8", f"the key count of {name}", lambda key: _value(io, operator, key), kernel.keys, 0, KEY_LIMIT
    )
    ladder = io.integer("u8", f"the ladder flag of {name}", kernel.ladder, 0, min(len(keys), 1))

    def parameter(pair: Any) -> tuple[ValueType, str]:
        given, value = (UNREAD, UNREAD) if pair is UNREAD else pair
        type_ = io.one_of("u8", "a type", TYPES, given)
        return type_, _value(io, operator, value, INTEGERS if type_ in INTEGERS else (type_,))

    def predicate_list(predicates: Iterable[Predicate]) -> tuple[Predicate, ...]:
        return io.items("u8", "the predicate count", lambda p: _predicate(io, operator, p), predicates)

    def functional(row: DispatchFunctional) -> DispatchFunctional:
        arch = io.one_of("u16", "an arch index", table.archs, row.arch)
        numbers = tuple(row.key) or [UNREAD] * len(keys)
        key = tuple(io.integer("i64", f"a key value of {name}", number) for number in numbers)
        choices = io.items(
            "u16", "the choice count", lambda c: _choice(io, operator, lists, c), row.choices, 1, CHOICE_LIMIT
        )
        return DispatchFunctional(arch=arch, key=key, choices=choices)

    parameters = io.items(
        "u16", f"the parameter count of {name}", parameter, kernel.parameters, 0, PARAMETER_LIMIT
    )
    nulls = io.integer("u8", f"the null pointer count of {name}", kernel.null_pointers, 0, NULL_POINTER_LIMIT)
    # in the order of their first choices: hundreds of choices have one of a few
    used = dict.fromkeys(choice.predicates for row in kernel.functionals for choice in row.choices)
    lists = io.items("u16", f"the predicate list count of {name}", predicate_list, used)
    functionals = io.items("u32", f"the functional count of {name}", functional, kernel.functionals)
    _ascending(io, [(table.archs.index(f.arch), f.key) for f in functionals], f"functionals of {name}")
    return DispatchKernel(
        name=name,
        operator=operator.name,
        step=step,
        container=container,
        keys=keys,
        ladder=bool(ladder),
        parameters=parameters,
        null_pointers=nulls,
        functionals=functionals,
    )


def _choice(
    io: Stream, operator: Operator, lists: Sequence[tuple[Predicate, ...]], choice: DispatchChoice
) -> DispatchChoice:
    image = io.integer("u32", "an image index", choice.image)
    symbol = io.string("a symbol", choice.symbol)
    shared = io.integer("u32", f"shared memory of {symbol}", choice.dynamic_shared_bytes, 0, SHARED_LIMIT)
    threads = io.integer("u16", f"threads per workgroup of {symbol}", choice.threads, 1, THREAD_LIMIT)
    predicates = io.one_of("u16", "a predicate list index", lists, choice.predicates)
    given = tuple(choice.grid)
    if len(given) > 3:
        raise io.error(f"a grid of {symbol} has {len(given)} axes")
    axes: tuple[Any, ...] = (*given, (), (), ())[:3]
    counts = [io.integer("u8", "a term count", len(axis), 0, TERM_LIMIT) for axis in axes]
    grid = tuple(
        tuple(_term(io, operator, term) for term in axis or [UNREAD] * count)
        for axis, count in zip(axes, counts, strict=True)
    )
    return DispatchChoice(
        image=image,
        symbol=symbol,
        dynamic_shared_bytes=shared,
        threads=threads,
        predicates=predicates,
        grid=grid,
    )


def _term(io: Stream, operator: Operator, term: GridTerm) -> GridTerm:
    value = _value(io, operator, term.value)
    return GridTerm(value=value, divisor=io.integer("u32", "a divisor", term.divisor, 1))


def _predicate(io: Stream, operator: Operator, predicate: Predicate) -> Predicate:
    kind = io.one_of("u8", "a predicate kind", KINDS, predicate.kind)
    names = io.items(
        "u8", "the value count of a predicate", lambda v: _value(io, operator, v, PREDICATE_TYPES),
        predicate.values, 1, FACTOR_LIMIT,
    )  # fmt: skip
    low = io.integer("i64", "a predicate bound", predicate.low)
    high = io.integer("i64", "a predicate bound", predicate.high)
    types = {value.name: value.type for value in operator.values}
    if any(types[name] == "ptr" for name in names) and (kind == "range" or len(names) > 1):
        raise io.error(f"a {kind} of {' * '.join(names)}: a pointer is allowed in a multiple alone")
    checked = Predicate(values=names, kind=kind, low=low, high=high)
    if kind == "multiple" and not _is_divisor(checked):
        raise io.error(f"{' * '.join(names)} a multiple of {low}, {high}")
    return checked


def _is_divisor(predicate: Predicate) -> bool:
    limit = PRODUCT_DIVISOR_LIMIT if len(predicate.values) > 1 else 2**63 - 1
    return 1 <= predicate.low <= limit and predicate.high == 0


def _ascending(stream: Stream, entries: Sequence[Any], what: str) -> None:
    if any(first >= second for first, second in pairwise(entries)):
        raise stream.error(f"{what} are out of order")


def _check_steps(stream: Stream, kernels: tuple[DispatchKernel, ...]) -> None:
    """Kernels sorted by (operator, step); steps of an operator 0, 1, 2, ... without a gap."""
    operator, step = "", 0
    for kernel in kernels:
        step = step + 1 if kernel.operator == operator else 0
        if kernel.operator < operator or kernel.step != step:
            raise stream.error(
                f"kernel {kernel.name} is step {kernel.step} of {kernel.operator}, out of order or with a gap"
            )
        operator = kernel.operator
