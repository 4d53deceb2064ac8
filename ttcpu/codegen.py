"""LLVM IR to a shared library for x86-64, by the LLVM and the linker inside libtriton.

Optimising needs a module of libtriton's own, so the exported function is made in MLIR's LLVM dialect and the
IR, which it calls, is linked into it.
"""

from __future__ import annotations

import ctypes
import functools
import re
import tempfile
from pathlib import Path

from triton._C import libtriton
from triton._C.libtriton import amd, ir, llvm

from .errors import CompileError
from .image import DESCRIPTION
from .levels import Level
from .lowering import SUFFIX

TRIPLE = "x86_64-unknown-linux-gnu"
STACK = 384 << 10
"""Bytes of stack that a kernel may use: threads may have no more than 512 KiB."""
_FRAMES = re.compile(r"^\tsubq\t\$(\d+), %rsp\b", re.MULTILINE)
_SHIM = """module attributes {{llvm.target_triple = "{triple}"}} {{
{data}  llvm.func @{name}{suffix}(!llvm.ptr, !llvm.ptr) -> i32
  llvm.func @{name}(%arguments: !llvm.ptr, %launch: !llvm.ptr) -> i32 {{
    %status = llvm.call @{name}{suffix}(%arguments, %launch) : (!llvm.ptr, !llvm.ptr) -> i32
    llvm.return %status : i32
  }}
}}
"""
_DATA = (
    '  llvm.mlir.global external constant @{symbol}("{text}") {{addr_space = 0 : i32, alignment = 8 : i64}} '
    ": !llvm.array<{size} x i8>\n"
)


@functools.cache
def _initialise() -> None:
    library = ctypes.CDLL(libtriton.__file__)
    for part in ("TargetInfo", "Target", "TargetMC", "AsmParser", "AsmPrinter"):
        getattr(library, f"LLVMInitializeX86{part}")()
    llvm.init_targets()


def optimised(name: str, text: str, level: Level, description: bytes = b"") -> str:
    """LLVM IR of the kernel `name` after O3, with its `DESCRIPTION` if any. Raises CompileError."""
    _initialise()
    with tempfile.TemporaryDirectory() as folder:
        shim, kernel = Path(folder) / "shim.mlir", Path(folder) / "kernel.ll"
        data = "".join(f"\\{byte:02X}" for byte in description)
        shown = _DATA.format(symbol=DESCRIPTION, text=data, size=len(description)) if description else ""
        shim.write_text(_SHIM.format(triple=TRIPLE, name=name, suffix=SUFFIX, data=shown))
        kernel.write_text(text)
        context = ir.context()
        ir.load_dialects(context)
        module = ir.parse_mlir_module(str(shim), context)
        module.context = context
        llvm_context = llvm.context()
        result = llvm.to_module(module, llvm_context)
        llvm.attach_datalayout(result, TRIPLE, level.cpu, level.features)
        try:
            llvm.link_extern_libs(result, [str(kernel)])
        except RuntimeError as error:
            raise CompileError(f"the CPU back end wrote LLVM IR that LLVM rejects: {error}") from error
        llvm.optimize_module(result, llvm.OPTIMIZE_O3, level.cpu, level.features, [], True)
        return str(result)


def assembly(text: str, level: Level, *, contract: bool = True) -> str:
    """Assembly of optimised IR. Raises CompileError when its functions need more stack than `STACK`."""
    _initialise()
    made = str(llvm.translate_to_asm(text, TRIPLE, level.cpu, level.features, [], contract, False, False))
    needed = sum(map(int, _FRAMES.findall(made)))
    if needed > STACK:
        raise CompileError(
            f"the kernel needs {needed >> 10} KiB of stack, more than {STACK >> 10} KiB",
            cause="unrolled code has more values at once than the processor has registers",
            hint="use smaller blocks, or tl.range in place of tl.static_range",
        )
    return made


def shared_library(text: str, level: Level) -> bytes:
    """An ELF shared library of assembly; the C library's functions are left undefined."""
    _initialise()
    escaped = "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\{ord(c):02X}" for c in text)
    module = (
        f'target triple = "{TRIPLE}"\nmodule asm "{escaped}"\n'  # libtriton assembles AMD's instructions only
    )
    code = llvm.translate_to_asm(module, TRIPLE, level.cpu, level.features, [], True, True, False)
    with tempfile.TemporaryDirectory() as folder:
        part, complete = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
        part.write_bytes(code)
        amd.link_hsaco(str(part), str(complete))
        return complete.read_bytes()
