"""Element-wise arithmetic, comparisons, conversions and elementary functions, on scalars and vectors."""

from __future__ import annotations

from collections.abc import Sequence

from . import math_functions, narrow_floats
from .context import Context, unsupported
from .device_functions import device_function
from .element_types import F32, Element, TensorType
from .errors import UnsupportedError
from .lanes import Lanes, arithmetic, full, step_of, uniform
from .llvm_ir import Builder, Value, element_of, integer, lanes_of, real
from .mlir import Operation
from .tensors import Index, Tensor, merged_reads

_INTEGER = {
    "arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul", "arith.andi": "and", "arith.ori": "or",
    "arith.xori": "xor", "arith.shli": "shl", "arith.shrsi": "ashr", "arith.shrui": "lshr",
}  # fmt: skip
_DIVISION = {"arith.divsi": "sdiv", "arith.divui": "udiv", "arith.remsi": "srem", "arith.remui": "urem"}
_INTEGER_CALLS = {"arith.maxsi": "smax", "arith.minsi": "smin", "arith.maxui": "umax", "arith.minui": "umin"}
_FLOAT = {
    "arith.addf": "fadd",
    "arith.subf": "fsub",
    "arith.mulf": "fmul",
    "arith.divf": "fdiv",
    "tt.precise_divf": "fdiv",
}
_CONTRACTED = {"arith.addf", "arith.subf", "arith.mulf"}
_FLOAT_CALLS = {
    "arith.maxnumf": "maxnum", "arith.minnumf": "minnum", "arith.maximumf": "maximum",
    "arith.minimumf": "minimum", "math.sqrt": "sqrt", "tt.precise_sqrt": "sqrt", "math.absf": "fabs",
    "math.floor": "floor", "math.ceil": "ceil", "math.trunc": "trunc", "math.roundeven": "roundeven",
    "math.round": "round", "math.fma": "fma", "math.copysign": "copysign",
}  # fmt: skip
_FUNCTIONS = {
    "math.exp": "exp", "math.exp2": "exp2", "math.log": "log", "math.log2": "log2", "math.log10": "log10",
    "math.log1p": "log1p", "math.expm1": "expm1", "math.sin": "sin", "math.cos": "cos", "math.tan": "tan",
    "math.tanh": "tanh", "math.erf": "erf", "math.atan": "atan", "math.sinh": "sinh", "math.cosh": "cosh",
    "math.asin": "asin", "math.acos": "acos", "math.cbrt": "cbrt",
}  # fmt: skip
_COST = {
    "arith.divf": 8,
    "math.sqrt": 8,
    "math.rsqrt": 12,
    "arith.truncf": 3,
    "tt.fp_to_fp": 4,
} | dict.fromkeys(_FUNCTIONS, 25)
_EXPENSIVE = 8
"""Cost from which an expression with several uses is evaluated once, into a buffer."""
_SIGNED = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
_ORDERED = [
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno",
    "true",
]  # fmt: skip
_CASTS = {
    "arith.extsi": "sext", "arith.extui": "zext", "arith.trunci": "trunc", "arith.sitofp": "sitofp",
    "arith.uitofp": "uitofp", "arith.fptosi": "fptosi", "arith.fptoui": "fptoui", "arith.extf": "",
    "arith.truncf": "", "tt.fp_to_fp": "", "arith.bitcast": "bitcast", "tt.bitcast": "bitcast",
    "arith.index_cast": "sext", "tt.int_to_ptr": "inttoptr", "tt.ptr_to_int": "ptrtoint",
}  # fmt: skip
_OTHER = {
    "arith.select", "arith.cmpi", "arith.cmpf", "arith.negf", "arith.remf", "tt.addptr", "tt.clampf",
    "tt.mulhiui", "math.rsqrt", "math.absi", "tt.extern_elementwise", "arith.constant",
}  # fmt: skip
ELEMENTWISE = frozenset(
    {*_INTEGER, *_DIVISION, *_INTEGER_CALLS, *_FLOAT, *_FLOAT_CALLS, *_FUNCTIONS, *_CASTS, *_OTHER}
    - {"arith.constant"}
)


