"""tt.dot_scaled: operands in blocks of 32 numbers with a common power of two, as float32 expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import narrow_floats
from .context import Context, unsupported
from .element_types import F32, Element, TensorType
from .lanes import Lanes, full, uniform
from .llvm_ir import Builder, Value, integer, lanes_of, real
from .mlir import Operation
from .tensors import Index, Tensor, merged_reads

_BLOCK = 32
_FLOATS = {0: "f8E4M3FN", 1: "f8E5M2", 5: "bf16", 6: "f16"}
_E2M1 = 4
"""Numbers of Triton's ScaleDotElemType; two numbers of the last one share a byte, the lower half first."""


def operands(ctx: Context, operation: Operation) -> tuple[Tensor, Tensor, Tensor]:
    """The factors as float32 expressions, and the addend."""
    counts = operation.integers("operandSegmentSizes")
    given = iter(operation.operands)
    a, b, c, a_scale, b_scale = (ctx.tensor(next(given)) if count else None for count in counts)
    assert a is not None
    assert b is not None
    assert c is not None
    sides = []
    for side, tensor, scale in (("a", a, a_scale), ("b", b, b_scale)):
        kind = operation.integer(f"{side}_elem_type")
        depth = len(tensor.shape) - (1 if side == "a" else 2)
        if kind == _E2M1 and not operation.boolean(f"{'lhs' if side == 'a' else 'rhs'}_k_pack"):
            raise unsupported(operation, "of numbers that are packed along another axis than the sum's")
        if kind != _E2M1 and kind not in _FLOATS:
            raise unsupported(operation, "of 6-bit floats")
        numbers = _unpacked(ctx, tensor, depth) if kind == _E2M1 else _floats(ctx, tensor, _FLOATS[kind])
        sides.append(numbers if scale is None else _scaled(ctx, numbers, scale, depth))
    return sides[0], sides[1], c


def _floats(ctx: Context, tensor: Tensor, name: str) -> Tensor:
    """Bytes, or floats already, as the numbers that they stand for."""
    element = Element(name, "float", 16 if name in {"bf16", "f16"} else 8)

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        value = ctx.evaluate(tensor, index, axis, width).vector(ctx.b)
        return full(
            F32, narrow_floats.decode(ctx.b, element, value) if tensor.element.kind == "int" else value
        )

    return _like(tensor, tensor.shape, evaluate, [tensor])


def _unpacked(ctx: Context, tensor: Tensor, depth: int) -> Tensor:
    """The numbers of E2M1 in pairs along the axis `depth`."""
    b = ctx.b
    shape = tuple(2 * size if axis == depth else size for axis, size in enumerate(tensor.shape))

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        where = (*index[:depth], b.binary("lshr", index[depth], integer(1)), *index[depth + 1 :])
        if axis == depth and width > 1:
            pairs = ctx.evaluate(tensor, where, axis, width // 2).vector(b)
            upper = b.binary("lshr", pairs, b.splat(integer(4, "i8"), width // 2))
            order = [lane // 2 + (width // 2 if lane % 2 else 0) for lane in range(width)]
            codes = (
                b.shuffle(pairs, upper, order)
                if width > 2
                else b.per_lane(2, "i8", lambda n: (pairs, upper)[n])
            )
        else:
            bytes_ = ctx.evaluate(tensor, where, axis, width).vector(b)
            odd = b.cast("trunc", b.binary("and", index[depth], integer(1)), "i8")
            codes = b.binary(
                "lshr", bytes_, b.splat(b.binary("shl", odd, integer(2, "i8")), lanes_of(bytes_.type))
            )
        return full(F32, _e2m1(b, codes))

    return _like(tensor, shape, evaluate, [tensor])


def _e2m1(b: Builder, codes: Value) -> Value:
    width = lanes_of(codes.type)
    word = b.cast("zext", codes, "i32")
    size = b.binary(
        "shl", b.binary("and", word, b.splat(integer(7, "i32"), width)), b.splat(integer(22, "i32"), width)
    )
    value = b.binary("fmul", b.cast("bitcast", size, "float"), b.splat(real(2.0**126), width))
    sign = b.binary(
        "shl", b.binary("and", word, b.splat(integer(8, "i32"), width)), b.splat(integer(28, "i32"), width)
    )
    return b.cast("bitcast", b.binary("or", b.cast("bitcast", value, "i32"), sign), "float")


def _scaled(ctx: Context, numbers: Tensor, scale: Tensor, depth: int) -> Tensor:
    """Each number times its block's power of two; `scale` is (rows, blocks) of a, (columns, blocks) of b."""
    b = ctx.b
    other = len(numbers.shape) - 1 if depth != len(numbers.shape) - 1 else depth - 1

    def evaluate(index: Index, axis: int, width: int) -> Lanes:
        values = ctx.evaluate(numbers, index, axis, width).vector(b)
        block = b.binary("lshr", index[depth], integer(_BLOCK.bit_length() - 1))
        where = (*index[: min(depth, other)], index[other], block)
        if axis == depth:
            powers = uniform(F32, width, _power(b, ctx.evaluate(scale, where, len(where) - 1, 1).vector(b)))
        else:
            powers = full(F32, _power(b, ctx.evaluate(scale, where, len(where) - 2, width).vector(b)))
        return full(F32, b.binary("fmul", values, powers.vector(b)))

    return _like(numbers, numbers.shape, evaluate, [numbers, scale])


def _power(b: Builder, codes: Value) -> Value:
    """2^(code - 127); 255 is NaN. The smallest power is a subnormal number."""
    width = lanes_of(codes.type)
    word = b.cast("zext", codes, "i32")
    bits = b.binary("shl", word, b.splat(integer(23, "i32"), width))
    zero = b.compare("icmp eq", word, b.splat(integer(0, "i32"), width))
    bits = b.select(zero, b.splat(integer(1 << 22, "i32"), width), bits)
    special = b.compare("icmp eq", word, b.splat(integer(255, "i32"), width))
    return b.select(special, b.splat(real(float("nan")), width), b.cast("bitcast", bits, "float"))


def _like(
    tensor: Tensor,
    shape: tuple[int, ...],
    evaluate: Callable[[Index, int, int], Lanes],
    sources: Sequence[Tensor],
) -> Tensor:

    reads = merged_reads(*sources, aligned=False)
    return Tensor(type=TensorType(shape, F32), evaluate=evaluate, cost=8, reads=reads, natural=tensor.natural)
