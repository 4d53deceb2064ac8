"""x86-64 processors as a vendor of images: shared libraries, each for one level."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotforge.base.source_groups import group_digest
from aotforge.rules import Target, ValueType
from aotforge.targets.backend import NOT_CODE, Backend, CodeObject, CodeObjectStats, kernarg_layout
from aotforge.toolchain.backend_options import BackendOptions
from ttcpu import levels
from ttcpu.image import DESCRIPTION, HEADER, KINDS, NEEDED, VERSION, ImageDescription, Parameter
from ttcpu.levels import level_named
from vgpu.code_object import CodeObjectError, read_elf

if TYPE_CHECKING:
    from aotforge.base.architectures import Architecture

PREFIX = "cpu-"
"""Of an arch's name, before the level's."""
_LIMIT = 1 << 20
"""Bytes of an image's description of itself."""
_PRINTS = frozenset({"printf"})
_COMPILERS = re.compile(r"mem(cpy|move|set)|__(trunc|extend)[a-z]{2}f[a-z]{2}f2|__gnu_[fh]2[fh]_ieee")
"""Functions that LLVM itself calls: of memory, and conversions of float16 and bfloat16."""
_MATHEMATICS = re.compile(
    r"(acosh?|asinh?|atan[2h]?|cbrt|ceil|copysign|cosh?|erfc?|exp2?|exp10|expm1|fabs|fdim|floor|fma|fmax"
    r"|fmin|fmod|frexp|hypot|ilogb"
    r"|j[01n]|ldexp|lgamma|ll?rint|ll?round|log(10|1p|2|b)?|modf|nearbyint|nextafter|pow|remainder|rint"
    r"|round(even)?|scalbn|sinh?|sqrt"
    r"|tanh?|tgamma|trunc|y[01n])f?"
)
"""Functions of libm, for float64 and float32."""

_OF_GPUS = (
    *("num_warps", "num_stages", "num_ctas", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "maxnreg"),
    "max_num_imprecise_acc_default",
)
OPTIONS = BackendOptions(
    maker="CPU",
    source=str(Path(levels.__file__).with_name("compiler.py")),
    options_class="CPUOptions",
    fields=(),
    not_code={
        **NOT_CODE,
        "warp_size": "the target has it",
        "ir_override": "it is a path of this machine",
        **dict.fromkeys(_OF_GPUS, "it describes a GPU; images for CPUs do not depend on it"),
    },
)


class CpuBackend(Backend):
    """`Backend` of x86-64's levels."""

    vendor = "cpu"
    executed_by = "processor"
    triton_name = "cpu"
    archs = re.compile(r"cpu-x86-64-v[234](-[a-z0-9]+)?")
    text_stage = "asm"
    options = OPTIONS
    framework = "cpu"

    def triton_target(self, target: Target) -> tuple[str, str | int, int]:
        """Arguments of Triton's GPUTarget."""
        return self.triton_name, target.arch.removeprefix(PREFIX), target.warp_size

    def compiler_digest(self) -> str:
        """Of the lowering to LLVM IR, which this project does itself."""
        return group_digest("CPU compiler")

    def check_toolchain(self, target: Target) -> None:
        """Everything is in libraries that Triton loads. Raises UnsupportedError for a level that the compiler
        does not know."""
        level_named(target.arch.removeprefix(PREFIX))

    def read(self, binary: bytes) -> CodeObject:
        """What the image's description states; the runtime library takes arguments one by one, as in its
        packs."""
        found = read_description(binary)
        arguments = kernarg_layout(parameter.kind for parameter in found.parameters)
        return CodeObject(symbol=found.symbol, arguments=arguments, threads=1)

    def check(
        self, binary: bytes, target: Target, types: tuple[ValueType, ...], metadata: Mapping[str, Any]
    ) -> None:
        """Parameters, level, and nothing imported but mathematics and what compilers call."""
        found = read_description(binary)
        have, want = self.read(binary).arguments, kernarg_layout(types)
        if have != want:
            raise CodeObjectError(
                f"takes {', '.join(p.kind for p in found.parameters)}, the plan passes {', '.join(types)}"
            )
        if PREFIX + found.level != target.arch:
            raise CodeObjectError(f"is for {PREFIX}{found.level}, the target is {target.arch}")
        if found.symbol != metadata["name"]:
            raise CodeObjectError(f"exports {found.symbol}, the compiler named {metadata['name']}")
        unknown = [
            name
            for name in read_elf(binary).undefined
            if name not in _PRINTS and not _MATHEMATICS.fullmatch(name) and not _COMPILERS.fullmatch(name)
        ]
        if unknown:
            raise CodeObjectError(f"needs the functions {', '.join(unknown)}, which images must not call")

    def stats(self, binary: bytes, metadata: Mapping[str, Any]) -> CodeObjectStats:
        """The memory of a thread is in `static_shared_bytes`; registers are not counted."""
        return CodeObjectStats(static_shared_bytes=read_description(binary).scratch, warp_size=1, num_warps=1)

    def makes_host_calls(self, binary: bytes) -> bool:
        """Whether the image calls printf or can fail an assertion."""
        try:
            return bool(read_description(binary).messages) or not _PRINTS.isdisjoint(
                read_elf(binary).undefined
            )
        except CodeObjectError:
            return False  # another vendor's

    def framework_builds(self, versions: Sequence[str]) -> tuple[str, ...]:
        """One."""
        return ("cpu",)

    def occupancy(self, stats: CodeObjectStats, architecture: Architecture) -> int:
        """A processor executes one program at a time."""
        return 1


def read_description(binary: bytes) -> ImageDescription:
    """Raises CodeObjectError for a file that is not an image of this back end."""
    elf = read_elf(binary)
    try:
        at = elf.symbol(DESCRIPTION).value
        version, size, scratch, count, texts_after = HEADER.unpack_from(elf.memory, at)
        if size > min(_LIMIT, len(elf.memory) - at):
            raise ValueError(f"{size} bytes")
        data = elf.memory[at : at + size]
        if version != VERSION:
            raise CodeObjectError(f"{DESCRIPTION} has version {version}, not {VERSION}")
        kinds = data[HEADER.size : HEADER.size + count]
        texts = data[HEADER.size + count :].split(b"\0")
        if len(kinds) != count or len(texts) != texts_after + 3 or texts[-1]:
            raise ValueError("its parts do not have its size")
        symbol, level, *messages = (text.decode() for text in texts[:-1])
        parameters = tuple(Parameter(kind=KINDS[k & ~NEEDED], needed=bool(k & NEEDED)) for k in kinds)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CodeObjectError(f"{DESCRIPTION} is damaged: {error}") from error
    return ImageDescription(
        symbol=symbol, level=level, scratch=scratch, parameters=parameters, messages=tuple(messages)
    )


CPU = CpuBackend()
