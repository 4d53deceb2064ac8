"""The dispatch data (`dispatch.aotd`), written and strictly read; see docs/image-pack-format.md."""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from aotforge.pack.binary import FILE_NAME, Cursor, Writer, check_version, damaged
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
    """The file's bytes; the table's sequences are in the format's order already. Raises PackError when a
    bound is exceeded."""
    out = Writer(file=file)
    for arch in out.items("u16", table.archs, "the arch count", 1, ARCH_LIMIT):
        out.string(arch, "arch")
    for container in out.items("u16", table.containers, "the container count", 1, CONTAINER_LIMIT):
        out.string(container.file, "container")
        out.raw(container.identity)
    for operator in out.items("u16", table.operators, "the operator count", 1, OPERATOR_LIMIT):
        _write_operator(out, operator)
    names = [operator.name for operator in table.operators]
    containers = [container.file for container in table.containers]
    for kernel in out.items("u16", table.kernels, "the kernel count", 1, KERNEL_LIMIT):
        operator_index = names.index(kernel.operator)
        values = {value.name: i for i, value in enumerate(table.operators[operator_index].values)}
        out.string(kernel.name, "kernel")
        out.integer("u16", operator_index, "an operator index")
        out.integer("u8", kernel.step, "a step")
        out.integer("u16", containers.index(kernel.container), "a container index")
        _write_kernel(out, kernel, values, table.archs)
    for gate in out.items("u16", table.gates, "the gate count", 0, GATE_LIMIT):
        out.string(gate.gate, "gate")
        out.integer("u16", table.archs.index(gate.arch), "an arch index")
    body = out.bytes()
    if HEADER_SIZE + len(body) > SIZE_LIMIT:
        raise out.unfit(f"{HEADER_SIZE + len(body)} bytes, {SIZE_LIMIT} are allowed")
    digest = hashlib.sha256(body).digest()
    return HEADER.pack(MAGIC, FORMAT, HEADER_SIZE, HEADER_SIZE + len(body), 0, digest) + body


def _write_operator(out: Writer, operator: Operator) -> None:
    out.string(operator.name, "operator")
    for value in out.items("u16", operator.values, f"the value count of {operator.name}", 1, VALUE_LIMIT):
        out.string(value.name, "operator value")
        out.integer("u8", TYPES.index(value.type), "a type")


def _write_kernel(
    out: Writer, kernel: DispatchKernel, values: Mapping[str, int], archs: tuple[str, ...]
) -> None:
    for key in out.items("u8", kernel.keys, f"the key count of {kernel.name}", 0, KEY_LIMIT):
        out.integer("u16", _index(out, values, key, kernel), "a value index")
    out.integer("u8", int(kernel.ladder), f"the ladder flag of {kernel.name}", 0, min(len(kernel.keys), 1))
    parameters = out.items(
        "u16", kernel.parameters, f"the parameter count of {kernel.name}", 0, PARAMETER_LIMIT
    )
    for type_, value in parameters:
        out.integer("u8", TYPES.index(type_), "a type")
        out.integer("u16", _index(out, values, value, kernel), "a value index")
    out.integer("u8", kernel.null_pointers, f"the null pointer count of {kernel.name}", 0, NULL_POINTER_LIMIT)
    lists = _predicate_lists(kernel)
    for predicates in out.items("u16", list(lists), f"the predicate list count of {kernel.name}"):
        for predicate in out.items("u8", predicates, f"a predicate count of {kernel.name}"):
            _write_predicate(out, predicate, values, kernel)
    for functional in out.items("u32", kernel.functionals, f"the functional count of {kernel.name}"):
        out.integer("u16", archs.index(functional.arch), "an arch index")
        for number in functional.key:
            out.integer("i64", number, f"a key value of {kernel.name}")
        for choice in out.items(
            "u16", functional.choices, f"the choice count of {kernel.name}", 1, CHOICE_LIMIT
        ):
            _write_choice(out, choice, lists[choice.predicates], values, kernel)


def _predicate_lists(kernel: DispatchKernel) -> dict[tuple[Predicate, ...], int]:
    """Number of each list of predicates, in the order of their first choices: hundreds of choices have one of
    a few."""
    lists = (choice.predicates for functional in kernel.functionals for choice in functional.choices)
    return {predicates: number for number, predicates in enumerate(dict.fromkeys(lists))}


