"""Checks of exported symbols and struct layout against `compat/api_levels.yaml`, not our own headers."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from aotforge.base.html import render
from aotforge.conformance.checks.calls import NO_COMPILER
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.compilers import Compiler
from aotforge.conformance.findings import Finding, failed, finding_from, not_run, set_violations
from aotforge.conformance.matrix_models import Interface
from aotforge.errors import ToolchainError
from aotforge.formats.shared_library import dynamic_symbols
from aotforge.library.build_linux import OPERATOR_LIBRARY

OURS = "<aotriton/flash.h>"
EXTRA = frozenset({"aotforge_cpu_threads", "aotforge_launch"})
"""Exported besides the interface: aotforge/launch.h."""

HIP = """#pragma once
enum hipError_t : unsigned { hipSuccess = 0 };
typedef struct ihipStream_t* hipStream_t;
"""
"""hip/hip_runtime.h, as far as the interface needs it."""

_FUNCTION, _ERROR = re.compile(r"AOTFORGE_OPS_API int aotforge_(\w+)\("), "aotforge_ops_error"
_SECONDS = 120


def spell(type_: str) -> str:
    """C++ for the file's short names: T4 is TensorView<4>, LT2 LazyTensor<2>."""
    return re.sub(r"\bLT(\d)\b", r"LazyTensor<\1>", re.sub(r"\bT(\d)\b", r"TensorView<\1>", type_))


def header(data: Interface, level: str) -> str:
    """The complete interface of a level as one header, namespace aotriton."""
    return render("interface.h.jinja", data=data, rules=data.levels[level], spell=spell)


def references(data: Interface, level: str) -> str:
    """A translation unit that refers to every symbol of the interface; it includes "interface.h"."""
    values = {"data": data, "rules": data.levels[level], "function_name": function_name}
    return render("interface_references.cpp.jinja", **values)


def layout(data: Interface, level: str, include: str) -> str:
    """A program that prints sizes, field offsets and constants as declared by `include`."""
    return render("interface_layout.cpp.jinja", data=data, rules=data.levels[level], include=include)


def function_name(declaration: str) -> str:
    """The name in a declaration such as `hipError_t check_gpu(Stream)`."""
    match = re.search(r"(\w+)\(", declaration)
    if match is None:
        raise ValueError(f"{declaration!r} does not declare a function")
    return match.group(1)


def _wanted_symbols(context: CheckContext, compiler: Compiler) -> set[str]:
    """Every symbol of the API level, from a generated program. Raises ToolchainError."""
    source = references(context.compat.interface, context.compat.level)
    program = _compile_facts(context, compiler, source, "-c", "-O0")
    symbols = dynamic_symbols(program, undefined=True, table=".symtab")
    symbols_of_api = {name for name in symbols if "aotriton" in name}
    # a constructor is two symbols: of a complete object, which programs call, and of a base
    return symbols_of_api | {name.replace("C1E", "C2E") for name in symbols_of_api}


def _compile_facts(context: CheckContext, compiler: Compiler, source: str, *more: str) -> Path:
    """A program compiled against the generated header and hip/hip_runtime.h. Raises ToolchainError."""
    text = header(context.compat.interface, context.compat.level).replace(
        "#include <hip/hip_runtime.h>", '#include "hip_runtime.h"'
    )
    flags = ["-std=c++17", "-Wno-invalid-offsetof", *more]
    files = {"interface.h": text, "hip_runtime.h": HIP}
    done = context.compile(compiler, source, flags=flags, files=files)
    if done.program is None:
        raise ToolchainError(f"{compiler.name} does not compile the interface", cause=done.output[-300:])
    return done.program


