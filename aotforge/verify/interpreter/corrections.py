"""Corrections of Triton's interpreter: bfloat16 and fp8 as numbers, and bounds checks.

Conversions round to nearest even, once. Arithmetic is done in float32 and rounded after each operation;
reductions are rounded once.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton.runtime import interpreter

from aotforge.errors import ExecutionError, UnsupportedError
from aotforge.verify.interpreter.number_formats import Array, DType, bf16_values, decode, encode
from vgpu.memory import Memory

Opaque = Any
"""Triton's own objects: it ships no types for them."""

_PATTERNS: dict[Opaque, DType] = {
    tl.bfloat16: "bf16",
    tl.float8e5: "fp8e5",
    tl.float8e4nv: "fp8e4nv",
    tl.float8e4b8: "fp8e4b8",
    tl.float8e5b16: "fp8e5b16",
}
"""Types that the interpreter has as bit patterns in unsigned integers."""
_ARITHMETIC = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_clampf")
_TO_ZERO = interpreter._ir.ROUNDING_MODE.RTZ


def _is_pattern(type_: Opaque) -> bool:
    return not type_.is_ptr() and type_ in _PATTERNS  # a pointer's type has no hash


def numbers(data: Array, type_: Opaque) -> Array:
    """The numbers of a tensor of this type, exact."""
    if not _is_pattern(type_) or data.dtype == np.bool_:
        return data
    return bf16_values(data) if type_ == tl.bfloat16 else decode(data, _PATTERNS[type_])


def corrections(builder: Opaque, memory: Memory) -> Iterator[tuple[str, Callable[..., Opaque]]]:
    """Members of the interpreter's builder by name."""
    cast, convert = builder.cast_impl, builder.create_fp_to_fp

    def cast_impl(src: Opaque, dst_type: Opaque) -> Opaque:
        exact = _converted(src, dst_type)
        return cast(src, dst_type) if exact is None else exact

    def create_fp_to_fp(src: Opaque, dst_type: Opaque, rounding_mode: Opaque) -> Opaque:
        exact = None if rounding_mode == _TO_ZERO else _converted(src, dst_type)
        return convert(src, dst_type, rounding_mode) if exact is None else exact

    def create_dot(
        a: Opaque, b: Opaque, d: Opaque, input_precision: Opaque, max_num_imprecise_acc: Opaque
    ) -> Opaque:
        left, right = (numbers(x.data, x.dtype.scalar) for x in (a, b))
        return interpreter.TensorHandle(np.matmul(left, right, dtype=d.data.dtype) + d.data, d.dtype.scalar)

    yield from (("cast_impl", cast_impl), ("create_fp_to_fp", create_fp_to_fp), ("create_dot", create_dot))
    for name in _ARITHMETIC:
        yield name, _in_float32(getattr(builder, name))
    yield from _checked_accesses(builder, AccessCheck(memory))


def reduced_in_float32(reduce: Callable[..., Opaque]) -> Callable[..., Opaque]:
    """`tl.reduce` or `tl.associative_scan`, which numpy would do on bit patterns."""

    def corrected(input: Opaque, *rest: Opaque, **keywords: Opaque) -> Opaque:
        tensors = input if isinstance(input, tuple) else (input,)
        results = reduce(tuple(map(_wide, tensors)), *rest, **keywords)
        narrow = tuple(
            result.to(tensor.dtype) if _is_pattern(tensor.dtype) else result
            for result, tensor in zip(results, tensors, strict=True)
        )
        return narrow if isinstance(input, tuple) else narrow[0]

    return corrected


def _wide(tensor: Opaque) -> Opaque:
    return tensor.to(tl.float32) if _is_pattern(tensor.dtype) else tensor


def _converted(src: Opaque, dst_type: Opaque) -> Opaque | None:
    """The handle in another type, rounded once; None when neither type is a bit pattern."""
    source, target = src.dtype.scalar, dst_type.scalar
    if source == target or not (_is_pattern(source) or _is_pattern(target)):
        return None
    values = numbers(src.data, source)
    data = encode(values, _PATTERNS[target]) if _is_pattern(target) else _cast(values, target)
    return interpreter.TensorHandle(data, target)


def _cast(values: Array, target: Opaque) -> Array:
    return np.asarray(values.astype(interpreter._get_np_dtype(target)))