def _write_choice(
    out: Writer,
    choice: DispatchChoice,
    predicate_list: int,
    values: Mapping[str, int],
    kernel: DispatchKernel,
) -> None:
    out.integer("u32", choice.image, "an image index")
    out.string(choice.symbol, "symbol")
    out.integer("u32", choice.dynamic_shared_bytes, f"shared memory of {choice.symbol}", 0, SHARED_LIMIT)
    out.integer("u16", choice.threads, f"threads per workgroup of {choice.symbol}", 1, THREAD_LIMIT)
    out.integer("u16", predicate_list, "a predicate list index")
    if len(choice.grid) > 3:
        raise out.unfit(f"a grid of {kernel.name} has {len(choice.grid)} axes")
    axes: tuple[tuple[GridTerm, ...], ...] = (*choice.grid, (), (), ())[:3]
    for axis in axes:
        out.integer("u8", len(axis), f"the term count of {kernel.name}", 0, TERM_LIMIT)
    for axis in axes:
        for term in axis:
            out.integer("u16", _index(out, values, term.value, kernel), "a value index")
            out.integer("u32", term.divisor, "a divisor", 1)


def _write_predicate(
    out: Writer, predicate: Predicate, values: Mapping[str, int], kernel: DispatchKernel
) -> None:
    what = f"a predicate of {kernel.name}"
    out.integer("u8", KINDS.index(predicate.kind), "a predicate kind")
    for value in out.items("u8", predicate.values, f"the value count of {what}", 1, FACTOR_LIMIT):
        out.integer("u16", _index(out, values, value, kernel), "a value index")
    if predicate.kind == "multiple" and not _is_divisor(predicate):
        raise out.unfit(f"{what}: {predicate.values} a multiple of {predicate.low}, {predicate.high}")
    out.integer("i64", predicate.low, "a predicate bound")
    out.integer("i64", predicate.high, "a predicate bound")


def _index(out: Writer, values: Mapping[str, int], name: str, kernel: DispatchKernel) -> int:
    if name not in values:
        raise out.unfit(
            f"kernel {kernel.name} uses {name}, which is not a value of operator {kernel.operator}"
        )
    return values[name]


def decode_dispatch(data: bytes, *, file: str) -> DispatchTable:
    """The table that the file holds. Raises PackError naming `file`, the reason and the offset."""
    _header(data, file)
    cursor = Cursor(data, file=file, start=HEADER_SIZE)
    archs = cursor.items("u16", "the arch count", lambda: cursor.string("an arch"), 1, ARCH_LIMIT)
    _ascending(cursor, archs, "archs")
    containers = cursor.items(
        "u16",
        "the container count",
        lambda: _read_container(cursor),
        1,
        CONTAINER_LIMIT,
    )
    _ascending(cursor, [container.file for container in containers], "containers")
    operators = cursor.items("u16", "the operator count", lambda: _read_operator(cursor), 1, OPERATOR_LIMIT)
    _ascending(cursor, [operator.name for operator in operators], "operators")
    table = DispatchTable(archs=archs, containers=containers, operators=operators, kernels=())
    kernels = cursor.items("u16", "the kernel count", lambda: _read_kernel(cursor, table), 1, KERNEL_LIMIT)
    gates = cursor.items(
        "u16",
        "the gate count",
        lambda: ServedGate(gate=cursor.string("a gate"), arch=cursor.one_of("u16", "an arch index", archs)),
        0,
        GATE_LIMIT,
    )
    _ascending(cursor, gates, "gates")
    cursor.end()
    _check_steps(cursor, kernels)
    return replace(table, kernels=kernels, gates=gates)


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


def _read_container(cursor: Cursor) -> DispatchContainer:
    file = cursor.string("a container")
    if not FILE_NAME.fullmatch(file):
        raise cursor.error(f"{file!r} is not a valid file name of a pack")
    return DispatchContainer(file=file, identity=cursor.take(32, "a container ID"))


def _read_operator(cursor: Cursor) -> Operator:
    name = cursor.string("an operator")

    def value() -> Value:
        return Value(name=cursor.string("an operator value"), type=cursor.one_of("u8", "a type", TYPES))

    values = cursor.items("u16", f"the value count of {name}", value, 1, VALUE_LIMIT)
    if len({value.name for value in values}) != len(values):
        raise cursor.error(f"operator {name} has two values of one name")
    return Operator(name=name, values=values)


def _read_value(cursor: Cursor, operator: Operator, allowed: Sequence[ValueType] = INTEGERS) -> str:
    """The name of a value of the operator, which has one of the allowed types."""
    value = cursor.one_of("u16", "a value index", operator.values)
    if value.type not in allowed:
        raise cursor.error(
            f"value {value.name} of {operator.name} has type {value.type}, which does not fit here"
        )
    return value.name


