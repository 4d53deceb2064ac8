"""Operations that move elements: splat, broadcast, transpose, reshape, join, gather, histogram."""

from __future__ import annotations

from dataclasses import replace

from .context import Context
from .element_types import TensorType
from .lanes import Lanes, arithmetic, full, uniform
from .llvm_ir import Value, integer
from .mlir import Operation
from .tensors import Buffer, Index, Tensor, merged_reads


def lower_splat(ctx: Context, operation: Operation) -> None:
    """tt.splat: one scalar everywhere."""
    (result,) = operation.results
    ctx.values[result.name] = ctx.constant_tensor(ctx.type_of(result), ctx.scalar(operation.operands[0]))


def lower_unsplat(ctx: Context, operation: Operation) -> None:
    """tt.unsplat: the scalar of a tensor of one element."""
    tensor = ctx.tensor(operation.operands[0])
    lanes = ctx.evaluate(tensor, tuple(integer(0) for _ in tensor.shape), 0, 1)
    ctx.values[operation.results[0].name] = lanes.value


def lower_make_range(ctx: Context, operation: Operation) -> None:
    """tt.make_range: consecutive numbers."""
    (result,) = operation.results
    ctx.values[result.name] = ctx.range_tensor(ctx.type_of(result), operation.integer("start"))


def lower_expand_dims(ctx: Context, operation: Operation) -> None:
    """tt.expand_dims: a new axis of size 1."""
    new = operation.integer("axis")
    source = ctx.tensor(operation.operands[0])
    ctx.values[operation.results[0].name] = _with_unit_axes(
        ctx, ctx.type_of(operation.results[0]), source, (new,)
    )


def _with_unit_axes(ctx: Context, type_: TensorType, source: Tensor, new: tuple[int, ...]) -> Tensor:
    """`source` with more axes of size 1, whose numbers in the result are `new`."""
    assert type_.shape is not None
    kept = [axis for axis in range(len(type_.shape)) if axis not in new]

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        where = tuple(index[old] for old in kept)
        along = kept.index(axis) if axis in kept else len(kept) - 1
        return ctx.evaluate(source, where, along, width)

    return Tensor(
        type=type_,
        evaluate=evaluate,
        cost=source.cost,
        reads=merged_reads(source),
        natural=kept[source.natural],
        steps=lambda axis: source.steps(kept.index(axis)) if axis in kept else 0,
    )


def lower_broadcast(ctx: Context, operation: Operation) -> None:
    """tt.broadcast: axes of size 1 are repeated."""
    (result,) = operation.results
    type_ = ctx.type_of(result)
    source = ctx.tensor(operation.operands[0])
    assert type_.shape is not None
    repeated = [a != b for a, b in zip(source.shape, type_.shape, strict=True)]

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        where = tuple(integer(0) if again else i for i, again in zip(index, repeated, strict=True))
        if not repeated[axis]:
            return ctx.evaluate(source, where, axis, width)
        return uniform(type_.element, width, ctx.evaluate(source, where, axis, 1).vector(ctx.b))

    ctx.values[result.name] = Tensor(
        type=type_,
        evaluate=evaluate,
        cost=source.cost,
        reads=merged_reads(source, aligned=False),
        natural=len(type_.shape) - 1 if repeated[source.natural] else source.natural,
        steps=lambda axis: 0 if repeated[axis] else source.steps(axis),
    )


def lower_trans(ctx: Context, operation: Operation) -> None:
    """tt.trans: axis i of the result is axis order[i]; evaluating along the source's axis costs nothing."""
    (result,) = operation.results
    order = operation.integers("order")
    source = ctx.tensor(operation.operands[0])

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        where = [integer(0)] * len(order)
        for place, old in zip(index, order, strict=True):
            where[old] = place
        return ctx.evaluate(source, tuple(where), order[axis], width)

    ctx.values[result.name] = Tensor(
        type=ctx.type_of(result),
        evaluate=evaluate,
        cost=source.cost,
        reads=merged_reads(source, aligned=False),
        natural=order.index(source.natural),
        steps=lambda axis: source.steps(order[axis]),
    )


def lower_reshape(ctx: Context, operation: Operation) -> None:
    """tt.reshape: the same row-major memory in another shape; axes of size 1 come without one."""
    (result,) = operation.results
    type_ = ctx.type_of(result)
    source = ctx.tensor(operation.operands[0])
    assert type_.shape is not None
    if type_.shape == source.shape:
        ctx.values[result.name] = source
        return
    new = [axis for axis, size in enumerate(type_.shape) if size == 1]
    if len(type_.shape) > len(source.shape) and [s for s in type_.shape if s != 1] == list(source.shape):
        ctx.values[result.name] = _with_unit_axes(ctx, type_, source, tuple(new))
        return
    stored = ctx.materialise(source)
    assert stored.buffer is not None
    view = replace(stored.buffer, shape=type_.shape)
    ctx.values[result.name] = replace(
        ctx.buffered(view), reads={view: True, stored.buffer: False, **dict.fromkeys(stored.reads, False)}
    )


