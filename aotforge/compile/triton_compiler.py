"""One compile job through Triton's back end for its vendor, stage by stage.

Imported in worker processes only: it loads Triton. `triton.compile` is not used: it has a cache, dumps and a
driver look-up of its own.
"""

import hashlib
import importlib
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
import zstandard
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, make_backend
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import JITFunction

from aotforge.compile.cache_entry import Entry, Summary
from aotforge.errors import ToolchainError
from aotforge.plan.closure import SourceTree
from aotforge.plan.model import CompileJob, has_line_info
from aotforge.rules import ValueType
from aotforge.targets.backend import check_no_paths
from aotforge.targets.backends import BACKENDS, TYPICAL_TARGET, backend_of
from ttcpu.compiler import CPUBackend

PACKAGE = "aotforge_kernels"
"""Kernels are modules of this package in every kernels root, because module names enter symbols of functions
that are not inlined."""

_GPU_IR = "ttgir"
"""The stage of Triton whose result conversions are cured in."""
_VALUE_TYPES: dict[str, ValueType] = {"i32": "i32", "i64": "i64", "u64": "u64", "fp32": "f32"}


@triton.jit  # type: ignore[untyped-decorator]
def warm_up(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Double the elements of x below n: the kernel that a new worker compiles before its first job."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


class SourceChangedError(Exception):
    """The kernel's source has changed since it was planned."""


class Compiler:
    """Compiles jobs of one kernels root in this process."""

    def __init__(self, kernels_root: Path) -> None:
        self._root = kernels_root.resolve()
        self._before = SourceTree(root=self._root)
        self._checked: set[str] = set()
        self._compressor = zstandard.ZstdCompressor(level=3, write_content_size=True)
        package = types.ModuleType(PACKAGE)
        package.__path__ = [str(self._root)]
        sys.modules[PACKAGE] = package
        # no byte code of kernels: a stale one would compile other constants than the source's
        sys.dont_write_bytecode = True
        sys.pycache_prefix = "/nonexistent"

    def compile(self, job: CompileJob) -> Entry:
        """Compile and check. Raises all of Triton, CodeObjectError, SourceChangedError, ToolchainError."""
        if triton.__version__ != job.toolchain.triton_version:
            raise ToolchainError(
                f"worker has Triton {triton.__version__}, the plan {job.toolchain.triton_version}"
            )
        backend = backend_of(job.target.vendor)
        backend.check_toolchain(job.target)
        binary, assembly, metadata = run_stages(self._function(job), job)
        backend.check(binary, job.target, parameter_types(job), metadata)
        found = backend.read(binary)
        if not has_line_info(job):
            own, compiler = Path(__file__).parents[2], Path(triton.__file__).parent
            check_no_paths(binary, (str(self._root), str(compiler), str(own), tempfile.gettempdir()))
        compressed = self._compressor.compress(assembly.encode("utf-8"))
        summary = Summary(
            key=job.key,
            digest=hashlib.sha256(binary).hexdigest(),
            symbol=found.symbol,
            stats=backend.stats(binary, metadata),
            arguments=found.arguments,
            binary_size=len(binary),
            asm_size=len(compressed),
        )
        return Entry(summary=summary, binary=binary, asm_zstd=compressed)

    def warm_up(self) -> None:
        """Compile something small: tables and libraries are loaded before this process forks."""
        signature = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
        lower(warm_up, GPUTarget(*TYPICAL_TARGET), signature, {"BLOCK": 64}, {}, {"num_warps": 1})

    def _function(self, job: CompileJob) -> Any:
        """The kernel function, from source that has the planned digest before and after importing it."""
        module = job.source.removesuffix(".py").replace("/", ".")
        self._check(self._before, job)
        function = getattr(importlib.import_module(f"{PACKAGE}.{module}"), job.function)
        if job.source not in self._checked:
            self._check(SourceTree(root=self._root), job)
            self._checked.add(job.source)
            self._name_files()
        return function

    def _name_files(self) -> None:
        """Give functions file names relative to the root: messages of assertions in an image have them."""
        for name, module in list(sys.modules.items()):
            for function in vars(module).values() if name.startswith(f"{PACKAGE}.") else ():
                path = Path(getattr(function, "file_name", ""))
                if isinstance(function, JITFunction) and path.is_relative_to(self._root):
                    function.file_name = path.relative_to(self._root).as_posix()

    def _check(self, tree: SourceTree, job: CompileJob) -> None:
        if tree.digest(job.source) != job.source_digest:
            raise SourceChangedError(f"{job.source} changed after the plan was made")


def parameter_types(job: CompileJob) -> tuple[ValueType, ...]:
    """Types of a job's run-time parameters in order."""
    kinds = [kind for _, kind in job.signature if kind != "constexpr"]
    return tuple("ptr" if kind.startswith("*") else _VALUE_TYPES[kind] for kind in kinds)


def run_stages(function: Any, job: CompileJob) -> tuple[bytes, str, dict[str, Any]]:
    """Image, assembly text and Triton's metadata of one job."""
    vendor = backend_of(job.target.vendor)
    target = GPUTarget(*vendor.triton_target(job.target))
    position = {name: index for index, (name, _) in enumerate(job.signature)}
    hints = {(position[name],): [["tt.divisibility", value]] for name, value in job.hints}
    constants, options = dict(job.constants), dict(job.options)
    with vendor.aliased(job.aliases):
        return lower(function, target, dict(job.signature), constants, hints, options, cures=job.cures)


@contextmanager
def _locations() -> Iterator[None]:
    """Source lines in the first representation, for messages of assertions; none later."""
    before = os.environ.get("TRITON_DISABLE_LINE_INFO", "0")
    os.environ["TRITON_DISABLE_LINE_INFO"] = "0"
    try:
        yield
    finally:
        os.environ["TRITON_DISABLE_LINE_INFO"] = before


def lower(
    function: Any,
    target: Any,
    signature: dict[str, str],
    constants: dict[str, Any],
    hints: dict[tuple[int], list[list[Any]]],
    options: dict[str, Any],
    cures: tuple[str, ...] = (),
) -> tuple[bytes, str, dict[str, Any]]:
    """Image, assembly text and Triton's metadata of one specialisation, without the hazards in `cures`."""
    vendor = next(one for one in BACKENDS.values() if one.triton_name == target.backend)
    # the entry point of an installed package is not needed
    backend = CPUBackend(target) if target.backend == "cpu" else make_backend(target)
    make = GluonASTSource if function.is_gluon() else ASTSource
    source = make(function, signature, constants, hints)
    parsed = backend.parse_options(options)
    metadata: dict[str, Any] = dict(parsed.__dict__)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with _locations() if options.get("debug") else nullcontext():
        module: Any = source.make_ir(
            target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context
        )
    assembly = ""
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == _GPU_IR:
            module = vendor.with_exact_conversions(module, context, cures)
        if name == vendor.text_stage:
            module = assembly = vendor.without_hazards(module, cures)
    return module, assembly, metadata
