"""tt.dot: blocked products of row-major operands, with the tile of the result in vector registers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import narrow_floats, scaled_products
from .context import Context, unsupported
from .element_types import I32, Element, TensorType
from .lanes import Lanes, full
from .llvm_ir import Builder, Value, Variable, integer, lanes_of, vector_type
from .mlir import SSA, Operation
from .tensors import Buffer, Index, Tensor, merged_reads


@dataclass(frozen=True, kw_only=True)
class _Operands:
    """Row-major operands and result of a product of matrices, and the tile held in registers.

    `pairs`: an element is a pair of bfloat16 along the depth, in 32 bits.
    """

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
    pairs: bool


def lower_dot(ctx: Context, operation: Operation) -> None:
    """a b + c, perhaps with a batch axis: floats as float32 or float64, integers as int32."""
    ctx.load_delayed(but_for=operation)
    a, b, c = (ctx.tensor(operand) for operand in operation.operands)
    if a.element.kind != c.element.kind or (a.element.bits == 64) != (c.element.bits == 64):
        raise unsupported(operation, f"of {a.element.name} into {c.element.name}")
    _lower_product(ctx, operation, a, b, c)
    ctx.delayed.clear()


def lower_dot_scaled(ctx: Context, operation: Operation) -> None:
    """The same of numbers that are stored in blocks with a common scale."""
    _lower_product(ctx, operation, *scaled_products.operands(ctx, operation))


def _lower_product(ctx: Context, operation: Operation, a: Tensor, b: Tensor, c: Tensor) -> None:
    (result,) = operation.results
    type_ = ctx.type_of(result)
    assert type_.shape is not None
    rows, columns = type_.shape[-2:]
    lanes = min(ctx.machine.lanes, columns)
    vectors = min(2, columns // lanes)
    tile_rows = min(8 if ctx.machine.avx512 else 4, rows)
    pairs = _multiplies_pairs(ctx, a, b, c, lanes)
    if pairs:
        a, b = _pairs(ctx, a, len(a.shape) - 1), _pairs(ctx, b, len(b.shape) - 2)
    else:
        a, b = _widened(ctx, a, c.element), _widened(ctx, b, c.element)
    stored = [_stored(ctx, tensor) for tensor in (a, b)]
    buffer = _accumulator(ctx, operation) or ctx.new_buffer(type_.shape, type_.element)
    operands = _Operands(
        a=stored[0], b=stored[1], c=c, result=buffer, element=type_.element, rows=rows, columns=columns,
        depth=a.shape[-1], tile_rows=tile_rows, vectors=vectors, lanes=lanes, pairs=pairs,
    )  # fmt: skip
    with ctx.rows(type_.shape[:-2]) as batch:
        _product(ctx, operands, batch)
    ctx.values[result.name] = ctx.buffered(buffer)


def _stored(ctx: Context, tensor: Tensor) -> Buffer:
    """A factor in row-major memory, as the numbers that are multiplied."""
    buffer = ctx.materialise(tensor, wide=True).buffer
    assert buffer is not None
    return buffer


def _widened(ctx: Context, tensor: Tensor, accumulator: Element) -> Tensor:
    """Integers as the accumulator's; floats as they are."""
    if tensor.element.kind != "int" or tensor.element == accumulator:
        return tensor

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        return full(
            accumulator,
            ctx.b.cast("sext", ctx.evaluate(tensor, index, axis, width).vector(ctx.b), accumulator.llvm),
        )

    reads = merged_reads(tensor)
    return Tensor(
        type=TensorType(tensor.shape, accumulator),
        evaluate=evaluate,
        cost=tensor.cost + 1,
        reads=reads,
        natural=tensor.natural,
    )


def _multiplies_pairs(ctx: Context, a: Tensor, b: Tensor, c: Tensor, lanes: int) -> bool:
    """Whether the processor has an instruction for these operands."""
    bf16 = a.element.name == b.element.name == "bf16" and c.element.name == "f32"
    return ctx.machine.pairs_bf16 and bf16 and a.shape[-1] % 2 == 0 and lanes in {4, 8, 16}


def _pairs(ctx: Context, tensor: Tensor, depth: int) -> Tensor:
    """Neighbours of a bfloat16 tensor along the axis `depth`, in 32 bits, the first in the lower half."""
    b, last = ctx.b, len(tensor.shape) - 1
    shape = tuple(size // 2 if axis == depth else size for axis, size in enumerate(tensor.shape))
    stored = tensor.buffer
    if stored is not None and not stored.wide and depth == last:
        view = ctx.buffered(replace(stored, shape=shape, element=I32))
        return replace(view, reads={**view.reads, stored: False})

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        first = (*index[:depth], b.mul(index[depth], integer(2)), *index[depth + 1 :])
        if axis == depth:
            lanes = ctx.evaluate(tensor, first, axis, 2 * width).vector(b)
            both = narrow_floats.encode(b, tensor.element, lanes)
            type_ = vector_type("i32", width)
            return full(I32, b.let(type_, f"bitcast {both} to {type_}"))
        second = (*first[:depth], b.add(first[depth], integer(1)), *first[depth + 1 :])
        low, high = (
            b.cast("bitcast", ctx.evaluate(tensor, place, axis, width).vector(b), "i32")
            for place in (first, second)
        )
        low = b.binary("lshr", low, b.splat(integer(16, "i32"), width))
        high = b.binary("and", high, b.splat(integer(-1 << 16, "i32"), width))
        return full(I32, b.binary("or", low, high))

    return Tensor(
        type=TensorType(shape, I32), evaluate=evaluate, cost=tensor.cost + 4,
        reads=merged_reads(tensor, aligned=False), natural=tensor.natural,
    )  # fmt: skip


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
            if o.pairs:
                b.set(total, _add_pairs(b, b.get(total), factor, right))
            elif o.element.kind == "int":
                b.set(total, b.add(b.get(total), b.mul(factor, right)))
            else:
                b.set(total, b.intrinsic("fma", factor, right, b.get(total)))


def _add_pairs(b: Builder, total: Value, left: Value, right: Value) -> Value:
    """total + the products of the pairs of bfloat16 in `left` and `right`."""
    lanes = lanes_of(total.type)
    type_ = vector_type("bfloat", 2 * lanes)
    pairs = [b.let(type_, f"bitcast {value} to {type_}") for value in (left, right)]
    return b.call(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", total.type, total, *pairs)


def _accumulator(ctx: Context, operation: Operation) -> Buffer | None:
    """The loop's own buffer, where the sum may be formed in place: only the addend reads its value."""
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