def lower_join(ctx: Context, operation: Operation) -> None:
    """tt.join: pairs along a new last axis."""
    b = ctx.b
    (result,) = operation.results
    type_ = ctx.type_of(result)
    left, right = (ctx.tensor(operand) for operand in operation.operands)
    last = len(left.shape)

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        if axis != last or width == 1:
            along = axis if axis != last else last - 1
            both = [ctx.evaluate(t, index[:last], along, width).vector(b) for t in (left, right)]
            is_left = b.compare("icmp eq", index[last], integer(0))
            return full(type_.element, b.select(is_left, both[0], both[1]))
        both = [ctx.evaluate(t, index[:last], last - 1, 1).vector(b) for t in (left, right)]
        return full(type_.element, b.per_lane(2, type_.element.llvm, lambda lane: both[lane]))

    joined = Tensor(
        type=type_,
        evaluate=evaluate,
        cost=left.cost + right.cost,
        reads=merged_reads(left, right, aligned=False),
        natural=last,
    )
    ctx.values[result.name] = ctx.materialise(joined)


def lower_split(ctx: Context, operation: Operation) -> None:
    """tt.split: the two halves of pairs along the last axis."""
    source = ctx.materialise(ctx.tensor(operation.operands[0]))
    for number, result in enumerate(operation.results):

        def evaluate(index: Index, axis: int, width: int, number: int = number) -> Lanes:
            return ctx.evaluate(source, (*index, integer(number)), axis, width)

        type_ = ctx.type_of(result)
        half = Tensor(
            type=type_,
            evaluate=evaluate,
            cost=2,
            reads=merged_reads(source, aligned=False),
            natural=len(source.shape) - 2,
        )
        ctx.values[result.name] = ctx.materialise(half)


def lower_cat(ctx: Context, operation: Operation) -> None:
    """tt.cat: one tensor behind the other along the first axis."""
    (result,) = operation.results
    type_ = ctx.type_of(result)
    assert type_.shape is not None
    buffer = ctx.new_buffer(type_.shape, type_.element)
    done = 0
    for operand in operation.operands:
        part = ctx.tensor(operand)
        address = ctx.b.address(buffer.address, buffer.stored, integer(done))
        ctx.fill(Buffer(address=address, shape=part.shape, element=type_.element), part)
        count = 1
        for size in part.shape:
            count *= size
        done += count
    ctx.values[result.name] = ctx.buffered(buffer)


def lower_gather(ctx: Context, operation: Operation) -> None:
    """tt.gather: elements of the source at given numbers along one axis."""
    b = ctx.b
    (result,) = operation.results
    axis = operation.integer("axis")
    source = ctx.materialise(ctx.tensor(operation.operands[0]))
    numbers = ctx.tensor(operation.operands[1])
    type_ = ctx.type_of(result)
    assert type_.shape is not None
    buffer = ctx.new_buffer(type_.shape, type_.element)
    with ctx.nest(type_.shape) as (index, along, width):
        chosen = ctx.evaluate(numbers, index, along, width).vector(b)

        def lane(number: int, index: Index = index, chosen: Value = chosen, along: int = along) -> Value:
            where = list(index)
            where[along] = b.add(index[along], integer(number))
            where[axis] = b.cast("sext", b.extract(chosen, number), "i64")
            return ctx.evaluate(source, tuple(where), len(where) - 1, 1).vector(b)

        ctx.write(buffer, index, full(type_.element, b.per_lane(width, type_.element.llvm, lane)))
    ctx.values[result.name] = ctx.buffered(buffer)


def lower_histogram(ctx: Context, operation: Operation) -> None:
    """tt.histogram: counts of numbers below the result's size; others count nowhere."""
    b = ctx.b
    (result,) = operation.results
    type_ = ctx.type_of(result)
    assert type_.shape is not None
    buffer = ctx.new_buffer(type_.shape, type_.element)
    ctx.fill(buffer, ctx.constant_tensor(type_, integer(0, type_.element.llvm)))
    tensors = [ctx.tensor(operand) for operand in operation.operands]
    with ctx.rows(tensors[0].shape) as index:
        number = ctx.evaluate(tensors[0], index, 0, 1).vector(b)
        wanted = b.compare("icmp ult", number, integer(type_.shape[0], number.type))
        if len(tensors) > 1:
            wanted = b.binary("and", wanted, ctx.evaluate(tensors[1], index, 0, 1).vector(b))
        with b.when(wanted):
            place = b.address(buffer.address, buffer.stored, b.cast("zext", number, "i64"))
            count = b.load(type_.element.llvm, place, buffer.size)
            b.store(b.add(count, integer(1, type_.element.llvm)), place, buffer.size)
    ctx.values[result.name] = ctx.buffered(buffer)


def advanced(ctx: Context, tensor: Tensor, offset: Value) -> Tensor:
    """Integers or pointers of `tensor`, all moved by a scalar (for pointers an i64 number of pointees)."""
    b = ctx.b

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        lanes = ctx.evaluate(tensor, index, axis, width)
        if lanes.is_vector:
            if tensor.element.kind == "ptr":
                assert tensor.element.pointee is not None
                return full(
                    tensor.element,
                    b.address(lanes.value, tensor.element.pointee.stored, b.splat(offset, width)),
                )
            return full(tensor.element, b.add(lanes.value, b.splat(offset, width)))
        if tensor.element.kind == "ptr":
            assert tensor.element.pointee is not None
            start = b.address(lanes.value, tensor.element.pointee.stored, offset)
        else:
            start = b.add(lanes.value, offset)
        return arithmetic(tensor.element, width, start, lanes.step or integer(0))

    return replace(tensor, evaluate=evaluate, buffer=None)
