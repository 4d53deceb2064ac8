"""Triton's interpreter with corrections that make it a check of kernel sources.

A kernel's functions are copied and rewritten, and Triton's language is patched during a run, so that the
process can compile the same kernels. Corrected: bfloat16 and fp8 (`corrections`); arguments have the types of
the signature; every access is checked against `Memory`. Not modelled: fused multiply-add, the order of sums,
hardware exp2 and log2. Not supported: tl.sort and similar functions, tensor methods that are library
functions (`x.sum()`), several threads at once.
"""

import itertools
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import triton.language as tl
from triton.language import standard
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from aotforge.errors import RulesError
from aotforge.plan.families import family_module
from aotforge.plan.model import CompileJob
from aotforge.rules import Scalar
from aotforge.verify.interpreter.corrections import Opaque, corrections, reduced_in_float32
from aotforge.verify.interpreter.dispatch import Launch
from vgpu.memory import Memory

_JIT = (JITFunction, interpreter.InterpretedFunction)
_SCALARS: dict[str, tuple[Opaque, Opaque]] = {
    "i32": (np.int32, tl.int32),
    "i64": (np.int64, tl.int64),
    "u64": (np.uint64, tl.uint64),
    "fp32": (np.float32, tl.float32),
}


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
        storage, type_ = np.uint64, tl.str_to_ty(spelling, None)
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
        for name in ("reduce", "associative_scan"):
            corrected = reduced_in_float32(getattr(tl, name))
            scope.set_attr(tl, name, corrected)
            scope.set_attr(tl.core, name, corrected)
        for name, member in list(corrections(builder, memory)):
            scope.set_attr(builder, name, member)
        yield
    finally:
        for scope in reversed(scopes):
            scope.restore()
