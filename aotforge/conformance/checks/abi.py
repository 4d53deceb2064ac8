"""Symbols and struct layout against the API level, and against the previous point release (libabigail)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.compilers import Compilation, Compiler
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.conformance.interface import HIP, header, layout, references
from aotforge.errors import ToolchainError

OURS = "<aotriton/flash.h>"
EXTRA = frozenset({"aotforge_launch"})
"""Exported besides the interface: aotforge/launch.h."""

_SECONDS = 120


def dynamic_symbols(path: Path, *, undefined: bool = False, table: str = ".dynsym") -> set[str]:
    """Names of defined (or undefined) symbols of an ELF file's table."""
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(table)
        if not isinstance(section, SymbolTableSection):
            return set()
        return {
            symbol.name
            for symbol in section.iter_symbols()
            if symbol.name
            and symbol["st_info"]["bind"] != "STB_LOCAL"
            and (symbol["st_shndx"] == "SHN_UNDEF") == undefined
        }


def wanted_symbols(context: CheckContext, compiler: Compiler) -> set[str]:
    """Every symbol of the API level, from a program that is generated from the facts. Raises ToolchainError when it does not compile."""
    data, level = context.compat.interface, context.compat.level
    done = _foreign(context, compiler, references(data, level), ["-c", "-O0"])
    if done.program is None:
        raise ToolchainError(
            f"{compiler.name} does not compile the interface's references", cause=done.output[-300:]
        )
    found = {
        name for name in dynamic_symbols(done.program, undefined=True, table=".symtab") if "aotriton" in name
    }
    # a constructor is two symbols: of a whole object, which programs call, and of a base
    return found | {name.replace("C1E", "C2E") for name in found}


def _foreign(context: CheckContext, compiler: Compiler, source: str, flags: list[str]) -> Compilation:
    """Compiled against the generated header; hip/hip_runtime.h is generated too."""
    text = header(context.compat.interface, context.compat.level).replace(
        "#include <hip/hip_runtime.h>", '#include "hip_runtime.h"'
    )
    files = [("interface.h", text), ("hip_runtime.h", HIP)]
    return context.compilations.compile(
        compiler, source, flags=["-std=c++17", "-Wno-invalid-offsetof", *flags], files=files
    )


def check_symbols(context: CheckContext) -> list[Finding]:
    """The library exports the API level's symbols, all of them and nothing else."""
    what = f"exactly the symbols of API level {context.compat.level}"
    if not context.compilers:
        return [not_run("symbols", what, "no C++ compiler of the wanted versions")]
    wanted = wanted_symbols(context, context.compilers[-1])
    there = dynamic_symbols(context.library)
    wrong = [f"{name} is missing" for name in demangled(sorted(wanted - there))]
    wrong += [f"{name} is exported and no part of it" for name in demangled(sorted(there - wanted - EXTRA))]
    return [finding_from("symbols", what, wrong, f"{len(wanted)} symbols and {', '.join(sorted(EXTRA))}")]


def check_layout(context: CheckContext) -> list[Finding]:
    """Sizes, offsets, enumerators and versions as the headers have them, against the API level's."""
    what = f"struct layout of API level {context.compat.level}"
    if not context.compilers:
        return [not_run("layout", what, "no C++ compiler of the wanted versions")]
    compiler, data, level = context.compilers[-1], context.compat.interface, context.compat.level
    standin = [context.standin.include] if context.standin.include else []
    ours = context.compilations.compile(
        compiler,
        layout(data, level, OURS),
        includes=[context.prefix / "include", *standin],
        inputs=[context.headers, context.standin.digest],
        flags=["-std=c++17", "-Wno-invalid-offsetof", "-O0"],
        objects=[context.library],
    )
    theirs = _foreign(
        context,
        compiler,
        layout(data, level, '"interface.h"'),
        ["-O0", "-Wl,--unresolved-symbols=ignore-all"],
    )
    if ours.program is None:
        errors = re.findall(r"error: (.*)", ours.output)[:3]
        return [failed("layout", what, f"the headers lack what the level has: {'; '.join(errors)}")]
    if theirs.program is None:
        raise ToolchainError(
            f"{compiler.name} does not compile the interface's layout", cause=theirs.output[-300:]
        )
    here = _printed(ours.program, {"LD_LIBRARY_PATH": str(context.prefix / "lib")})
    there = _printed(theirs.program, {})
    wrong = [
        f"{name} is {here.get(name, 'missing')}, not {there[name]}"
        for name in there
        if here.get(name) != there[name]
    ]
    wrong += _measured(context, here)
    return [finding_from("layout", what, wrong, f"{len(there)} sizes, offsets and values; {compiler.name}")]


def _measured(context: CheckContext, here: dict[str, str]) -> list[str]:
    """Against the figures that were measured on the reference's own headers."""
    data, rules = context.compat.interface, context.compat.interface.levels[context.compat.level]
    wanted = {f"TensorView<{rank}>": size for rank, size in data.tensor_view.sizes.items()}
    wanted |= {f"LazyTensor<{rank}>": rules.lazy_tensor.size for rank in (2, 4)}
    for name, entry in rules.structs.items():
        wanted[name] = entry.size
        wanted |= {f"{name}.{field}": offset for field, offset in entry.offsets.items()}
    return [
        f"{name} is {here.get(name, 'missing')}, {value} was measured"
        for name, value in wanted.items()
        if here.get(name, "").split(" ")[0] != str(value)
    ]


def _printed(program: Path, environment: dict[str, str]) -> dict[str, str]:
    done = subprocess.run(
        [program], capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def demangled(names: list[str]) -> list[str]:
    """C++ names as people write them, where binutils are installed."""
    if not names or shutil.which("c++filt") is None:
        return names
    done = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    return done.stdout.splitlines() if done.returncode == 0 else names