def lower(ctx: Context, operation: Operation) -> None:
    """Give the operation's result a value: a scalar at once, a tensor as an expression."""
    (result,) = operation.results
    type_ = ctx.type_of(result)
    operands = [ctx.values[operand.name] for operand in operation.operands]
    elements = [ctx.type_of(operand).element for operand in operation.operands]
    if type_.shape is None:
        scalars = [uniform(e, 1, v) for e, v in zip(elements, operands, strict=True) if isinstance(v, Value)]
        ctx.values[result.name] = compute(
            ctx.b, ctx.machine.contract, operation, type_.element, scalars
        ).value
        return
    ctx.values[result.name] = _kept(ctx, operation, _expression(ctx, operation, type_, operands, elements))


def _expression(
    ctx: Context,
    operation: Operation,
    type_: TensorType,
    operands: Sequence[Value | Tensor],
    elements: Sequence[Element],
) -> Tensor:
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        lanes = [
            ctx.evaluate(operand, index, axis, width)
            if isinstance(operand, Tensor)
            else uniform(element, width, operand)
            for operand, element in zip(operands, elements, strict=True)
        ]
        with ctx.b.at(operation.line):
            return compute(ctx.b, ctx.machine.contract, operation, type_.element, lanes)

    dearest = max(tensors, key=lambda t: (t.cost, t.natural))
    return Tensor(
        type=type_,
        evaluate=evaluate,
        cost=sum(t.cost for t in tensors)
        + (0 if type_.element.kind != "float" else _COST.get(operation.name, 1)),
        reads=merged_reads(*tensors),
        natural=dearest.natural,
        steps=lambda axis: _step(operation, operands, axis),
        prefix=_is_prefix(operation, operands),
    )


def _kept(ctx: Context, operation: Operation, tensor: Tensor) -> Tensor:
    """An expression that would be evaluated again and again goes to memory."""
    uses = ctx.uses_of(operation.results[0])
    repeated = len(uses) > 1 or any(depth > ctx.depth for _, depth in uses)
    deeper = any(depth > ctx.depth for _, depth in uses) and tensor.cost > 1 and not tensor.is_index
    if (repeated and tensor.cost >= _EXPENSIVE) or deeper:
        return ctx.materialise(tensor)
    return tensor


def _step(operation: Operation, operands: Sequence[Value | Tensor], axis: int) -> int | None:
    """The constant step of an integer or pointer expression, from those of its operands."""
    steps = [operand.steps(axis) if isinstance(operand, Tensor) else 0 for operand in operands]
    if all(step == 0 for step in steps):
        return 0
    known = [step for step in steps if step is not None]
    if len(known) < len(steps):
        return None
    if operation.name in {"arith.addi", "tt.addptr"}:
        return sum(known)
    if operation.name == "arith.subi":
        return known[0] - known[1]
    if operation.name in {"arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"}:
        return known[0]
    return None


def _is_prefix(operation: Operation, operands: Sequence[Value | Tensor]) -> bool:
    """Whether it compares ascending indices with a limit, or is the conjunction of such masks."""
    if any(isinstance(operand, Tensor) and len(operand.shape) != 1 for operand in operands):
        return False
    if operation.name == "arith.andi":
        return all(isinstance(operand, Tensor) and operand.prefix for operand in operands)
    if operation.name != "arith.cmpi":
        return False
    predicate = _SIGNED[operation.integer("predicate")]
    low, high = operands if predicate in {"slt", "sle"} else reversed(operands)
    if (
        predicate not in {"slt", "sle", "sgt", "sge"}
        or not isinstance(low, Tensor)
        or not isinstance(high, Tensor)
    ):
        return False
    step = low.steps(0)
    return step is not None and step >= 0 and high.steps(0) == 0


def compute(
    b: Builder, contract: bool, operation: Operation, element: Element, lanes: Sequence[Lanes]
) -> Lanes:
    """The operation on some lanes of its operands."""
    width = lanes[0].width
    stepped = _arithmetic(b, operation, element, lanes)
    if stepped is not None:
        return stepped
    if all(lane.is_uniform for lane in lanes):
        return uniform(
            element, width, _values(b, contract, operation, element, lanes, [lane.value for lane in lanes])
        )
    return full(element, _values(b, contract, operation, element, lanes, [lane.vector(b) for lane in lanes]))


