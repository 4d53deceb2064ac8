"""Loads, stores and atomic operations on the caller's memory."""

from __future__ import annotations

from collections.abc import Callable

from . import narrow_floats
from .context import Context, unsupported
from .element_types import Element, TensorType
from .elementwise import ELEMENTWISE
from .lanes import Lanes, full, uniform
from .llvm_ir import Value, integer, mangled, vector_type, zero
from .mlir import Operation
from .tensors import DelayedLoad, Index, Tensor

_ATOMICS = {
    1: "and", 2: "or", 3: "xor", 4: "add", 5: "fadd", 6: "max", 7: "min", 8: "umax", 9: "umin", 10: "xchg",
}  # fmt: skip
"""Triton's RMWOp numbers as LLVM's atomicrmw."""
_ADD_FLOAT = 5
_LARGE = 64
"""Elements from which two variants of code pay: a load that waits for its store, a mask that is true."""


def lower_load(ctx: Context, operation: Operation) -> None:
    """tt.load: memory is read here and now, into a buffer; masked elements get `other`, or zero."""
    (result,) = operation.results
    type_ = ctx.type_of(result)
    counts = operation.integers("operandSegmentSizes")
    operands = [ctx.values[operand.name] for operand in operation.operands]
    pointer, mask = operands[0], operands[1] if counts[1] else None
    other = operands[1 + counts[1]] if counts[2] else None
    if type_.shape is None:
        assert isinstance(pointer, Value)
        ctx.values[result.name] = _load_scalar(ctx, type_.element, pointer, mask, other)
        return
    assert isinstance(pointer, Tensor)
    tensors = (pointer, mask, other)

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        if delayed is not None and delayed.buffer is not None:
            return ctx.read(delayed.buffer, index, axis, width)
        used = (pointer,) if mask is not None and mask is ctx.all_true else tensors
        lanes = [ctx.evaluate(t, index, axis, width) if isinstance(t, Tensor) else None for t in used]
        lanes += [None] * (len(tensors) - len(lanes))
        assert lanes[0] is not None
        return _load_lanes(ctx, type_.element, lanes[0], lanes[1], lanes[2])

    loaded = Tensor(type=type_, evaluate=evaluate, natural=_contiguous_axis(pointer), cost=4)
    user = _only_store(ctx, operation, pointer) or _only_product(ctx, operation)
    delayed = DelayedLoad(pointer=pointer, tensor=loaded, user=user) if user else None
    if delayed is not None:
        ctx.delayed.append(delayed)
        ctx.values[result.name] = loaded
        return
    ctx.values[result.name] = ctx.materialise(loaded, wide=_feeds_product(ctx, operation))


def _only_store(ctx: Context, operation: Operation, pointer: Tensor) -> Operation | None:
    """The store of an element-wise expression that is all that a large load of neighbours is for, if any."""
    if len(pointer.shape) != 1 or pointer.steps(0) != 1 or pointer.shape[0] < _LARGE:
        return None
    value = operation.results[0]
    while True:
        uses = ctx.uses_of(value)
        if len(uses) != 1:
            return None
        user, depth = uses[0]
        if user.name == "tt.store":
            return user if user.operands[1].name == value.name and depth == ctx.depth else None
        if user.name not in ELEMENTWISE:
            return None
        value = user.results[0]


def _only_product(ctx: Context, operation: Operation) -> Operation | None:
    """The product of pairs of bfloat16 that is all that a load is for, as the right factor, if any."""
    result = operation.results[0]
    uses = ctx.uses_of(result)
    if not ctx.machine.pairs_bf16 or ctx.type_of(result).element.name != "bf16" or len(uses) != 1:
        return None
    user, depth = uses[0]
    is_right = user.name == "tt.dot" and user.operands[1].name == result.name
    return user if is_right and depth == ctx.depth else None


def _feeds_product(ctx: Context, operation: Operation) -> bool:
    """Whether a product reads the result as float32; one of pairs of bfloat16 does not."""
    result = operation.results[0]
    if ctx.machine.pairs_bf16 and ctx.type_of(result).element.name == "bf16":
        return False
    return any(use.name == "tt.dot" for use, _ in ctx.uses_of(result))


