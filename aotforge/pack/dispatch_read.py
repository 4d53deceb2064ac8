"""The strict reader of `dispatch.aotd`; bounds in docs/image-pack-format.md."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from aotforge.pack import dispatch as fmt
from aotforge.pack.binary import Cursor, check_version, damaged
from aotforge.pack.model import (
    DispatchChoice,
    DispatchContainer,
    DispatchFunctional,
    DispatchKernel,
    DispatchTable,
)
from aotforge.plan.model import GridTerm, Predicate
from aotforge.rules import Operator, Value, ValueType


def decode_dispatch(data: bytes, *, file: str) -> DispatchTable:
    """The table that the file holds. Raises PackError naming `file`, the reason and the offset.

    Lists grow with what has been read, so no count can request more memory than the file has bytes.
    """
    _header(data, file)
    cursor = Cursor(data, file=file, start=fmt.HEADER_SIZE)
    archs = tuple(
        cursor.string("an arch") for _ in range(cursor.integer("u16", "the arch count", 1, fmt.ARCH_LIMIT))
    )
    _ascending(cursor, archs, "archs")
    containers = tuple(
        DispatchContainer(file=cursor.string("a container"), identity=cursor.take(32, "a container ID"))
        for _ in range(cursor.integer("u16", "the container count", 1, fmt.CONTAINER_LIMIT))
    )
    _ascending(cursor, [container.file for container in containers], "containers")
    operators = tuple(
        _operator(cursor) for _ in range(cursor.integer("u16", "the operator count", 1, fmt.OPERATOR_LIMIT))
    )
    _ascending(cursor, [operator.name for operator in operators], "operators")
    kernels = tuple(
        _kernel(cursor, archs, containers, operators)
        for _ in range(cursor.integer("u16", "the kernel count", 1, fmt.KERNEL_LIMIT))
    )
    cursor.end()
    _steps(cursor, kernels)
    return DispatchTable(archs=archs, containers=containers, operators=operators, kernels=kernels)


def _header(data: bytes, file: str) -> None:
    if len(data) < fmt.HEADER_SIZE:
        raise damaged(file, f"{len(data)} bytes are fewer than the header")
    magic, version, header_size, file_size, reserved, digest = fmt.HEADER.unpack_from(data)
    if magic != fmt.MAGIC:
        raise damaged(file, "does not start with the magic of dispatch data")
    check_version(file, version)
    if file_size != len(data) or file_size > fmt.SIZE_LIMIT:
        raise damaged(file, f"has {len(data)} bytes, its header states {file_size}")
    if (header_size, reserved) != (fmt.HEADER_SIZE, 0):
        raise damaged(file, "has a header that format 1 does not allow")
    if hashlib.sha256(data[fmt.HEADER_SIZE :]).digest() != digest:
        raise damaged(file, "does not match its SHA-256")


def _operator(cursor: Cursor) -> Operator:
    name = cursor.string("an operator")
    values = tuple(
        Value(name=cursor.string("an operator value"), type=_type(cursor))
        for _ in range(cursor.integer("u16", f"the value count of {name}", 1, fmt.VALUE_LIMIT))
    )
    if len({value.name for value in values}) != len(values):
        raise cursor.error(f"operator {name} has two values of one name")
    return Operator(name=name, values=values)


def _type(cursor: Cursor) -> ValueType:
    return fmt.TYPES[cursor.integer("u8", "a type", 0, len(fmt.TYPES) - 1)]


def _value(cursor: Cursor, operator: Operator, allowed: Sequence[ValueType] = fmt.TYPES) -> Value:
    value = operator.values[cursor.integer("u16", "a value index", 0, len(operator.values) - 1)]
    if value.type not in allowed:
        raise cursor.error(
            f"value {value.name} of {operator.name} has type {value.type}, which does not fit here"
        )
    return value


def _kernel(
    cursor: Cursor,
    archs: tuple[str, ...],
    containers: tuple[DispatchContainer, ...],
    operators: tuple[Operator, ...],
) -> DispatchKernel:
    name = cursor.string("a kernel")
    operator = operators[cursor.integer("u16", "an operator index", 0, len(operators) - 1)]
    step = cursor.integer("u8", "a step")
    container = containers[cursor.integer("u16", "a container index", 0, len(containers) - 1)]
    keys = tuple(
        _value(cursor, operator, fmt.INTEGERS).name
        for _ in range(cursor.integer("u8", "the key count", 0, fmt.KEY_LIMIT))
    )
    parameters = tuple(
        _parameter(cursor, operator)
        for _ in range(cursor.integer("u16", "the parameter count", 0, fmt.PARAMETER_LIMIT))
    )
    null_pointers = cursor.integer("u8", "the null pointer count", 0, fmt.NULL_POINTER_LIMIT)
    functionals = tuple(
        _functional(cursor, archs, operator, len(keys))
        for _ in range(cursor.integer("u32", "the functional count"))
    )
    order = [(archs.index(functional.arch), functional.key) for functional in functionals]
    if any(order[i] >= order[i + 1] for i in range(len(order) - 1)):
        raise cursor.error(f"functionals of {name} are out of order")
    return DispatchKernel(
        name=name, operator=operator.name, step=step, container=container.file, keys=keys,
        parameters=parameters, null_pointers=null_pointers, functionals=functionals,
    )  # fmt: skip


def _parameter(cursor: Cursor, operator: Operator) -> tuple[ValueType, str]:
    type_ = _type(cursor)
    return type_, _value(cursor, operator, fmt.INTEGERS if type_ in fmt.INTEGERS else (type_,)).name


def _functional(cursor: Cursor, archs: tuple[str, ...], operator: Operator, keys: int) -> DispatchFunctional:
    arch = archs[cursor.integer("u16", "an arch index", 0, len(archs) - 1)]
    key = tuple(cursor.integer("i64", "a key value") for _ in range(keys))
    choices = tuple(
        _choice(cursor, operator)
        for _ in range(cursor.integer("u16", "the choice count", 1, fmt.CHOICE_LIMIT))
    )
    return DispatchFunctional(arch=arch, key=key, choices=choices)


def _choice(cursor: Cursor, operator: Operator) -> DispatchChoice:
    image = cursor.integer("u32", "an image index")
    symbol = cursor.string("a symbol")
    dynamic_lds_bytes = cursor.integer("u32", "dynamic LDS", 0, fmt.LDS_LIMIT)
    threads = cursor.integer("u16", "threads per workgroup", 1, fmt.THREAD_LIMIT)
    predicates = tuple(
        _predicate(cursor, operator) for _ in range(cursor.integer("u8", "the predicate count"))
    )
    counts = [cursor.integer("u8", "a term count", 0, fmt.TERM_LIMIT) for _ in range(3)]
    grid = tuple(tuple(_term(cursor, operator) for _ in range(count)) for count in counts)
    return DispatchChoice(
        image=image,
        symbol=symbol,
        dynamic_lds_bytes=dynamic_lds_bytes,
        threads=threads,
        predicates=predicates,
        grid=grid,
    )


def _term(cursor: Cursor, operator: Operator) -> GridTerm:
    value = _value(cursor, operator, fmt.INTEGERS)
    return GridTerm(value=value.name, divisor=cursor.integer("u32", "a divisor", 1))


def _predicate(cursor: Cursor, operator: Operator) -> Predicate:
    multiple = cursor.integer("u8", "a predicate kind", 0, 1) == 0
    value = _value(cursor, operator, (*fmt.INTEGERS, "ptr") if multiple else fmt.INTEGERS)
    low, high = cursor.integer("i64", "a predicate bound"), cursor.integer("i64", "a predicate bound")
    if multiple and (low < 1 or high != 0):
        raise cursor.error(f"value {value.name} a multiple of {low}, {high}")
    return Predicate(value=value.name, kind="multiple" if multiple else "range", low=low, high=high)


def _ascending(cursor: Cursor, names: Sequence[str], what: str) -> None:
    if any(names[i] >= names[i + 1] for i in range(len(names) - 1)):
        raise cursor.error(f"{what} are out of order")


def _steps(cursor: Cursor, kernels: tuple[DispatchKernel, ...]) -> None:
    """Kernels sorted by (operator, step); steps of an operator 0, 1, 2, ... without a gap."""
    operator, step = "", 0
    for kernel in kernels:
        step = step + 1 if kernel.operator == operator else 0
        if kernel.operator < operator or kernel.step != step:
            raise cursor.error(
                f"kernel {kernel.name} is step {kernel.step} of {kernel.operator}, out of order or with a gap"
            )
        operator = kernel.operator
