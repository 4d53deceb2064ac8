"""tt.dot: blocked products of row-major operands, with the tile of the result in vector registers."""

from __future__ import annotations

from dataclasses import dataclass

from . import narrow_floats, scaled_products
from .context import Context, unsupported
from .element_types import Element
from .lanes import full
from .llvm_ir import Value, Variable, integer, vector_type
from .mlir import SSA, Operation
from .tensors import Buffer, Index, Tensor


@dataclass(frozen=True, kw_only=True)
class _Operands:
    """Row-major operands and result of one product of (rows, depth) and (depth, columns) matrices, and the tile held in registers."""

    a: Buffer
    b: Buffer
    c: Tensor
    result: Buffer
    element: Element
    rows: int
    columns: int
    depth: int
    tile_rows: int
    vectors: int
    lanes: int


def lower_dot(ctx: Context, operation: Operation) -> None:
    """a b + c, with or without a leading batch axis. Floats are multiplied and added as float32, or float64; integers as int32."""
    a, b, c = (ctx.tensor(operand) for operand in operation.operands)
    if a.element.kind != c.element.kind or (a.element.bits == 64) != (c.element.bits == 64):
        raise unsupported(operation, f"of {a.element.name} into {c.element.name}")
    _lower_product(ctx, operation, a, b, c)


def lower_dot_scaled(ctx: Context, operation: Operation) -> None:
    """The same of numbers that are stored in blocks with a common scale."""
    _lower_product(ctx, operation, *scaled_products.operands(ctx, operation))


def _lower_product(ctx: Context, operation: Operation, a: Tensor, b: Tensor, c: Tensor) -> None:
    (result,) = operation.results
    type_ = ctx.type_of(result)
    assert type_.shape is not None
    stored = [_operand(ctx, tensor, c.element) for tensor in (a, b)]
    in_place = _accumulator(ctx, operation)
    buffer = in_place or ctx.new_buffer(type_.shape, type_.element)
    lanes = min(ctx.machine.lanes, type_.shape[-1])
    operands = _Operands(
        a=stored[0], b=stored[1], c=c, result=buffer, element=type_.element,
        rows=type_.shape[-2], columns=type_.shape[-1], depth=a.shape[-1],
        tile_rows=min(8 if ctx.machine.lanes >= 16 else 4, type_.shape[-2]),
        vectors=min(2, type_.shape[-1] // lanes), lanes=lanes,
    )  # fmt: skip
    with ctx.rows(type_.shape[:-2]) as batch:
        _product(ctx, operands, batch)
    ctx.values[result.name] = ctx.buffered(buffer)


def _operand(ctx: Context, tensor: Tensor, accumulator: Element) -> Buffer:
    """A factor in row-major memory, as the numbers that are multiplied: float32, float64 or the accumulator's integers."""
    if tensor.element.kind == "int" and tensor.element != accumulator:
        widened = ctx.new_buffer(tensor.shape, accumulator)
        with ctx.nest(tensor.shape) as (index, axis, width):
            value = ctx.b.cast(
                "sext", ctx.evaluate(tensor, index, axis, width).vector(ctx.b), accumulator.llvm
            )
            ctx.write(widened, index, full(accumulator, value))
        return widened
    buffer = ctx.materialise(tensor, wide=True).buffer
    assert buffer is not None
    return buffer


def _product(ctx: Context, o: _Operands, batch: Index) -> None:
    b = ctx.b
    with b.loop(o.rows, o.tile_rows) as row, b.loop(o.columns, o.vectors * o.lanes) as column, ctx.block():
        places = [
            (*batch, b.add(row, integer(i)), b.add(column, integer(j * o.lanes)))
            for i in range(o.tile_rows)
            for j in range(o.vectors)
        ]
        along = len(batch) + 1
        type_ = vector_type(o.element.llvm, o.lanes)
        sums = [b.variable(type_, ctx.evaluate(o.c, place, along, o.lanes).vector(b)) for place in places]
        with b.loop(o.depth) as k, ctx.block():
            _add_outer_product(ctx, o, batch, (row, column, k), sums)
        for place, total in zip(places, sums, strict=True):
            value = b.get(total)
            if o.element.is_narrow:
                value = narrow_floats.rounded(b, o.element, value)
            ctx.write(o.result, place, full(o.element, value))


def _add_outer_product(
    ctx: Context, o: _Operands, batch: Index, place: tuple[Value, Value, Value], sums: list[Variable]
) -> None:
    """sums += a's column k x b's row k, within the tile."""
    b = ctx.b
    row, column, k = place
    rights = [
        ctx.read(o.b, (*batch, k, b.add(column, integer(j * o.lanes))), len(batch) + 1, o.lanes).vector(b)
        for j in range(o.vectors)
    ]
    for i in range(o.tile_rows):
        left = ctx.read(o.a, (*batch, b.add(row, integer(i)), k), len(batch) + 1, 1).value
        factor = b.splat(left, o.lanes)
        for j, right in enumerate(rights):
            total = sums[i * o.vectors + j]
            if o.element.kind == "int":
                b.set(total, b.add(b.get(total), b.mul(factor, right)))
            else:
                b.set(total, b.intrinsic("fma", factor, right, b.get(total)))


def _accumulator(ctx: Context, operation: Operation) -> Buffer | None:
    """The loop's own buffer of the result, where the sum may be formed in place.

    That is so when the result only becomes the loop's next value, and the current one is read by nothing but the addend.
    """
    uses = ctx.uses_of(operation.results[0])
    if not ctx.loops or len(uses) != 1 or uses[0][0] is not ctx.loops[-1].terminator:
        return None
    number = next(
        n for n, operand in enumerate(uses[0][0].operands) if operand.name == operation.results[0].name
    )
    carried = ctx.loops[-1].carried[number]
    if carried.buffer is None or not _only_addend(ctx, carried.argument, operation):
        return None
    addend = ctx.tensor(operation.operands[2])
    return carried.buffer if addend.reads.get(carried.buffer, False) else None


def _only_addend(ctx: Context, value: SSA, dot: Operation) -> bool:
    """Whether a value is used once, by operations used once, and so on to the addend of `dot`."""
    while True:
        uses = ctx.uses_of(value)
        if len(uses) != 1:
            return False
        user = uses[0][0]
        if user is dot:
            return [operand.name for operand in dot.operands].index(value.name) == 2
        if len(user.results) != 1 or user.regions or user.name.startswith("tt.load"):
            return False
        value = user.results[0]