def _contiguous_axis(pointer: Tensor) -> int:
    """The axis along which the pointers are neighbours; else the last one that they change along."""
    axes = range(len(pointer.shape))
    return next(
        (axis for axis in reversed(axes) if pointer.steps(axis) == 1 and pointer.shape[axis] > 1),
        len(pointer.shape) - 1,
    )


def _first(ctx: Context, lanes: Lanes | None) -> Value | None:
    """The scalar of uniform lanes, or of a single one."""
    if lanes is None:
        return None
    return lanes.value if lanes.is_uniform else lanes.vector(ctx.b)


def _load_scalar(
    ctx: Context,
    element: Element,
    pointer: Value | None,
    mask: Value | Tensor | None,
    other: Value | Tensor | None,
) -> Value:
    b = ctx.b
    assert pointer is not None
    if mask is None:
        return ctx.from_memory(element, b.load(element.stored, pointer, element.size))
    assert isinstance(mask, Value)
    result = b.variable(element.llvm, other if isinstance(other, Value) else zero(element.llvm))
    with b.when(mask):
        b.set(result, ctx.from_memory(element, b.load(element.stored, pointer, element.size)))
    return b.get(result)


def _load_lanes(
    ctx: Context, element: Element, pointer: Lanes, mask: Lanes | None, other: Lanes | None
) -> Lanes:
    b, width = ctx.b, pointer.width
    if pointer.is_uniform and (mask is None or mask.is_uniform) and (other is None or other.is_uniform):
        scalar = _load_scalar(ctx, element, pointer.value, _first(ctx, mask), _first(ctx, other))
        return uniform(element, width, scalar)
    if width == 1:
        return uniform(
            element,
            1,
            _load_scalar(ctx, element, _first(ctx, pointer), _first(ctx, mask), _first(ctx, other)),
        )
    stored = vector_type(element.stored, width)
    if mask is None and pointer.is_contiguous:
        return full(element, ctx.from_memory(element, b.load(stored, pointer.value, element.size)))
    lanes = mask.vector(b) if mask is not None else b.splat(Value("i1", "true"), width)
    if pointer.is_contiguous:
        bits = b.call(
            f"llvm.masked.load.{mangled(stored)}.p0", stored, pointer.value, integer(element.size, "i32"),
                lanes, zero(stored)
        )  # fmt: skip
    else:
        bits = b.call(
            f"llvm.masked.gather.{mangled(stored)}.v{width}p0", stored,
            pointer.vector(b), integer(element.size, "i32"), lanes, zero(stored),
        )  # fmt: skip
    value = ctx.from_memory(element, bits)
    return full(element, value if other is None else b.select(lanes, value, other.vector(b)))


def lower_store(ctx: Context, operation: Operation) -> None:
    """tt.store: written in the order of the lanes."""
    operands = [ctx.values[operand.name] for operand in operation.operands]
    pointer, value, mask = operands[0], operands[1], operands[2] if len(operands) > 2 else None
    ctx.load_delayed(but_for=operation)
    if isinstance(pointer, Value):
        element = ctx.type_of(operation.operands[1]).element
        assert isinstance(value, Value)
        _store_scalar(ctx, element, pointer, value, mask if isinstance(mask, Value) else None)
        return
    assert isinstance(value, Tensor)
    where = (pointer, value, mask if isinstance(mask, Tensor) else None)
    if len(pointer.shape) != 1 or pointer.steps(0) != 1:
        ctx.load_delayed()
    if not ctx.delayed:
        _store_tensor(ctx, *where)
        return
    b = ctx.b
    directly, apart, done = b.name("directly"), b.name("apart"), b.name("stored")
    b.branch_if(_may_interleave(ctx, pointer), directly, apart)
    b.label(directly)
    _store_tensor(ctx, *where)
    b.branch(done)
    b.label(apart)
    ctx.load_delayed()
    _store_all(ctx, *where, _contiguous_axis(pointer))
    b.branch(done)
    b.label(done)


