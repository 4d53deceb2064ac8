"""The vendor-neutral interface of `targets/<vendor>`, and the values that describe any image."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aotforge.rules import Scalar, Setting, Target, ValueType, Vendor
from aotforge.targets.conversions import exact_conversions
from aotforge.toolchain.backend_options import BackendOptions
from vgpu.code_object import CodeObjectError

if TYPE_CHECKING:
    from aotforge.base.architectures import Architecture  # pydantic, which compile workers in a rootfs lack

ExecutedBy = Literal["virtual GPU", "processor", "device"]
"""What executes images in verification: the emulator, this machine's processor if it has the level, or a GPU
that few machines have."""

SCRATCH_POINTERS = 2
"""Triton's global and profile scratch buffers: pointers after the parameters, null here."""
_SIZES = {"ptr": 8, "i32": 4, "i64": 8, "u64": 8, "f32": 4}


NOT_CODE: Mapping[str, str] = {
    "arch": "the target has it",
    "backend_name": "it is a name",
    "supported_fp8_dtypes": "it is a property of the arch",
    "deprecated_fp8_dot_operand_dtypes": "it is a property of the arch",
    "allowed_dot_input_precisions": "it is a property of the arch",
    "extern_libs": "it is a path of this machine",
    "instrumentation_mode": "instrumented images need memory that the library does not pass",
    "fpsan_homomorphic_casts": "it is part of the instrumentation",
    "launch_cooperative_grid": "it changes the launch, not the image",
    "sanitize_overflow": "it adds assertions to debug builds only",
}
"""Options of every back end of Triton that a Setting must not have, and why."""


@dataclass(frozen=True, kw_only=True)
class KernelArgument:
    """One argument in a code object's metadata: offset in the parameter buffer and size in bytes, and its
    kind."""

    offset: int
    size: int
    kind: str


