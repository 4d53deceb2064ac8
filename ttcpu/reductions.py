"""tt.reduce and tt.scan: a region of scalar operations combines the elements along one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import elementwise
from .constants import constant_value
from .context import Context, unsupported
from .lanes import Lanes, full, uniform, vector_llvm
from .llvm_ir import Value, Variable, integer
from .mlir import Operation, Region
from .tensors import Buffer, Index, Tensor

_TOGETHER = 4
"""Combinations that are formed side by side: each waits for the one before it."""


def lower_reduce(ctx: Context, operation: Operation) -> None:
    """Partial results in a vector, combined at the end, or along another axis a vector of results."""
    axis = operation.integer("axis")
    tensors = [ctx.tensor(operand) for operand in operation.operands]
    shape = tensors[0].shape
    outer = shape[:axis] + shape[axis + 1 :]
    if not outer:
        lanes = _along_lanes(ctx, operation, tensors, (), axis)
        for result, value in zip(operation.results, lanes, strict=True):
            ctx.values[result.name] = value.value
        return
    buffers = [ctx.new_buffer(outer, tensor.element) for tensor in tensors]
    if axis == len(shape) - 1:
        with ctx.rows(outer) as index:
            _store(ctx, buffers, index, _along_lanes(ctx, operation, tensors, index, axis))
    else:
        with ctx.nest(outer) as (index, along, width):
            _store(ctx, buffers, index, _across_lanes(ctx, operation, tensors, (index, along, width), axis))
    for result, buffer in zip(operation.results, buffers, strict=True):
        ctx.values[result.name] = ctx.buffered(buffer)


def _store(ctx: Context, buffers: Sequence[Buffer], index: Index, values: Sequence[Lanes]) -> None:
    for buffer, value in zip(buffers, values, strict=True):
        ctx.write(buffer, index, value)


def _along_lanes(
    ctx: Context, operation: Operation, tensors: Sequence[Tensor], outer: Index, axis: int
) -> list[Lanes]:
    """One result: partial results in the lanes of a vector, then halves of the vector are combined."""
    width = min(ctx.machine.lanes, tensors[0].shape[axis])

    def at(position: Value) -> list[Lanes]:
        index = (*outer[:axis], position, *outer[axis:])
        return [ctx.evaluate(tensor, index, axis, width) for tensor in tensors]

    lanes = _folded(ctx, operation, at, tensors, tensors[0].shape[axis] // width, width)
    values = [lane.vector(ctx.b) for lane in lanes]
    while width > 1:
        width //= 2
        halves = [
            [
                full(t.element, ctx.b.shuffle(v, v, range(start, start + width)))
                for t, v in zip(tensors, values, strict=True)
            ]
            for start in (0, width)
        ]
        values = [lane.vector(ctx.b) for lane in combine(ctx, operation.regions[0], halves[0], halves[1])]
    return [uniform(tensor.element, 1, value) for tensor, value in zip(tensors, values, strict=True)]


def _across_lanes(
    ctx: Context, operation: Operation, tensors: Sequence[Tensor], place: tuple[Index, int, int], axis: int
) -> list[Lanes]:
    """A vector of results, each along its own column."""
    outer, along, width = place
    lane_axis = along if along < axis else along + 1

    def at(position: Value) -> list[Lanes]:
        index = (*outer[:axis], position, *outer[axis:])
        return [ctx.evaluate(tensor, index, lane_axis, width) for tensor in tensors]

    return _folded(ctx, operation, at, tensors, tensors[0].shape[axis], 1)


def _folded(
    ctx: Context,
    operation: Operation,
    at: Callable[[Value], list[Lanes]],
    tensors: Sequence[Tensor],
    turns: int,
    step: int,
) -> list[Lanes]:
    """The combination of `turns` groups of lanes; group i begins at position i * step."""
    b, region = ctx.b, operation.regions[0]
    together = _TOGETHER if turns >= 2 * _TOGETHER and turns % _TOGETHER == 0 else 1
    sums = []
    for chain in range(together):
        first = at(integer(chain * step))
        types = [vector_llvm(tensor.element, first[0].width) for tensor in tensors]
        sums.append([b.variable(t, lane.vector(b)) for t, lane in zip(types, first, strict=True)])
    if turns > together:
        with b.loop(turns - together, together) as number, ctx.block():
            for chain, totals in enumerate(sums):
                place = b.add(b.mul(number, integer(step)), integer((together + chain) * step))
                combined = combine(ctx, region, _read(ctx, totals, tensors), at(place))
                for total, lane in zip(totals, combined, strict=True):
                    b.set(total, lane.vector(b))
    combined = _read(ctx, sums[0], tensors)
    for totals in sums[1:]:
        combined = combine(ctx, region, combined, _read(ctx, totals, tensors))
    return combined


def _read(ctx: Context, variables: Sequence[Variable], tensors: Sequence[Tensor]) -> list[Lanes]:
    return [full(tensor.element, ctx.b.get(v)) for v, tensor in zip(variables, tensors, strict=True)]


def lower_scan(ctx: Context, operation: Operation) -> None:
    """Element by element along the axis; other axes in vectors where the scanned one is not the last."""
    axis, reverse = operation.integer("axis"), operation.boolean("reverse")
    tensors = [ctx.tensor(operand) for operand in operation.operands]
    shape = tensors[0].shape
    buffers = [ctx.new_buffer(shape, tensor.element) for tensor in tensors]
    outer = shape[:axis] + shape[axis + 1 :]
    if axis == len(shape) - 1:
        with ctx.rows(outer) as index:
            _scan(ctx, operation, tensors, buffers, (index, axis, 1), axis, reverse=reverse)
    else:
        with ctx.nest(outer) as (index, along, width):
            place = (index, along if along < axis else along + 1, width)
            _scan(ctx, operation, tensors, buffers, place, axis, reverse=reverse)
    for result, buffer in zip(operation.results, buffers, strict=True):
        ctx.values[result.name] = ctx.buffered(buffer)


def _scan(
    ctx: Context, operation: Operation, tensors: Sequence[Tensor], buffers: Sequence[Buffer],
    place: tuple[Index, int, int], axis: int, *, reverse: bool,
) -> None:  # fmt: skip
    b = ctx.b
    outer, lane_axis, width = place
    size = tensors[0].shape[axis]

    def index_at(number: Value) -> Index:
        position = b.binary("sub", integer(size - 1), number) if reverse else number
        return (*outer[:axis], position, *outer[axis:])

    def at(number: Value) -> list[Lanes]:
        return [ctx.evaluate(tensor, index_at(number), lane_axis, width) for tensor in tensors]

    first = at(integer(0))
    totals = [
        b.variable(vector_llvm(t.element, width), lane.vector(b))
        for t, lane in zip(tensors, first, strict=True)
    ]
    _store(ctx, buffers, index_at(integer(0)), first)
    if size == 1:
        return
    with b.loop(size - 1) as number, ctx.block():
        here = b.add(number, integer(1))
        combined = combine(ctx, operation.regions[0], _read(ctx, totals, tensors), at(here))
        for total, lane in zip(totals, combined, strict=True):
            b.set(total, lane.vector(b))
        _store(ctx, buffers, index_at(here), combined)


def combine(ctx: Context, region: Region, left: Sequence[Lanes], right: Sequence[Lanes]) -> list[Lanes]:
    """The region's results for vectors of its arguments."""
    block = region.entry
    known: dict[str, Lanes] = {
        argument.name: lanes for argument, lanes in zip(block.arguments, [*left, *right], strict=True)
    }
    width = left[0].width

    def value(name: str, of: Operation, number: int) -> Lanes:
        if name in known:
            return known[name]
        outer = ctx.values[name]
        if not isinstance(outer, Value):
            raise unsupported(of, "of a tensor inside a combining function")
        return uniform(ctx.type_of(of.operands[number]).element, width, outer)

    for operation in block.operations[:-1]:
        if operation.name == "arith.constant":
            element = ctx.type_of(operation.results[0]).element
            known[operation.results[0].name] = uniform(element, width, constant_value(operation, element))
            continue
        if operation.name not in elementwise.ELEMENTWISE:
            raise unsupported(operation, "inside a combining function")
        lanes = [value(operand.name, operation, n) for n, operand in enumerate(operation.operands)]
        element = ctx.type_of(operation.results[0]).element
        known[operation.results[0].name] = elementwise.compute(
            ctx.b, ctx.machine.contract, operation, element, lanes
        )
    last = block.operations[-1]
    return [value(operand.name, last, n) for n, operand in enumerate(last.operands)]