def _may_interleave(ctx: Context, pointer: Tensor) -> Value:
    """Whether a store changes nothing that a delayed load reads: same elements, or memory apart."""
    b = ctx.b
    (size,) = pointer.shape
    store, stored = _start(ctx, pointer), _pointee_size(pointer)
    allowed = Value("i1", "true")
    for load in ctx.delayed:
        start, loaded = _start(ctx, load.pointer), _pointee_size(load.pointer)
        after = b.compare("icmp uge", store, b.add(start, integer(size * loaded)))
        before = b.compare("icmp uge", start, b.add(store, integer(size * stored)))
        fine = b.binary("or", after, before)
        if loaded == stored:
            fine = b.binary("or", fine, b.compare("icmp eq", start, store))
        allowed = b.binary("and", allowed, fine)
    return allowed


def _start(ctx: Context, pointer: Tensor) -> Value:
    """The address of the first element."""
    return ctx.b.cast("ptrtoint", ctx.evaluate(pointer, (integer(0),), 0, 1).value, "i64")


def _pointee_size(pointer: Tensor) -> int:
    assert pointer.element.pointee is not None
    return pointer.element.pointee.size


def _store_tensor(ctx: Context, pointer: Tensor, value: Tensor, mask: Tensor | None) -> None:
    axis = _contiguous_axis(pointer)
    if axis != len(pointer.shape) - 1 and value.natural != axis:
        value = ctx.materialise(value)
    if mask is None or not mask.prefix or pointer.shape[0] < _LARGE or pointer.steps(0) != 1:
        _store_all(ctx, pointer, value, mask, axis)
        return
    # stores with a mask are slow even where all of it is true
    b = ctx.b
    complete, partial, done = b.name("complete"), b.name("partial"), b.name("stored")
    last = ctx.evaluate(mask, (integer(pointer.shape[0] - 1),), 0, 1).value
    b.branch_if(last, complete, partial)
    b.label(complete)
    with ctx.where_all_hold(mask):
        _store_all(ctx, pointer, value, None, axis)
    b.branch(done)
    b.label(partial)
    _store_all(ctx, pointer, value, mask, axis)
    b.branch(done)
    b.label(done)


def _store_all(ctx: Context, pointer: Tensor, value: Tensor, mask: Tensor | None, axis: int) -> None:
    with ctx.nest(pointer.shape, axis) as (index, along, width):
        where = ctx.evaluate(pointer, index, along, width)
        what = ctx.evaluate(value, index, along, width)
        lanes = ctx.evaluate(mask, index, along, width) if mask is not None else None
        _store_lanes(ctx, where, what, lanes)


def _store_scalar(ctx: Context, element: Element, pointer: Value, value: Value, mask: Value | None) -> None:
    if mask is None:
        ctx.b.store(ctx.to_memory(element, value), pointer, element.size)
        return
    with ctx.b.when(mask):
        ctx.b.store(ctx.to_memory(element, value), pointer, element.size)


def _store_lanes(ctx: Context, pointer: Lanes, value: Lanes, mask: Lanes | None) -> None:
    b, width, element = ctx.b, pointer.width, value.element
    if width == 1:
        _store_scalar(ctx, element, pointer.vector(b), value.vector(b), _first(ctx, mask))
        return
    bits = ctx.to_memory(element, value.vector(b))
    if mask is None and pointer.is_contiguous:
        b.store(bits, pointer.value, element.size)
        return
    lanes = mask.vector(b) if mask is not None else b.splat(Value("i1", "true"), width)
    if pointer.is_contiguous:
        b.call(
            f"llvm.masked.store.{mangled(bits.type)}.p0",
            "void",
            bits,
            pointer.value,
            integer(element.size, "i32"),
            lanes,
        )
    else:
        where = pointer.vector(b)
        b.call(
            f"llvm.masked.scatter.{mangled(bits.type)}.v{width}p0",
            "void",
            bits,
            where,
            integer(element.size, "i32"),
            lanes,
        )