def kernarg_layout(types: Iterable[str]) -> tuple[KernelArgument, ...]:
    """The parameter buffer of parameters with these types (`ValueType`): in order, naturally aligned."""
    arguments = []
    offset = 0
    for kind in types:
        size = _SIZES[kind]
        offset = -(-offset // size) * size
        arguments.append(
            KernelArgument(offset=offset, size=size, kind="global_buffer" if kind == "ptr" else "by_value")
        )
        offset += size
    return tuple(arguments)


def expected_arguments(types: Sequence[str]) -> tuple[KernelArgument, ...]:
    """The parameter buffer of a kernel: run-time parameters in order, then Triton's scratch pointers."""
    return kernarg_layout([*types, *["ptr"] * SCRATCH_POINTERS])


def check_arguments(
    found: Sequence[KernelArgument], types: Sequence[str], name: str, hidden: Collection[str] = ()
) -> None:
    """Raises CodeObjectError for arguments that are not those of parameters with these types; of the `hidden`
    kinds there may be more behind them."""
    for number, (have, want) in enumerate(itertools.zip_longest(found, expected_arguments(types))):
        if have != want and (want is not None or have is None or have.kind not in hidden):
            have_text, want_text = (
                f"{one.size} bytes at {one.offset} ({one.kind})" if one else "missing" for one in (have, want)
            )
            raise CodeObjectError(f"{name} {number} is {have_text}, the plan's is {want_text}")


def check_no_scratch(metadata: Mapping[str, Any]) -> None:
    """Raises CodeObjectError for a kernel that needs buffers of scratch memory by Triton's metadata."""
    for name in ("global_scratch_size", "profile_scratch_size"):
        if metadata.get(name):
            raise CodeObjectError(f"needs {name} {metadata[name]}, which the runtime does not allocate")


def check_no_paths(binary: bytes, paths: tuple[str, ...]) -> None:
    """Images must not contain paths of this machine. Raises CodeObjectError naming the path."""
    for path in paths:
        if len(path) > 3 and path.encode() in binary:
            raise CodeObjectError(f"contains the host path {path}")


@dataclass(frozen=True, kw_only=True)
class CodeObjectStats:
    """Resource use as an image's metadata and Triton report it. Shared memory in bytes per workgroup.

    `registers`: per lane; `accumulation_registers` and `scalar_registers` (AMD's AGPRs and SGPRs) are 0 where
    the vendor has none. `scratch_bytes`: memory per lane that holds spilled registers.
    """

    registers: int = 0
    accumulation_registers: int = 0
    scalar_registers: int = 0
    spilled_registers: int = 0
    spilled_scalar_registers: int = 0
    scratch_bytes: int = 0
    static_shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    warp_size: int
    num_warps: int


@dataclass(frozen=True, kw_only=True)
class CodeObject:
    """What an image itself states: the kernel's symbol, its explicit arguments, threads of a workgroup."""

    symbol: str
    arguments: tuple[KernelArgument, ...]
    threads: int


class Backend:
    """One vendor: a base class, whose methods with a result are what most vendors need.

    Methods on images raise CodeObjectError for bytes that cannot be read.

    `triton_name` is that of Triton's back end, `archs` the form of the archs' names, `text_stage` the stage
    that gives the assembly text (the last one gives the image), `options` those that a Setting may have.
    `framework`: the name of frameworks' builds for it. `truncates_sums`: its matrix units cut sums of
    half-precision products off where others round them.
    """

    vendor: ClassVar[Vendor]
    executed_by: ClassVar[ExecutedBy]
    triton_name: ClassVar[str]
    archs: ClassVar[re.Pattern[str]]
    text_stage: ClassVar[str]
    options: ClassVar[BackendOptions]
    framework: ClassVar[str]
    truncates_sums: ClassVar[bool] = False

    def triton_target(self, target: Target) -> tuple[str, str | int, int]:
        """Arguments of Triton's GPUTarget."""
        return self.triton_name, target.arch, target.warp_size

    def compiler_digest(self) -> str:
        """Of sources of this project that decide an image's bytes; '' where Triton alone does."""
        return ""

    def check_toolchain(self, target: Target) -> None:
        """Raises ToolchainError when this installation of Triton lacks what the target needs."""

    def aliased(self, aliases: tuple[tuple[str, str], ...]) -> AbstractContextManager[None]:
        """While it lasts, passes of Triton's back end get another arch than the target's: pairs of a job's
        `aliases`.

        For worker processes: it loads Triton. Raises ToolchainError for a pass that Triton lacks.
        """
        return nullcontext()

    def with_exact_conversions(self, module: Any, context: Any, hazards: Collection[str]) -> Any:
        """The module of Triton's GPU IR without conversions that have one of the hazards.

        For worker processes: it loads Triton.
        """
        text = str(module) if hazards else ""
        exact = exact_conversions(text, hazards)
        if exact == text:
            return module
        from triton._C.libtriton import ir  # noqa: PLC0415 - loads Triton, which only workers do

        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(exact)
            file.flush()
            parsed = ir.parse_mlir_module(file.name, context)
        parsed.context = context
        return parsed

    def without_hazards(self, assembly: str, hazards: Collection[str]) -> str:
        """The assembly text without code that has one of the hazards (`CompileJob.cures`)."""
        return assembly

    def read(self, binary: bytes) -> CodeObject:
        """What the image states."""
        raise NotImplementedError

    def check(
        self, binary: bytes, target: Target, types: tuple[ValueType, ...], metadata: Mapping[str, Any]
    ) -> None:
        """Raises CodeObjectError for an image that does not fit its target, its parameters' types or Triton's
        metadata."""
        raise NotImplementedError

    def stats(self, binary: bytes, metadata: Mapping[str, Any]) -> CodeObjectStats:
        """Resource use."""
        raise NotImplementedError

    def makes_host_calls(self, binary: bytes) -> bool:
        """Whether the kernel prints or asserts."""
        raise NotImplementedError

    def search_options(self, target: Target) -> Mapping[str, tuple[int, ...]]:
        """The vendor's own options of a Setting with the values that a search for settings tries."""
        return {}

    def framework_builds(self, versions: Sequence[str]) -> tuple[str, ...]:
        """Labels of the frameworks' builds that images and library serve. `versions`: those that a release
        promises to AMD's users."""
        raise NotImplementedError

    def framework_arch(self, arch: str) -> str:
        """An arch as frameworks name it; '' where they name none."""
        return ""

    def occupancy(self, stats: CodeObjectStats, architecture: Architecture) -> int:
        """Warps per scheduler (AMD: waves per SIMD) when only this kernel runs."""
        raise NotImplementedError


def allocated(count: int, granule: int) -> int:
    """What hardware gives for a count: a multiple of the granule, and not 0."""
    return max(granule, -(-count // granule) * granule)


def setting_options(backend: Backend, setting: Setting) -> tuple[tuple[str, Scalar], ...]:
    """Options of Triton's back end that a setting means: its fields by name, then the others by name."""
    fields = tuple((name, getattr(setting, name)) for name in sorted(backend.options.fields))
    return (*fields, *sorted(setting.options.items()))
