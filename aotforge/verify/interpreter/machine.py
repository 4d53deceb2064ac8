"""Triton's interpreter with corrections that make it a check of kernel sources.

A kernel's functions are copied and rewritten, and Triton's language is patched during a run, so that the
process can compile the same kernels. Corrected: bfloat16 rounding and dot products; arguments have the types
of the signature; every access is checked against `Memory`. Other bfloat16 arithmetic is refused. Not
modelled: fused multiply-add, the order of sums, hardware exp2 and log2. Not supported: tl.sort and similar
functions, tensor methods that are library functions (`x.sum()`), several threads at once.
"""

import itertools
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import standard
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from aotforge.errors import RulesError, UnsupportedError
from aotforge.plan.families import family_module
from aotforge.plan.model import CompileJob
from aotforge.rules import Scalar
from aotforge.verify.interpreter.dispatch import Launch
from aotforge.verify.interpreter.memory import AccessCheck
from aotforge.verify.interpreter.number_formats import bf16_bits, bf16_values
from vgpu.memory import Memory

Opaque = Any
"""Triton's own objects: it ships no types for them."""

_JIT = (JITFunction, interpreter.InterpretedFunction)
_SCALARS: dict[str, tuple[Opaque, Opaque]] = {
    "i32": (np.int32, tl.int32),
    "i64": (np.int64, tl.int64),
    "u64": (np.uint64, tl.uint64),
    "fp32": (np.float32, tl.float32),
}
_POINTEES: dict[str, Opaque] = {
    "fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32, "i32": tl.int32, "i64": tl.int64,
        "u64": tl.uint64,
}  # fmt: skip


def run_launch(job: CompileJob, launch: Launch, folder: Path, memory: Memory) -> None:
    """Runs the source of a job, of the family in `folder`. Raises RulesError, and as `execute`."""
    module = ".".join(Path(job.source).with_suffix("").parts[1:])
    function = getattr(family_module(folder, module), job.function, None)
    if function is None:
        raise RulesError(f"{folder.parent / job.source} has no function {job.function}")
    execute(
        function,
        types_=dict(job.signature),
        arguments=launch.arguments,
        constants=dict(job.constants),
        grid=launch.grid,
        memory=memory,
    )


def execute(
    function: Opaque,
    *,
    types_: Mapping[str, str],
    arguments: Mapping[str, int | float],
    constants: Mapping[str, Scalar],
    grid: tuple[int, int, int],
    memory: Memory,
) -> None:
    """Run every program of `grid`, x fastest. Pointers are addresses inside `memory`.

    `types_`: spellings in the signature. Raises ExecutionError for other accesses, OverflowError.
    """
    kernel = _COPIES.rewrite(function)
    builder = interpreter.interpreter_builder
    with _patched(function, memory), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # infinities and NaN are normal in kernels
        call = {name: _typed(types_[name], value) for name, value in arguments.items()}
        builder.set_grid_dim(*grid)
        for z, y, x in itertools.product(*map(range, reversed(grid))):
            builder.set_grid_idx(x, y, z)
            kernel(**call, **constants)


def _typed(spelling: str, value: int | float) -> Opaque:
    """A scalar tensor of the signature's type: 32- and 64-bit arithmetic wraps as in the compiled kernel."""
    if spelling.startswith("*"):
        storage, type_ = np.uint64, tl.pointer_type(_POINTEES[spelling[1:]])
    else:
        storage, type_ = _SCALARS[spelling]
    return tl.tensor(interpreter.TensorHandle(np.array([value], dtype=storage), type_), type_)


