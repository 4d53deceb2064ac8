"""Generated sources of the operator library: header, tables and exports, from the families' functions.

As a program, `python -m aotforge.library.operator_functions KERNELS FOLDER` writes them into FOLDER, which exists; it needs nothing
but the standard library.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from aotforge.errors import RulesError, suggest
from aotforge.plan.families import LoadedFamily, load_families
from aotforge.rules import DTYPE_NUMBERS, Elementwise, Form, Operator, Parameter, Value

_IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_RESERVED = ("launch", "ops", "tensor", "device", "type", "value")
"""First words of names that `aotforge_<name>` has in other headers."""
_KEYWORDS = frozenset({
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto",
    "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "typedef", "union", "unsigned", "void", "volatile", "while", "and", "class", "new", "not", "or", "this", "stream",
})  # fmt: skip
"""Words of C and C++ that a parameter must not have, and the last parameter of every function."""
_AXIS_VALUE = re.compile(r"(?:size|stride_(?P<tensor>\w+))_(?P<axis>[0-9]{1,2})")
_MOST_TENSORS, _MOST_AXES, _MOST_VALUES = 8, 8, 128
_FIXED = {"n": "count", "rows": "rows", "rank": "rank", "dtype": "dtype"}

HEADER = "include/aotforge/ops.h"
TABLES = "functions.cpp"
EXPORTS = "exports.map"


def function_sources(kernels: Path) -> dict[str, str]:
    """Generated files by name; none where no family declares a function. Raises RulesError."""
    families = load_families(kernels)
    found = [
        (function, _operators(loaded), kernels / loaded.folder / "rules.py")
        for loaded in families
        for function in loaded.family.functions
    ]
    if not found:
        return {}
    found.sort(key=lambda entry: entry[0].name)
    _check_names(found)
    for function, operators, file in found:
        _check_function(function, operators, file)
    functions = [function for function, _, _ in found]
    tables = "\n".join(_tables(function, operators) for function, operators, _ in found)
    return {HEADER: _header(functions), TABLES: _SOURCE.format(tables=tables), EXPORTS: _exports(functions)}


def _operators(loaded: LoadedFamily) -> dict[str, Operator]:
    return {operator.name: operator for operator in loaded.family.operators}


def _check_names(found: Iterable[tuple[Elementwise, Mapping[str, Operator], Path]]) -> None:
    known: dict[str, Path] = {}
    for function, _, file in found:
        if not _IDENTIFIER.fullmatch(function.name) or function.name.split("_")[0] in _RESERVED:
            raise RulesError(
                f"{file}: function {function.name!r} is not a valid name",
                cause=f"C knows it as aotforge_{function.name}, whose first word must not be {', '.join(_RESERVED)}",
                hint="use lower-case letters, digits and single underscores",
            )
        if function.name in known:
            raise RulesError(f"{file}: function {function.name} is also in {known[function.name]}")
        known[function.name] = file


def _check_function(function: Elementwise, operators: Mapping[str, Operator], file: Path) -> None:
    """Raises RulesError."""
    where = f"{file}: function {function.name}"
    names = [parameter.name for parameter in function.parameters]
    for name in names:
        if not _IDENTIFIER.fullmatch(name) or name in _KEYWORDS or name in _FIXED or names.count(name) > 1:
            raise RulesError(f"{where}: parameter {name!r} is not a valid name, or there are two of it")
    kinds = [parameter.kind for parameter in function.parameters]
    if kinds.count("output") != 1 or "input" not in kinds or len(kinds) > _MOST_TENSORS:
        raise RulesError(
            f"{where}: the parameters are {', '.join(kinds)}",
            cause=f"it has one output, at least one input, and {_MOST_TENSORS} parameters at most",
        )
    for dtype in function.dtypes or ("",):
        if dtype not in _DLPACK:
            raise RulesError(f"{where}: dtype {dtype!r}", hint=suggest(dtype, _DLPACK))
    if not function.forms:
        raise RulesError(f"{where} has no forms")
    for form in function.forms:
        if form.operator not in operators:
            raise RulesError(
                f"{where}: unknown operator {form.operator}", hint=suggest(form.operator, operators)
            )
        if not (1 <= form.rank <= _MOST_AXES and form.least >= 1 and form.most >= 1):
            raise RulesError(f"{where}: form {form} is out of range")
        for value in operators[form.operator].values:
            if _source(value, function, form) is None:
                raise RulesError(
                    f"{where}: value {value.name}:{value.type} of operator {form.operator} has no meaning",
                    cause="the library fills values by name and type: rules.Form lists them",
                )
        if len(operators[form.operator].values) > _MOST_VALUES:
            raise RulesError(f"{where}: operator {form.operator} has more than {_MOST_VALUES} values")


def _source(value: Value, function: Elementwise, form: Form) -> str | None:
    """Initializer of the table's entry for an operator value; None if the library cannot fill it."""
    kinds = {parameter.name: parameter.kind for parameter in function.parameters}
    places = {name: place for place, name in enumerate(kinds)}
    if value.name in kinds:
        wanted, source = ("i64", "number") if kinds[value.name] == "number" else ("ptr", "pointer")
        return f"{{From::{source}, {places[value.name]}, 0}}" if value.type == wanted else None
    if value.type not in ("i32", "i64"):
        return None
    if value.name in _FIXED:
        return f"{{From::{_FIXED[value.name]}, 0, 0}}"
    match = _AXIS_VALUE.fullmatch(value.name)
    if match is None or int(match["axis"]) >= form.rank:
        return None
    tensor, axis = match["tensor"], int(match["axis"])
    if tensor is None:
        return f"{{From::size, 0, {axis}}}"
    return f"{{From::stride, {places[tensor]}, {axis}}}" if kinds.get(tensor, "number") != "number" else None


