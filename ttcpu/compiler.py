"""Triton's compiler interface: TTIR by Triton's own passes, then LLVM IR, then a shared library."""

from __future__ import annotations

import functools
import hashlib
import types
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from triton.backends.compiler import BaseBackend, GPUTarget, Language

from .errors import UnsupportedError
from .levels import level_named


@dataclass(frozen=True)
class CPUOptions:
    """Triton's options; those about warps are accepted, so that GPU kernels run unmodified."""

    arch: str = ""
    num_warps: int = 1
    num_stages: int = 1
    num_ctas: int = 1
    warp_size: int = 1
    debug: bool = False
    sanitize_overflow: bool = False
    extern_libs: tuple[tuple[str, str], ...] = ()
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16", "fp8e4b15")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    max_num_imprecise_acc_default: int = 0
    backend_name: str = "cpu"
    instrumentation_mode: str = ""
    fpsan_homomorphic_casts: bool = False
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 1
    maxnreg: int | None = None
    ir_override: str | None = None

    def hash(self) -> str:
        """Part of Triton's cache key."""
        return hashlib.sha256(repr(sorted(self.__dict__.items())).encode()).hexdigest()


class CPUBackend(BaseBackend):  # type: ignore[misc] # Triton has no types
    """Compiles for one level of x86-64; the target's `arch` is the level's name."""

    supports_native_tensor_specialization = False
    binary_ext = "so"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Whether the target is a CPU."""
        return bool(target.backend == "cpu")

    def parse_options(self, options: dict[str, Any]) -> CPUOptions:
        """Options by name; others are ignored, as GPU back ends do with each other's."""
        from triton import knobs  # noqa: PLC0415 - `import triton` imports this module before its own

        known = {field.name for field in fields(CPUOptions)}
        chosen = {name: value for name, value in options.items() if name in known and value is not None}
        fusion = knobs.language.fp_fusion_enabled(chosen.get("enable_fp_fusion"))
        return CPUOptions(**{**chosen, "arch": self.target.arch, "enable_fp_fusion": fusion})

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        """What Triton hands to the launcher beside the function."""
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, _options: CPUOptions) -> dict[str, Any]:
        """Products of any size."""
        return {"min_dot_size": lambda _lhs, _rhs: (1, 1, 1)}

    def get_module_map(self) -> dict[str, types.ModuleType]:
        """The device library of this target."""
        from . import libdevice  # noqa: PLC0415 - needs triton.language, which imports this package

        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, context: Any) -> None:
        """Triton's own dialects are enough."""

    @functools.cache  # noqa: B019 - one back end per process
    def hash(self) -> str:
        """The identity of this back end in Triton's cache key: its own sources."""
        sources = sorted(Path(__file__).parent.glob("*.py"))
        return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()

    def add_stages(self, stages: dict[str, Any], options: CPUOptions, language: Language) -> None:
        """ttir, llir, asm, so."""
        if language != Language.TRITON:
            raise UnsupportedError(
                "the CPU back end compiles Triton, not Gluon: Gluon's layouts describe GPU registers"
            )
        from .codegen import assembly, shared_library  # noqa: PLC0415 - 10 ms of `import triton`
        from .stages import make_llir, make_ttir  # noqa: PLC0415 - as above

        level, contract = level_named(self.target.arch), options.enable_fp_fusion
        stages["ttir"] = lambda module, _metadata: make_ttir(module)
        stages["llir"] = lambda module, metadata: make_llir(module, metadata, level, contract=contract)
        stages["asm"] = lambda text, _metadata: assembly(text, level, contract=contract)
        stages["so"] = lambda text, _metadata: shared_library(text, level)