def _read_kernel(cursor: Cursor, table: DispatchTable) -> DispatchKernel:
    name = cursor.string("a kernel")
    operator = cursor.one_of("u16", "an operator index", table.operators)
    step = cursor.integer("u8", "a step")
    container = cursor.one_of("u16", "a container index", table.containers)
    keys = cursor.items("u8", "the key count", lambda: _read_value(cursor, operator), 0, KEY_LIMIT)

    def parameter() -> tuple[ValueType, str]:
        type_ = cursor.one_of("u8", "a type", TYPES)
        return type_, _read_value(cursor, operator, INTEGERS if type_ in INTEGERS else (type_,))

    def predicate_list() -> tuple[Predicate, ...]:
        return cursor.items("u8", "the predicate count", lambda: _read_predicate(cursor, operator))

    def functionals() -> tuple[DispatchFunctional, ...]:
        lists = cursor.items("u16", "the predicate list count", predicate_list)
        return cursor.items(
            "u32",
            "the functional count",
            lambda: DispatchFunctional(
                arch=cursor.one_of("u16", "an arch index", table.archs),
                key=tuple(cursor.integer("i64", "a key value") for _ in keys),
                choices=cursor.items(
                    "u16", "the choice count", lambda: _read_choice(cursor, operator, lists), 1, CHOICE_LIMIT
                ),
            ),
        )

    # arguments are evaluated in the order of the file
    kernel = DispatchKernel(
        name=name,
        operator=operator.name,
        step=step,
        container=container.file,
        keys=keys,
        ladder=bool(cursor.integer("u8", "a ladder flag", 0, min(len(keys), 1))),
        parameters=cursor.items("u16", "the parameter count", parameter, 0, PARAMETER_LIMIT),
        null_pointers=cursor.integer("u8", "the null pointer count", 0, NULL_POINTER_LIMIT),
        functionals=functionals(),
    )
    _ascending(
        cursor, [(table.archs.index(f.arch), f.key) for f in kernel.functionals], f"functionals of {name}"
    )
    return kernel


def _read_choice(
    cursor: Cursor, operator: Operator, lists: Sequence[tuple[Predicate, ...]]
) -> DispatchChoice:
    def axis(terms: int) -> tuple[GridTerm, ...]:
        return tuple(
            GridTerm(value=_read_value(cursor, operator), divisor=cursor.integer("u32", "a divisor", 1))
            for _ in range(terms)
        )

    return DispatchChoice(
        image=cursor.integer("u32", "an image index"),
        symbol=cursor.string("a symbol"),
        dynamic_shared_bytes=cursor.integer("u32", "dynamic shared memory", 0, SHARED_LIMIT),
        threads=cursor.integer("u16", "threads per workgroup", 1, THREAD_LIMIT),
        predicates=cursor.one_of("u16", "a predicate list index", lists),
        grid=tuple(
            axis(terms) for terms in [cursor.integer("u8", "a term count", 0, TERM_LIMIT) for _ in range(3)]
        ),
    )


def _read_predicate(cursor: Cursor, operator: Operator) -> Predicate:
    kind = cursor.one_of("u8", "a predicate kind", KINDS)
    names = cursor.items(
        "u8",
        "the value count of a predicate",
        lambda: _read_value(cursor, operator, PREDICATE_TYPES),
        1,
        FACTOR_LIMIT,
    )
    low, high = cursor.integer("i64", "a predicate bound"), cursor.integer("i64", "a predicate bound")
    predicate = Predicate(values=names, kind=kind, low=low, high=high)
    types = {value.name: value.type for value in operator.values}
    if any(types[name] == "ptr" for name in names) and (kind == "range" or len(names) > 1):
        raise cursor.error(f"a {kind} of {' * '.join(names)}: a pointer is allowed in a multiple alone")
    if kind == "multiple" and not _is_divisor(predicate):
        raise cursor.error(f"{' * '.join(names)} a multiple of {low}, {high}")
    return predicate


def _is_divisor(predicate: Predicate) -> bool:
    limit = PRODUCT_DIVISOR_LIMIT if len(predicate.values) > 1 else 2**63 - 1
    return 1 <= predicate.low <= limit and predicate.high == 0


def _ascending(cursor: Cursor, entries: Sequence[Any], what: str) -> None:
    if any(first >= second for first, second in pairwise(entries)):
        raise cursor.error(f"{what} are out of order")


def _check_steps(cursor: Cursor, kernels: tuple[DispatchKernel, ...]) -> None:
    """Kernels sorted by (operator, step); steps of an operator 0, 1, 2, ... without a gap."""
    operator, step = "", 0
    for kernel in kernels:
        step = step + 1 if kernel.operator == operator else 0
        if kernel.operator < operator or kernel.step != step:
            raise cursor.error(
                f"kernel {kernel.name} is step {kernel.step} of {kernel.operator}, out of order or with a gap"
            )
        operator = kernel.operator