def lower_atomic(ctx: Context, operation: Operation) -> None:
    """tt.atomic_rmw, lane by lane; what was there before is the result, of masked lanes zero."""
    kind = operation.integer("atomic_rmw_op")
    if kind not in _ATOMICS:
        raise unsupported(operation, f"of kind {kind}")
    element = ctx.type_of(operation.results[0]).element
    if element.is_narrow and kind != _ADD_FLOAT:
        raise unsupported(operation, f"of kind {_ATOMICS[kind]} on {element.name}")

    def update(pointer: Value, values: list[Value]) -> Value:
        if element.is_narrow:
            return _add_narrow(ctx, element, pointer, values[0])
        return ctx.b.let(
            element.llvm, f"atomicrmw {_ATOMICS[kind]} {pointer}, {values[0]} seq_cst, align {element.size}"
        )

    operands = [ctx.values[operand.name] for operand in operation.operands]
    _each_lane(ctx, operation, operands[:2], operands[2] if len(operands) > 2 else None, update)


def _add_narrow(ctx: Context, element: Element, pointer: Value, value: Value) -> Value:
    """An addition by compare and exchange: processors have none on floats of 8 and 16 bits."""
    b = ctx.b
    stored = element.stored
    old = b.variable(stored, b.load(stored, pointer, element.size))
    again, done = b.name("again"), b.name("added")
    b.branch(again)
    b.label(again)
    before = b.get(old)
    number = ctx.from_memory(element, before)
    total = ctx.to_memory(element, narrow_floats.rounded(b, element, b.binary("fadd", number, value)))
    exchanged = b.let(
        f"{{ {stored}, i1 }}", f"cmpxchg {pointer}, {before}, {total} seq_cst seq_cst, align {element.size}"
    )
    b.set(old, b.let(stored, f"extractvalue {exchanged}, 0"))
    b.branch_if(b.let("i1", f"extractvalue {exchanged}, 1"), done, again)
    b.label(done)
    return number


def lower_compare_exchange(ctx: Context, operation: Operation) -> None:
    """tt.atomic_cas, lane by lane."""
    element = ctx.type_of(operation.results[0]).element

    def exchange(pointer: Value, values: list[Value]) -> Value:
        b = ctx.b
        expected, new = (ctx.to_memory(element, value) for value in values)
        if element.kind == "float" and not element.is_narrow:
            expected, new = (b.cast("bitcast", value, f"i{element.bits}") for value in (expected, new))
        pair = f"{{ {new.type}, i1 }}"
        exchanged = b.let(pair, f"cmpxchg {pointer}, {expected}, {new} seq_cst seq_cst, align {element.size}")
        old = b.let(new.type, f"extractvalue {exchanged}, 0")
        if element.kind == "float" and not element.is_narrow:
            return b.cast("bitcast", old, element.llvm)
        return ctx.from_memory(element, old)

    _each_lane(ctx, operation, [ctx.values[operand.name] for operand in operation.operands], None, exchange)


def _each_lane(
    ctx: Context,
    operation: Operation,
    operands: list[Value | Tensor],
    mask: Value | Tensor | None,
    update: Callable[[Value, list[Value]], Value],
) -> None:
    """`update` for every element whose mask is set; its results become the operation's."""
    b = ctx.b
    (result,) = operation.results
    type_: TensorType = ctx.type_of(result)
    element = type_.element

    def masked(pointer: Value, values: list[Value], condition: Value | None) -> Value:
        if condition is None:
            return update(pointer, values)
        outcome = b.variable(element.llvm, zero(element.llvm))
        with b.when(condition):
            b.set(outcome, update(pointer, values))
        return b.get(outcome)

    if type_.shape is None:
        scalars = [operand for operand in operands if isinstance(operand, Value)]
        ctx.values[result.name] = masked(scalars[0], scalars[1:], mask if isinstance(mask, Value) else None)
        return
    buffer = ctx.new_buffer(type_.shape, element)
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    with ctx.nest(type_.shape) as (index, axis, width):
        lanes = [ctx.evaluate(t, index, axis, width).vector(b) for t in tensors]
        conditions = ctx.evaluate(mask, index, axis, width).vector(b) if isinstance(mask, Tensor) else None
        results = b.per_lane(
            width,
            element.llvm,
            lambda n: masked(
                b.extract(lanes[0], n),
                [b.extract(v, n) for v in lanes[1:]],
                b.extract(conditions, n) if conditions is not None else None,
            ),
        )
        ctx.write(buffer, index, full(element, results))
    ctx.values[result.name] = ctx.buffered(buffer)