_DLPACK: Mapping[str, tuple[int, int]] = {
    "i8": (0, 8), "i16": (0, 16), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8), "u16": (1, 16), "u32": (1, 32), "u64": (1, 64),
    "fp16": (2, 16), "fp32": (2, 32), "fp64": (2, 64), "bf16": (4, 16), "i1": (6, 8),
}  # fmt: skip
"""DLPack's type code and bits of an element type."""

_FULL_NAMES = {"fp": "float", "bf": "bfloat", "i": "int", "u": "uint"}


def _full_name(dtype: str) -> str:
    """As numpy has it: float16 of fp16."""
    letters = dtype.rstrip("0123456789")
    return "bool" if dtype == "i1" else _FULL_NAMES[letters] + dtype[len(letters) :]


def _tables(function: Elementwise, operators: Mapping[str, Operator]) -> str:
    return "\n".join((*_data(function, operators), *_entry_points(function)))


def _data(function: Elementwise, operators: Mapping[str, Operator]) -> Iterator[str]:
    """Tables of one function."""
    name = function.name
    for at, form in enumerate(function.forms):
        operator = operators[form.operator]
        sources = ", ".join(str(_source(value, function, form)) for value in operator.values)
        yield f"constexpr Source k_{name}_values_{at}[] = {{{sources}}};"
    yield f"const Form k_{name}_forms[] = {{"
    for at, form in enumerate(function.forms):
        operator = operators[form.operator]
        digest = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(operator.interface_hash()))
        facts = f"{form.rank}, {str(form.dense).lower()}, {form.least}, {form.most}"
        yield f'    {{"{form.operator}", {{{digest}}}, {facts}, k_{name}_values_{at}, {len(operator.values)}}},'
    yield "};"
    parameters = ", ".join(f'{{"{p.name}", Kind::{p.kind}}}' for p in function.parameters)
    yield f"constexpr Parameter k_{name}_parameters[] = {{{parameters}}};"
    dtypes = ", ".join(
        f'{{{_DLPACK[d][0]}, {_DLPACK[d][1]}, {DTYPE_NUMBERS[d]}, "{_full_name(d)}"}}'
        for d in function.dtypes
    )
    yield f"constexpr ElementType k_{name}_dtypes[] = {{{dtypes}}};"
    counts = (len(function.parameters), len(function.dtypes), len(function.forms))
    tables = zip(("parameters", "dtypes", "forms"), counts, strict=True)
    yield f'const Function k_{name} = {{"{name}", {", ".join(f"k_{name}_{table}, {count}" for table, count in tables)}}};'


