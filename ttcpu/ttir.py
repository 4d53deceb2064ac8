"""Triton's TTIR module as an `Operation`: libtriton prints MLIR's generic form, which is parsed."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from triton._C import libtriton

from .mlir import Operation, parse

_ON = (b"-mlir-print-op-generic", b"-mlir-print-local-scope")
_LOCK = threading.Lock()
_registered = False


def read_module(module: Any) -> Operation:
    """A libtriton `ir.module` as values. Raises CompileError when its text cannot be parsed."""
    return parse(_generic_text(module))


def _generic_text(module: Any) -> str:
    """The generic form is a process-wide option of the printer, which is put back."""
    global _registered  # noqa: PLW0603 - MLIR refuses to register its options twice
    library = ctypes.CDLL(libtriton.__file__)
    with _LOCK:
        if not _registered:
            library._ZN4mlir27registerAsmPrinterCLOptionsEv()
            _registered = True
        _set_options(library, _ON)
        try:
            return str(module.str())
        finally:
            _set_options(library, tuple(option + b"=false" for option in _ON))


def _set_options(library: ctypes.CDLL, options: tuple[bytes, ...]) -> None:
    library._ZN4llvm2cl25ResetAllOptionOccurrencesEv()
    arguments = (ctypes.c_char_p * (len(options) + 1))(b"aotforge", *options)
    library.LLVMParseCommandLineOptions(len(arguments), arguments, None)