def _in_float32(operation: Callable[..., Opaque]) -> Callable[..., Opaque]:
    """The operation, done on float32 when an operand is a bit pattern; comparisons give bool."""

    def corrected(*operands: Opaque) -> Opaque:
        handles = [x for x in operands if isinstance(x, interpreter.TensorHandle)]
        narrow = next((x.dtype.scalar for x in reversed(handles) if _is_pattern(x.dtype.scalar)), None)
        if narrow is None:
            return operation(*operands)
        result = operation(*map(_as_float32, operands))
        if result.data.dtype == np.bool_:
            return interpreter.TensorHandle(result.data, tl.int1)
        return interpreter.TensorHandle(encode(result.data, _PATTERNS[narrow]), narrow)

    return corrected


def _as_float32(operand: Opaque) -> Opaque:
    if not isinstance(operand, interpreter.TensorHandle) or not _is_pattern(operand.dtype.scalar):
        return operand
    values = numbers(operand.data, operand.dtype.scalar).astype(np.float32)
    return interpreter.TensorHandle(values, tl.float32)


class AccessCheck:
    """The address ranges of a memory's buffers, against which accesses are checked."""

    def __init__(self, memory: Memory) -> None:
        spans = sorted((low, high, name) for name, low, high, _ in memory.spans())
        self._names = [name for _, _, name in spans]
        self._starts = np.array([start for start, _, _ in spans], dtype=np.uint64)
        self._ends = np.array([end for _, end, _ in spans], dtype=np.uint64)

    def __call__(self, addresses: npt.NDArray[np.uint64], size: int, access: str) -> None:
        """Raises ExecutionError for elements of `size` bytes in no buffer; `access`: "read" or "write"."""
        if not addresses.size:
            return
        if not self._names:
            raise ExecutionError(f"the kernel tried to {access} memory, and has no buffers")
        slot = np.searchsorted(self._starts, addresses, side="right").astype(np.int64) - 1
        outside = (slot < 0) | (addresses + np.uint64(size) > self._ends[np.maximum(slot, 0)])
        if outside.any():
            first = addresses[outside][0]
            near = int(np.argmin(np.abs(self._starts.astype(np.int64) - np.int64(first))))
            size_near = int(self._ends[near]) - int(self._starts[near])
            offset = int(first) - int(self._starts[near])
            raise ExecutionError(
                f"the kernel tried to {access} {size} bytes outside its buffers, "
                f"{int(outside.sum())} of {addresses.size} lanes",
                cause=f"the first address is {offset:+d} bytes from the start of {self._names[near]}, "
                f"which has {size_near} bytes",
                hint="look for a missing mask, or a stride that does not belong to this tensor",
            )


def _checked_accesses(builder: Opaque, check: AccessCheck) -> Iterator[tuple[str, Callable[..., Opaque]]]:
    load, store = builder.create_masked_load, builder.create_masked_store
    update, exchange = builder.create_atomic_rmw, builder.create_atomic_cas

    def create_masked_load(
        ptrs: Opaque, mask: Opaque, other: Opaque, cache_policy: Opaque, is_volatile: Opaque
    ) -> Opaque:
        check(ptrs.data[mask.data], _bytes(ptrs), "read")
        return load(ptrs, mask, other, cache_policy, is_volatile)

    def create_masked_store(ptrs: Opaque, value: Opaque, mask: Opaque, cache_policy: Opaque) -> Opaque:
        check(ptrs.data[mask.data], _bytes(ptrs), "write")
        return store(ptrs, value, mask, cache_policy)

    def create_atomic_rmw(op: Opaque, ptr: Opaque, value: Opaque, mask: Opaque, *rest: Opaque) -> Opaque:
        if _is_pattern(value.dtype.scalar):
            raise UnsupportedError(
                f"the interpreter has no atomics of {value.dtype.scalar}",
                cause="it would calculate on bit patterns",
                hint="verify executes the compiled kernel",
            )
        check(ptr.data[mask.data], _bytes(ptr), "write")
        return update(op, ptr, value, mask, *rest)

    def create_atomic_cas(ptr: Opaque, *rest: Opaque) -> Opaque:
        check(np.atleast_1d(ptr.data), _bytes(ptr), "write")
        return exchange(ptr, *rest)

    yield from (("create_masked_load", create_masked_load), ("create_masked_store", create_masked_store))
    yield from (("create_atomic_rmw", create_atomic_rmw), ("create_atomic_cas", create_atomic_cas))


def _bytes(ptrs: Opaque) -> int:
    return max(int(ptrs.get_element_ty().primitive_bitwidth), 8) // 8