def _arithmetic(b: Builder, operation: Operation, element: Element, lanes: Sequence[Lanes]) -> Lanes | None:
    """Index arithmetic that keeps a constant difference between lanes; None where it does not."""
    if any(lane.is_vector for lane in lanes) or all(lane.is_uniform for lane in lanes):
        return None
    name, first = operation.name, lanes[0]
    if name in {"arith.addi", "arith.subi"}:
        verb = _INTEGER[name]
        start = b.binary(verb, first.value, lanes[1].value)
        step = b.binary(verb, step_of(first, element.llvm), step_of(lanes[1], element.llvm))
        return arithmetic(element, first.width, start, step)
    if name == "arith.muli" and (first.is_uniform or lanes[1].is_uniform):
        varying, factor = (first, lanes[1]) if lanes[1].is_uniform else (lanes[1], first)
        start = b.mul(varying.value, factor.value)
        return arithmetic(element, first.width, start, b.mul(step_of(varying, element.llvm), factor.value))
    if name in {"arith.extsi", "arith.index_cast", "arith.trunci"}:
        verb = _CASTS[name] if name != "arith.index_cast" else _index_cast(first.element, element)
        start = b.cast(verb, first.value, element.llvm)
        return arithmetic(
            element, first.width, start, b.cast(verb, step_of(first, first.element.llvm), element.llvm)
        )
    if name == "tt.addptr":
        offset = lanes[1]
        start = b.address(first.value, _pointee(element).stored, b.cast("sext", offset.value, "i64"))
        step = b.cast("sext", step_of(offset, offset.element.llvm), "i64")
        return arithmetic(element, first.width, start, b.add(step_of(first, "i64"), step))
    return None


def _pointee(element: Element) -> Element:
    assert element.pointee is not None
    return element.pointee


def _index_cast(source: Element, target: Element) -> str:
    return "trunc" if target.bits < source.bits else "sext"


def _values(  # noqa: PLR0911 - one return a group of operations
    b: Builder,
    contract: bool,
    operation: Operation,
    element: Element,
    lanes: Sequence[Lanes],
    v: Sequence[Value],
) -> Value:
    """The operation on scalars or vectors."""
    name = operation.name
    source = lanes[0].element
    if name in _INTEGER:
        return b.binary(_INTEGER[name], v[0], v[1])
    if name in _DIVISION:
        return _divide(b, _DIVISION[name], v[0], v[1])
    if name in _INTEGER_CALLS:
        return b.intrinsic(_INTEGER_CALLS[name], v[0], v[1])
    if name in _FLOAT:
        flags = " contract" if contract and name in _CONTRACTED else ""
        return _round(b, element, b.binary(_FLOAT[name] + flags, v[0], v[1]))
    if name in _FLOAT_CALLS:
        return _round(b, element, b.intrinsic(_FLOAT_CALLS[name], *v))
    if name in _FUNCTIONS:
        return _round(b, element, math_functions.function(b, _FUNCTIONS[name], v[0]))
    if name in _CASTS:
        return _cast(b, operation, source, element, v[0])
    return _others(b, operation, element, lanes, v)


def _others(  # noqa: PLR0911 - one return an operation
    b: Builder, operation: Operation, element: Element, lanes: Sequence[Lanes], v: Sequence[Value]
) -> Value:
    name = operation.name
    match name:
        case "arith.cmpi":
            return b.compare(f"icmp {_SIGNED[operation.integer('predicate')]}", v[0], v[1])
        case "arith.cmpf":
            return b.compare(f"fcmp {_ORDERED[operation.integer('predicate')]}", v[0], v[1])
        case "arith.select":
            return b.select(v[0], v[1], v[2])
        case "arith.negf":
            return b.let(v[0].type, f"fneg {v[0]}")
        case "arith.remf":
            return _round(b, element, math_functions.library_call(b, "fmod", v))
        case "tt.addptr":
            index = b.cast("sext", v[1], "i64")
            return b.address(v[0], _pointee(element).stored, index)
        case "tt.clampf":
            return _clamp(b, operation, v)
        case "tt.mulhiui":
            return _high_product(b, v)
        case "math.rsqrt":
            ones = b.splat(real(1.0, element_of(v[0].type)), lanes_of(v[0].type))
            return _round(b, element, b.binary("fdiv", ones, b.intrinsic("sqrt", v[0])))
        case "math.absi":
            return device_function(b, "abs", v, element.llvm)
        case "tt.extern_elementwise":
            return _library_function(b, operation, element, v)
        case _:
            raise unsupported(operation)


