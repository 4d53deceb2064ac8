"""The dispatch data (`dispatch.aotd`) as bytes; layout and bounds in docs/image-pack-format.md."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

from aotforge.pack.binary import Writer
from aotforge.pack.model import FORMAT, DispatchChoice, DispatchKernel, DispatchTable
from aotforge.plan.model import GridTerm, Predicate
from aotforge.rules import Operator, ValueType

MAGIC = b"AOTFDSP\n"
HEADER = struct.Struct("<8sIIQQ32s")
HEADER_SIZE = 64
SIZE_LIMIT = 64 * 1024 * 1024
ARCH_LIMIT = 64
CONTAINER_LIMIT = 1024
OPERATOR_LIMIT = 256
VALUE_LIMIT = 512
KERNEL_LIMIT = 1024
KEY_LIMIT = 32
PARAMETER_LIMIT = 256
NULL_POINTER_LIMIT = 8
CHOICE_LIMIT = 256
LDS_LIMIT = 160 * 1024
THREAD_LIMIT = 1024
TERM_LIMIT = 4
TYPES: tuple[ValueType, ...] = ("ptr", "i32", "i64", "u64", "f32")
INTEGERS: tuple[ValueType, ...] = ("i32", "i64", "u64")
KINDS = ("multiple", "range")


def encode_dispatch(table: DispatchTable, *, file: str) -> bytes:
    """The file's bytes; the table's sequences are in the format's order already. Raises PackError when a bound is exceeded."""
    out = Writer(file=file)
    out.integer("u16", len(table.archs), "the arch count", 1, ARCH_LIMIT)
    for arch in table.archs:
        out.string(arch, "arch")
    out.integer("u16", len(table.containers), "the container count", 1, CONTAINER_LIMIT)
    for container in table.containers:
        out.string(container.file, "container")
        out.raw(container.identity)
    out.integer("u16", len(table.operators), "the operator count", 1, OPERATOR_LIMIT)
    for operator in table.operators:
        _operator(out, operator)
    out.integer("u16", len(table.kernels), "the kernel count", 1, KERNEL_LIMIT)
    names = [operator.name for operator in table.operators]
    containers = [container.file for container in table.containers]
    for kernel in table.kernels:
        operator_index = names.index(kernel.operator)
        values = {value.name: i for i, value in enumerate(table.operators[operator_index].values)}
        out.string(kernel.name, "kernel")
        out.integer("u16", operator_index, "an operator index")
        out.integer("u8", kernel.step, "a step")
        out.integer("u16", containers.index(kernel.container), "a container index")
        _kernel(out, kernel, values, table.archs)
    body = out.bytes()
    if HEADER_SIZE + len(body) > SIZE_LIMIT:
        raise out.unfit(f"{HEADER_SIZE + len(body)} bytes, {SIZE_LIMIT} are allowed")
    return (
        HEADER.pack(MAGIC, FORMAT, HEADER_SIZE, HEADER_SIZE + len(body), 0, hashlib.sha256(body).digest())
        + body
    )


def _operator(out: Writer, operator: Operator) -> None:
    out.string(operator.name, "operator")
    out.integer("u16", len(operator.values), f"the value count of {operator.name}", 1, VALUE_LIMIT)
    for value in operator.values:
        out.string(value.name, "operator value")
        out.integer("u8", TYPES.index(value.type), "a type")


def _kernel(out: Writer, kernel: DispatchKernel, values: Mapping[str, int], archs: tuple[str, ...]) -> None:
    out.integer("u8", len(kernel.keys), f"the key count of {kernel.name}", 0, KEY_LIMIT)
    for key in kernel.keys:
        out.integer("u16", _index(out, values, key, kernel), "a value index")
    out.integer("u16", len(kernel.parameters), f"the parameter count of {kernel.name}", 0, PARAMETER_LIMIT)
    for type_, value in kernel.parameters:
        out.integer("u8", TYPES.index(type_), "a type")
        out.integer("u16", _index(out, values, value, kernel), "a value index")
    out.integer("u8", kernel.null_pointers, f"the null pointer count of {kernel.name}", 0, NULL_POINTER_LIMIT)
    out.integer("u32", len(kernel.functionals), f"the functional count of {kernel.name}")
    for functional in kernel.functionals:
        out.integer("u16", archs.index(functional.arch), "an arch index")
        for number in functional.key:
            out.integer("i64", number, f"a key value of {kernel.name}")
        out.integer("u16", len(functional.choices), f"the choice count of {kernel.name}", 1, CHOICE_LIMIT)
        for choice in functional.choices:
            _choice(out, choice, values, kernel)


def _choice(out: Writer, choice: DispatchChoice, values: Mapping[str, int], kernel: DispatchKernel) -> None:
    out.integer("u32", choice.image, "an image index")
    out.string(choice.symbol, "symbol")
    out.integer("u32", choice.dynamic_lds_bytes, f"dynamic LDS of {choice.symbol}", 0, LDS_LIMIT)
    out.integer("u16", choice.threads, f"threads per workgroup of {choice.symbol}", 1, THREAD_LIMIT)
    out.integer("u8", len(choice.predicates), f"the predicate count of {choice.symbol}")
    for predicate in choice.predicates:
        _predicate(out, predicate, values, kernel)
    if len(choice.grid) > 3:
        raise out.unfit(f"a grid of {kernel.name} has {len(choice.grid)} axes")
    axes: tuple[tuple[GridTerm, ...], ...] = (*choice.grid, (), (), ())[:3]
    for axis in axes:
        out.integer("u8", len(axis), f"the term count of {kernel.name}", 0, TERM_LIMIT)
    for axis in axes:
        for term in axis:
            out.integer("u16", _index(out, values, term.value, kernel), "a value index")
            out.integer("u32", term.divisor, "a divisor", 1)


def _predicate(out: Writer, predicate: Predicate, values: Mapping[str, int], kernel: DispatchKernel) -> None:
    if predicate.kind == "multiple" and (predicate.low < 1 or predicate.high != 0):
        raise out.unfit(
            f"predicate of {kernel.name}: {predicate.value} a multiple of {predicate.low}, {predicate.high}"
        )
    out.integer("u8", KINDS.index(predicate.kind), "a predicate kind")
    out.integer("u16", _index(out, values, predicate.value, kernel), "a value index")
    out.integer("i64", predicate.low, "a predicate bound")
    out.integer("i64", predicate.high, "a predicate bound")


def _index(out: Writer, values: Mapping[str, int], name: str, kernel: DispatchKernel) -> int:
    if name not in values:
        raise out.unfit(
            f"kernel {kernel.name} uses {name}, which is not a value of operator {kernel.operator}"
        )
    return values[name]