def _declaration(function: Elementwise) -> str:
    parameters = ", ".join(_declared(parameter) for parameter in function.parameters)
    return f"int aotforge_{function.name}({parameters}, void* stream)"


def _declared(parameter: Parameter) -> str:
    return (
        f"double {parameter.name}"
        if parameter.kind == "number"
        else f"const aotforge_tensor* {parameter.name}"
    )


def _entry_points(function: Elementwise) -> Iterator[str]:
    name = function.name
    arguments = ", ".join(
        f"{'of_number' if parameter.kind == 'number' else 'of_tensor'}({parameter.name})"
        for parameter in function.parameters
    )
    yield f'extern "C" {_declaration(function)} {{'
    yield f"  const Argument arguments[] = {{{arguments}}};"
    yield f"  return call(k_{name}, arguments, stream);"
    yield "}"
    yield f'extern "C" AOTFORGE_OPS_API int __tvm_ffi_{name}(void*, const TvmAny* arguments, int32_t count, TvmAny* result) {{'
    yield f"  return call_tvm(k_{name}, arguments, count, result);"
    yield "}"


def _header(functions: Iterable[Elementwise]) -> str:
    return _HEADER.format(declarations="\n".join(_documented(function) for function in functions))


def _documented(function: Elementwise) -> str:
    dtypes = ", ".join(map(_full_name, function.dtypes))
    inputs = ", ".join(p.name for p in function.parameters if p.kind == "input")
    output = next(p.name for p in function.parameters if p.kind == "output")
    return (
        f"/* {inputs} broadcast to the shape of {output}; element type of all: {dtypes}. */\n"
        f"AOTFORGE_OPS_API {_declaration(function)};\n"
    )


def _exports(functions: Iterable[Elementwise]) -> str:
    names = " ".join(f"aotforge_{function.name}; __tvm_ffi_{function.name};" for function in functions)
    return f"{{ global: aotforge_ops_error; {names} local: *; }};\n"


_HEADER = """\
/* Functions of the operator library (find_package(aotforge_ops), target aotforge::ops). C and C++. Generated from kernels/.
 *
 * Each queues its work on `stream`: a hipStream_t, CUstream or cudaStream_t of the tensors' device, null for the default stream of the
 * current device. 0: queued, or there is nothing to compute. Else nothing was launched, and aotforge_ops_error() has the reason; the number
 * is that of hipError_t and CUresult: 1 (InvalidValue) an argument is not valid; 101 (InvalidDevice) a tensor is on another device;
 * 209 (NoBinaryForGpu) no image pack has the device's arch; 303 (SharedObjectInitFailed) the driver is not installed; 801
 * (NotSupported) the installed images do not serve the call. Others as in docs/runtime.md. */
#ifndef AOTFORGE_OPS_H
#define AOTFORGE_OPS_H

#include <aotforge/tensor.h>

#ifdef __cplusplus
extern "C" {{
#endif

{declarations}
#ifdef __cplusplus
}}
#endif

#endif
"""

_SOURCE = """\
// Functions of the operator library: tables and entry points. Generated from kernels/ by aotforge/library/operator_functions.py.
#include <aotforge/ops.h>

#include "ops/call.h"
#include "ops/tvm_ffi.h"

using namespace aotforge::ops;

{tables}
"""


def write_sources(sources: Mapping[str, str], folder: Path) -> Path:
    """Writes the files that changed into `folder`, and returns it."""
    for name, text in sources.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    return folder


if __name__ == "__main__":
    write_sources(function_sources(Path(sys.argv[1])), Path(sys.argv[2]))