def _round(b: Builder, element: Element, value: Value) -> Value:
    return narrow_floats.rounded(b, element, value) if element.is_narrow else value


def _divide(b: Builder, operation: str, a: Value, divisor: Value) -> Value:
    """Integer division that cannot trap: by zero, or the most negative number by -1, is some number."""
    width, element = lanes_of(divisor.type), element_of(divisor.type)
    if divisor.constant is not None and divisor.constant not in {0, -1}:
        return b.binary(operation, a, divisor)
    ones = b.splat(integer(1, element), width)
    unsafe = b.compare("icmp eq", divisor, b.splat(integer(0, element), width))
    if operation[0] == "u":
        return b.binary(operation, a, b.select(unsafe, ones, divisor))
    minus = b.compare("icmp eq", divisor, b.splat(integer(-1, element), width))
    safe = b.select(b.binary("or", unsafe, minus), ones, divisor)
    zero = b.splat(integer(0, element), width)
    negated = b.binary("sub", zero, a) if operation == "sdiv" else zero
    return b.select(minus, negated, b.binary(operation, a, safe))


def _clamp(b: Builder, operation: Operation, v: Sequence[Value]) -> Value:
    nan = operation.integer("propagateNan") != 0
    low, high = ("maximum", "minimum") if nan else ("maxnum", "minnum")
    return b.intrinsic(high, b.intrinsic(low, v[0], v[1]), v[2])


def _high_product(b: Builder, v: Sequence[Value]) -> Value:
    element = element_of(v[0].type)
    bits = int(element[1:])
    wide = [b.cast("zext", value, f"i{2 * bits}") for value in v]
    shift = b.splat(integer(bits, f"i{2 * bits}"), lanes_of(v[0].type))
    return b.cast("trunc", b.binary("lshr", b.mul(wide[0], wide[1]), shift), element)


def _library_function(b: Builder, operation: Operation, element: Element, v: Sequence[Value]) -> Value:
    symbol = operation.string("symbol")
    try:
        return _round(b, element, device_function(b, symbol, v, element.llvm))
    except KeyError:
        raise UnsupportedError(
            f"{operation.line}: the CPU back end has no function {symbol}",
            cause="it is another target's device function, or one that the C library does not have",
            hint="use the functions of triton.language.extra.libdevice",
        ) from None


def _cast(b: Builder, operation: Operation, source: Element, target: Element, value: Value) -> Value:
    name = operation.name
    if name == "arith.index_cast":
        return b.cast(_index_cast(source, target), value, target.llvm)
    if _CASTS[name] == "bitcast":
        return _reinterpreted(b, source, target, value)
    if _CASTS[name]:
        return _round(b, target, b.cast(_CASTS[name], value, target.llvm))
    if source.bits == 64 and target.is_narrow:
        value, source = narrow_floats.to_odd(b, value), F32
    if target.is_narrow and operation.attributes.get("rounding", "").startswith("0"):
        return narrow_floats.truncated(b, target, value)
    verb = "fptrunc" if target.bits < source.bits else "fpext"
    converted = b.cast(verb, value, target.llvm)
    return _round(b, target, converted) if target.is_narrow and target.bits <= source.bits else converted


def _reinterpreted(b: Builder, source: Element, target: Element, value: Value) -> Value:
    """The same bits as another type."""
    if source.kind == target.kind == "ptr" or source == target:
        return value
    bits = narrow_floats.encode(b, source, value) if source.is_narrow else value
    if target.is_narrow:
        return narrow_floats.decode(b, target, bits)
    return b.cast("bitcast", bits, target.llvm)