class _Rewriter:
    """Interpretable copies of jit functions and of all that they call; originals do not change."""

    def __init__(self) -> None:
        self._copies: dict[object, Callable[..., Opaque]] = {}
        self._globals: dict[int, dict[str, Opaque]] = {}

    def rewrite(self, jit: Opaque) -> Callable[..., Opaque]:
        """A plain function that does on numpy what the kernel does."""
        fn = jit.fn
        if fn not in self._copies:
            namespace = self._copied_globals(fn)
            copy = types.FunctionType(fn.__code__, namespace, fn.__name__, fn.__defaults__, fn.__closure__)
            copy.__kwdefaults__ = fn.__kwdefaults__
            self._copies[fn] = interpreter.FunctionRewriter(copy).rewrite_ast()
        return self._copies[fn]

    def lazily(self, jit: Opaque) -> Callable[..., Opaque]:
        """The same, rewritten at the first call: a module holds many more functions than a kernel uses."""
        return lambda *args, **kwargs: self.rewrite(jit)(*args, **kwargs)  # noqa: PLW0108 - lazy

    def _copied_globals(self, fn: Opaque) -> dict[str, Opaque]:
        """The function's globals with jit functions replaced; one copy per module."""
        original = fn.__globals__
        if id(original) not in self._globals:
            copied = self._globals[id(original)] = dict(original)
            for name, value in original.items():
                if isinstance(value, _JIT) and not _is_combiner(original, name):
                    copied[name] = self.lazily(value)
        return self._globals[id(original)]


_COPIES = _Rewriter()


def _is_combiner(module_globals: Mapping[str, Opaque], name: str) -> bool:
    # the interpreter recognises Triton's own reductions by the identity of their private combine functions
    return module_globals.get("__name__") == standard.__name__ and name.startswith("_")


@contextmanager
def _patched(function: Opaque, memory: Memory) -> Iterator[None]:
    """Triton's language on numpy, with the corrections named above, until the context ends."""
    scopes = [interpreter._patch_lang(function.fn), interpreter._patch_lang(standard.zeros.fn)]
    try:
        scope = interpreter._LangPatchScope()
        scopes.append(scope)
        for name, value in list(vars(tl).items()):
            if isinstance(value, _JIT):
                scope.set_attr(tl, name, _COPIES.lazily(value))
        builder = interpreter.interpreter_builder
        for name, member in _corrections(builder, memory).items():
            scope.set_attr(builder, name, member)
        yield
    finally:
        for scope in reversed(scopes):
            scope.restore()


def _corrections(builder: Opaque, memory: Memory) -> dict[str, Callable[..., Opaque]]:
    cast, binary = builder.cast_impl, builder.binary_op
    load, store = builder.create_masked_load, builder.create_masked_store

    check = AccessCheck(memory)

    def cast_impl(src: Opaque, dst_type: Opaque) -> Opaque:
        pair = (src.dtype.scalar, dst_type.scalar)
        if pair == (tl.float32, tl.bfloat16):
            return interpreter.TensorHandle(bf16_bits(src.data), tl.bfloat16)
        if pair == (tl.bfloat16, tl.float32):
            return interpreter.TensorHandle(bf16_values(src.data), tl.float32)
        if tl.bfloat16 in pair and pair[0] != pair[1]:
            raise UnsupportedError(f"the interpreter does not convert {pair[0]} to {pair[1]}")
        return cast(src, dst_type)

    def binary_op(lhs: Opaque, rhs: Opaque, op: Opaque) -> Opaque:
        if tl.bfloat16 in (lhs.dtype.scalar, rhs.dtype.scalar):
            raise UnsupportedError(
                "the interpreter does not calculate in bfloat16",
                hint="convert to float32 first, as the hardware would",
            )
        return binary(lhs, rhs, op)

    def create_dot(
        a: Opaque, b: Opaque, d: Opaque, input_precision: Opaque, max_num_imprecise_acc: Opaque
    ) -> Opaque:
        left, right = (bf16_values(x.data) if x.dtype.scalar == tl.bfloat16 else x.data for x in (a, b))
        return interpreter.TensorHandle(np.matmul(left, right, dtype=d.data.dtype) + d.data, d.dtype.scalar)

    def create_masked_load(
        ptrs: Opaque, mask: Opaque, other: Opaque, cache_policy: Opaque, is_volatile: Opaque
    ) -> Opaque:
        check(ptrs.data[mask.data], _bytes(ptrs), "read")
        return load(ptrs, mask, other, cache_policy, is_volatile)

    def create_masked_store(ptrs: Opaque, value: Opaque, mask: Opaque, cache_policy: Opaque) -> Opaque:
        check(ptrs.data[mask.data], _bytes(ptrs), "write")
        return store(ptrs, value, mask, cache_policy)

    corrections = (cast_impl, binary_op, create_dot, create_masked_load, create_masked_store)
    return {function.__name__: function for function in corrections}


def _bytes(ptrs: Opaque) -> int:
    return int(ptrs.get_element_ty().primitive_bitwidth) // 8
