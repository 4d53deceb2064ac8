"""Loops, conditionals, calls and jumps, whose values are in variables (scalars) and buffers (tensors)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .context import Carried, Context, Loop, unsupported
from .llvm_ir import Value, Variable, integer
from .mlir import SSA, Block, Operation
from .shapes import advanced
from .tensors import Buffer, Tensor

LowerBlock = Callable[[Context, Sequence[Operation]], None]


def lower_for(ctx: Context, operation: Operation, lower: LowerBlock) -> None:
    """scf.for."""
    b = ctx.b
    begin, end, step = (ctx.scalar(operand) for operand in operation.operands[:3])
    block = operation.regions[0].entry
    induction, *arguments = block.arguments
    terminator = block.operations[-1]
    carried = [
        _carry(ctx, argument, init, block, terminator.operands[number])
        for number, (argument, init) in enumerate(zip(arguments, operation.operands[3:], strict=True))
    ]
    counter = b.variable(begin.type, begin)
    head, body, done = b.name("for"), b.name("do"), b.name("done")
    b.branch(head)
    b.label(head)
    here = b.get(counter)
    less = "icmp ult" if operation.boolean("unsignedCmp") else "icmp slt"
    b.branch_if(b.compare(less, here, end), body, done)
    b.label(body)
    ctx.values[induction.name] = here
    for argument, place in zip(arguments, carried, strict=True):
        ctx.values[argument.name] = _current(ctx, place)
    ctx.loops.append(Loop(terminator=terminator, carried=carried))
    ctx.depth += 1
    lower(ctx, block.operations[:-1])
    ctx.depth -= 1
    ctx.loops.pop()
    assign(ctx, carried, terminator.operands)
    b.set(counter, b.let(begin.type, f"add nsw {here}, {step.text}"))
    b.branch(head)
    b.label(done)
    for result, place in zip(operation.results, carried, strict=True):
        ctx.values[result.name] = _current(ctx, place)


def _carry(ctx: Context, argument: SSA, init: SSA, block: Block, following: SSA) -> Carried:
    """Where a loop's value is: a variable, a buffer, or an offset beside the first value."""
    type_ = ctx.type_of(argument)
    if type_.shape is None:
        return Carried(argument=argument, variable=ctx.b.variable(type_.element.llvm, ctx.scalar(init)))
    first = ctx.tensor(init)
    increment = _increment(ctx, argument, block, following)
    if increment is not None and first.buffer is None:
        offset = ctx.b.variable("i64" if type_.element.kind == "ptr" else type_.element.llvm, None)
        ctx.b.set(offset, integer(0, offset.type))
        return Carried(argument=argument, variable=offset, first=first, increment=increment)
    buffer = ctx.new_buffer(first.shape, first.element)
    ctx.fill(buffer, first)
    return Carried(argument=argument, buffer=buffer)


def _increment(ctx: Context, argument: SSA, block: Block, following: SSA) -> SSA | None:
    """The operand X when the next value is `argument + X` and X is the same for all elements."""
    made = next((op for op in block.operations if following in op.results), None)
    if made is None or made.name not in {"tt.addptr", "arith.addi"} or made.operands[0].name != argument.name:
        return None
    increment = made.operands[1]
    known = ctx.values.get(increment.name)
    if isinstance(known, Tensor):
        return increment if all(known.steps(axis) == 0 for axis in range(len(known.shape))) else None
    source = next((op for op in block.operations if increment in op.results), None)
    return increment if source is not None and source.name == "tt.splat" else None


def _current(ctx: Context, place: Carried) -> Value | Tensor:
    """The value at this point of the program."""
    if place.buffer is not None:
        return ctx.buffered(place.buffer)
    assert place.variable is not None
    value = ctx.b.get(place.variable)
    return value if place.first is None else advanced(ctx, place.first, value)


def assign(ctx: Context, places: Sequence[Carried], values: Sequence[SSA]) -> None:
    """All places at once: no value sees another one's new value."""
    b = ctx.b
    scalars: list[tuple[Variable, Value]] = []
    tensors: list[tuple[Buffer, Tensor]] = []
    for place, ssa in zip(places, values, strict=True):
        if place.increment is not None:
            assert place.variable is not None
            scalars.append(
                (
                    place.variable,
                    b.add(b.get(place.variable), _scalar_of(ctx, place.increment, place.variable.type)),
                )
            )
        elif place.variable is not None:
            scalars.append((place.variable, ctx.scalar(ssa)))
        elif place.buffer is not None:
            tensor = ctx.tensor(ssa)
            if tensor.buffer is not place.buffer:
                tensors.append((place.buffer, tensor))
    _fill_all(ctx, tensors)
    for variable, value in scalars:
        b.set(variable, value)


def _scalar_of(ctx: Context, increment: SSA, type_: str) -> Value:
    tensor = ctx.tensor(increment)
    value = ctx.evaluate(tensor, tuple(integer(0) for _ in tensor.shape), 0, 1).value
    return ctx.b.cast("sext", value, type_)


def _fill_all(ctx: Context, pending: list[tuple[Buffer, Tensor]]) -> None:
    """Fill buffers with tensors that may read them, in an order, or by copies where there is a cycle."""
    while pending:
        free = next((n for n, (buffer, _) in enumerate(pending) if _may_overwrite(pending, n, buffer)), None)
        if free is None:
            buffer, tensor = pending.pop(0)
            copy = ctx.new_buffer(buffer.shape, buffer.element)
            ctx.fill(copy, tensor)
            pending.append((buffer, ctx.buffered(copy)))
            continue
        buffer, tensor = pending.pop(free)
        ctx.fill(buffer, tensor)