def check_symbols(context: CheckContext) -> Iterator[Finding]:
    """The libraries export exactly the API level's symbols, and the functions of the operator header."""
    what, extra = f"exactly the symbols of API level {context.compat.level}", "is exported and not part of it"
    if context.compilers:
        wanted = _wanted_symbols(context, context.compilers[-1])
        exported = dynamic_symbols(context.library) - EXTRA
        if context.upstream:  # its library exports much more than the interface
            what, exported = f"the symbols of API level {context.compat.level}", exported & wanted
        violations = set_violations(exported, wanted, extra)
        evidence = f"{len(wanted)} symbols and {', '.join(sorted(EXTRA))}"
        yield finding_from("symbols", what, _demangled(context, violations), evidence)
    else:
        yield not_run("symbols", what, NO_COMPILER)
    if library := context.libraries.get(OPERATOR_LIBRARY):
        what = "exactly the functions of the operator library's header, and of TVM FFI for each"
        header = library.parent.parent / "include" / "aotforge" / "ops.h"
        declared = _FUNCTION.findall(header.read_text())
        wanted = {f"{prefix}{name}" for prefix in ("aotforge_", "__tvm_ffi_") for name in declared} | {_ERROR}
        violations = set_violations(dynamic_symbols(library), wanted, extra)
        yield finding_from("symbols", what, violations, f"{len(declared)} functions")


def check_layout(context: CheckContext) -> Iterator[Finding]:
    """Sizes, offsets, enumerators and versions in the headers equal the API level's."""
    what = f"struct layout of API level {context.compat.level}"
    if not context.compilers:
        yield not_run("layout", what, NO_COMPILER)
        return
    compiler, data, level = context.compilers[-1], context.compat.interface, context.compat.level
    flags = ["-std=c++17", "-Wno-invalid-offsetof", "-O0"]
    ours = context.compile(compiler, layout(data, level, OURS), flags=flags)
    if ours.program is None:
        errors = re.findall(r"error: (.*)", ours.output)[:3]
        yield failed("layout", what, f"the headers lack members of the level: {'; '.join(errors)}")
        return
    source, link = layout(data, level, '"interface.h"'), "-Wl,--unresolved-symbols=ignore-all"
    printed = _printed(context, ours.program, {"LD_LIBRARY_PATH": str(context.prefix / "lib")})
    wanted = _printed(context, _compile_facts(context, compiler, source, "-O0", link), {})
    violations = [
        f"{name} is {printed.get(name, 'missing')}, not {value}"
        for name, value in wanted.items()
        if printed.get(name) != value
    ]
    violations += [
        f"{name} is {printed.get(name, 'missing')}, {value} was measured"
        for name, value in _measured(context).items()
        if printed.get(name, "").split(" ")[0] != str(value)
    ]
    yield finding_from(
        "layout", what, violations, f"{len(wanted)} sizes, offsets and values; {compiler.name}"
    )


def _measured(context: CheckContext) -> dict[str, int]:
    """Sizes and offsets that were measured on the reference's own headers."""
    data, rules = context.compat.interface, context.compat.interface.levels[context.compat.level]
    views = {f"TensorView<{rank}>": size for rank, size in data.tensor_view.sizes.items()}
    lazy = {f"LazyTensor<{rank}>": size for rank, size in rules.lazy_tensor.size.items()}
    sizes = {name: entry.size for name, entry in rules.structs.items()}
    offsets = {
        f"{name}.{field}": offset
        for name, entry in rules.structs.items()
        for field, offset in entry.offsets.items()
    }
    return views | lazy | sizes | offsets


def _printed(context: CheckContext, program: Path, environment: dict[str, str]) -> dict[str, str]:
    folders = [context.work, program.parent]
    done = context.programs.run([str(program)], environment=environment, readable=folders, seconds=_SECONDS)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def _demangled(context: CheckContext, names: list[str]) -> list[str]:
    """Texts with C++ names as in source code, where binutils are installed."""
    if not names or shutil.which("c++filt") is None:
        return names
    done = context.programs.compile(["c++filt"], readable=(), seconds=_SECONDS, text="\n".join(names))
    return done.stdout.splitlines() if done.status == 0 else names