def _may_overwrite(pending: Sequence[tuple[Buffer, Tensor]], number: int, buffer: Buffer) -> bool:
    own = pending[number][1]
    others = any(buffer in tensor.reads for n, (_, tensor) in enumerate(pending) if n != number)
    return not others and own.reads.get(buffer, True)


def lower_if(ctx: Context, operation: Operation, lower: LowerBlock) -> None:
    """scf.if."""
    b = ctx.b
    places = [_place(ctx, result) for result in operation.results]
    then, otherwise, done = b.name("then"), b.name("else"), b.name("fi")
    b.branch_if(ctx.scalar(operation.operands[0]), then, otherwise)
    for label, region in zip((then, otherwise), operation.regions, strict=True):
        b.label(label)
        if region.entry.operations:
            *body, terminator = region.entry.operations
            with ctx.outside_loops():
                lower(ctx, body)
            assign(ctx, places, terminator.operands)
        b.branch(done)
    b.label(done)
    for result, place in zip(operation.results, places, strict=True):
        ctx.values[result.name] = _current(ctx, place)


def _place(ctx: Context, ssa: SSA) -> Carried:
    type_ = ctx.type_of(ssa)
    if type_.shape is None:
        return Carried(argument=ssa, variable=ctx.b.variable(type_.element.llvm))
    return Carried(argument=ssa, buffer=ctx.new_buffer(type_.shape, type_.element))


def lower_while(ctx: Context, operation: Operation, lower: LowerBlock) -> None:
    """scf.while: the first region decides and hands values to the second, which makes the next ones."""
    b = ctx.b
    before, after = (region.entry for region in operation.regions)
    places = [_place(ctx, argument) for argument in before.arguments]
    assign(ctx, places, operation.operands)
    head, body, done = b.name("while"), b.name("do"), b.name("done")
    b.branch(head)
    b.label(head)
    for argument, place in zip(before.arguments, places, strict=True):
        ctx.values[argument.name] = _current(ctx, place)
    with ctx.outside_loops():
        ctx.depth += 1
        lower(ctx, before.operations[:-1])
        condition = before.operations[-1]
        handed = [_settled(ctx, operand) for operand in condition.operands[1:]]
        b.branch_if(ctx.scalar(condition.operands[0]), body, done)
        b.label(body)
        for argument, value in zip(after.arguments, handed, strict=True):
            ctx.values[argument.name] = value
        lower(ctx, after.operations[:-1])
        ctx.depth -= 1
    assign(ctx, places, after.operations[-1].operands)
    b.branch(head)
    b.label(done)
    for result, value in zip(operation.results, handed, strict=True):
        ctx.values[result.name] = value


def _settled(ctx: Context, ssa: SSA) -> Value | Tensor:
    value = ctx.values[ssa.name]
    return ctx.materialise(value) if isinstance(value, Tensor) and not value.is_index else value


@dataclass(frozen=True, kw_only=True)
class Target:
    """A basic block that jumps lead to, and where its arguments are."""

    label: str
    places: list[Carried]


def block_targets(ctx: Context, blocks: Sequence[Block]) -> dict[str, Target]:
    """Places for the arguments of all blocks of a function but the first."""
    return {
        block.label: Target(
            label=ctx.b.name("block"), places=[_place(ctx, argument) for argument in block.arguments]
        )
        for block in blocks[1:]
    }


def enter_block(ctx: Context, block: Block, target: Target) -> None:
    """Begin a block: its arguments have the values that the jump left."""
    ctx.b.label(target.label)
    for argument, place in zip(block.arguments, target.places, strict=True):
        ctx.values[argument.name] = _current(ctx, place)


def lower_jump(ctx: Context, operation: Operation, targets: dict[str, Target]) -> None:
    """cf.br and cf.cond_br."""
    b = ctx.b
    if operation.name == "cf.br":
        assign(ctx, targets[operation.successors[0]].places, operation.operands)
        b.branch(targets[operation.successors[0]].label)
        return
    labels = [b.name("edge") for _ in operation.successors]
    b.branch_if(ctx.scalar(operation.operands[0]), labels[0], labels[1])
    begin = 1
    for edge, label, count in zip(
        labels, operation.successors, operation.integers("operandSegmentSizes")[1:], strict=True
    ):
        b.label(edge)
        assign(ctx, targets[label].places, operation.operands[begin : begin + count])
        b.branch(targets[label].label)
        begin += count


def lower_call(ctx: Context, operation: Operation) -> None:
    """tt.call: tensors and results are handed over as addresses."""
    b = ctx.b
    name = operation.attributes["callee"].strip().lstrip("@").strip('"')
    arguments = []
    for operand in operation.operands:
        value = ctx.values[operand.name]
        if isinstance(value, Tensor):
            stored = ctx.materialise(value).buffer
            assert stored is not None
            if stored.wide:
                raise unsupported(operation, "with a tensor that is held in another form")
            value = stored.address
        arguments.append(value)
    places = [_place(ctx, result) for result in operation.results]
    for place in places:
        where = (
            place.buffer.address
            if place.buffer is not None
            else place.variable.address
            if place.variable
            else None
        )
        assert where is not None
        arguments.append(where)
    hidden = list(ctx.launch.values())
    b.emit(f"call void @{ctx.symbol(name)}({', '.join(map(str, [*arguments, *hidden]))})")
    for result, place in zip(operation.results, places, strict=True):
        ctx.values[result.name] = _current(ctx, place)
