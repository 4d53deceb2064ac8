"""Generated sources of the operator library: header, tables and exports, from the families' functions.

As a program, `python -m aotforge.library.operator_functions KERNELS FOLDER` writes them into FOLDER, which
exists; it needs nothing but the standard library.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.errors import AotforgeError, RulesError, suggest
from aotforge.plan.families import load_families
from aotforge.rules import (
    DTYPE_NUMBERS,
    Form,
    Function,
    IndependentAxes,
    Operator,
    Option,
    OptionalInput,
    Parameter,
)

_IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MOST_PARAMETERS, _MOST_AXES, _MOST_CORES, _MOST_VALUES, _MOST_OPTIONS = 8, 8, 4, 128, 64
_FIXED = {"n": "count", "rank": "rank", "dtype": "dtype"}
_INTEGERS = ("i32", "i64")

HEADER = "include/aotforge/ops.h"
TABLES = "functions.cpp"
EXPORTS = "exports.map"


def function_sources(kernels: Path) -> dict[str, str]:
    """Generated files by name; none where no family declares a function. Raises RulesError."""
    declared = [
        (function, {o.name: o for o in loaded.family.operators}, kernels / loaded.folder / "rules.py")
        for loaded in load_families(kernels)
        for function in loaded.family.functions
    ]
    if not declared:
        return {}
    declared.sort(key=lambda entry: entry[0].name)
    _check_names(declared)
    for function, operators, file in declared:
        _check_function(function, operators, file)
    functions = [function for function, _, _ in declared]
    lines = [line for f, operators, _ in declared for line in (*_data(f, operators), *_entry_points(f))]
    header, tables = (Path(__file__).with_name(name).read_text() for name in ("ops.h.in", "functions.cpp.in"))
    return {
        HEADER: header.format(declarations="\n".join(map(_documented, functions))),
        TABLES: tables.format(tables="\n".join(lines)),
        EXPORTS: _exports(functions),
    }


def declared_functions(kernels: Path) -> tuple[Function, ...]:
    """The functions of all families, by name. Raises RulesError."""
    functions = (function for loaded in load_families(kernels) for function in loaded.family.functions)
    return tuple(sorted(functions, key=lambda function: function.name))


def _check_names(declared: Iterable[tuple[Function, Mapping[str, Operator], Path]]) -> None:
    known: dict[str, Path] = {}
    for function, _, file in declared:
        if not _IDENTIFIER.fullmatch(function.name):
            raise RulesError(
                f"{file}: function {function.name!r} is not a valid name",
                hint="use lower-case letters, digits and single underscores",
            )
        if function.name in known:
            raise RulesError(f"{file}: function {function.name} is also in {known[function.name]}")
        known[function.name] = file


def _check_function(function: Function, operators: Mapping[str, Operator], file: Path) -> None:
    """Raises RulesError."""
    where = f"{file}: function {function.name}"
    _check_parameters(function, where)
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
        if not (1 <= form.rank <= _MOST_AXES and min(form.least, form.least_area, form.most) >= 1):
            raise RulesError(f"{where}: form {form} is out of range")
        sources = _sources(function, form)
        for value in operators[form.operator].values:
            if value.type not in sources.get(value.name, {}):
                raise RulesError(
                    f"{where}: value {value.name}:{value.type} of operator {form.operator} has no meaning",
                    cause="the library fills values by name and type: rules.Form lists them",
                )
        if len(operators[form.operator].values) > _MOST_VALUES:
            raise RulesError(f"{where}: operator {form.operator} has more than {_MOST_VALUES} values")


def _check_parameters(function: Function, where: str) -> None:
    """Raises RulesError."""
    cores = _cores(function)
    names = [*(parameter.name for parameter in function.parameters), *cores]
    for name in names:
        if not _IDENTIFIER.fullmatch(name) or name in _FIXED or names.count(name) > 1:
            raise RulesError(f"{where}: parameter {name!r} is not a valid name, or there are two of it")
    kinds = [parameter.kind for parameter in function.parameters]
    if kinds.count("output") != 1 or "input" not in kinds or len(kinds) > _MOST_PARAMETERS:
        raise RulesError(
            f"{where}: the parameters are {', '.join(kinds)}",
            cause=f"it has one output, at least one input, and {_MOST_PARAMETERS} parameters at most",
        )
    if len(cores) > _MOST_CORES or any(len(set(p.axes)) < len(p.axes) for p in function.parameters):
        raise RulesError(f"{where}: it has at most {_MOST_CORES} core axes, and a tensor each of them once")
    options = [p.options for p in function.parameters if isinstance(p, Option)]
    for option in options:
        if (
            not 1 <= len(option) <= _MOST_OPTIONS
            or len(set(option)) < len(option)
            or not all(map(_IDENTIFIER.fullmatch, option))
        ):
            raise RulesError(
                f"{where}: the options {', '.join(option) or '()'} are not valid",
                cause=f"they are 1 to {_MOST_OPTIONS} different names of letters, digits and underscores",
            )
    if unknown := sorted(set(_independent(function)) - set(cores)):
        raise RulesError(f"{where}: independent axis {unknown[0]!r}", hint=suggest(unknown[0], cores))
    if kinds.count("axis") > (len(cores) == 1):
        raise RulesError(f"{where}: an axis parameter is for functions with one core axis, and has no second")
    output = next(parameter for parameter in function.parameters if parameter.kind == "output")
    for parameter in function.parameters:
        if parameter.kind in ("number", "axis") and parameter.axes:
            raise RulesError(f"{where}: {parameter.name} is not a tensor and has no axes")
        if parameter.reused and (parameter.kind != "input" or parameter.axes != output.axes):
            raise RulesError(
                f"{where}: {parameter.name} cannot be the output: it is not an input of its axes"
            )


def _tensors(function: Function) -> Iterator[tuple[int, Parameter]]:
    """Tensor parameters with their places."""
    return ((i, p) for i, p in enumerate(function.parameters) if p.kind in ("input", "output"))


def _cores(function: Function) -> list[str]:
    """Names of core axes, in order of appearance."""
    return list(dict.fromkeys(axis for parameter in function.parameters for axis in parameter.axes))


def _independent(function: Function) -> tuple[str, ...]:
    """Core axes into which batch axes are merged."""
    return function.independent if isinstance(function, IndependentAxes) else ()


def _kind(parameter: Parameter) -> str:
    """As the library's tables have it."""
    return "option" if isinstance(parameter, Option) else parameter.kind


def _sources(function: Function, form: Form) -> dict[str, dict[str, str]]:
    """Values that an operator of the form may have: name, types, and the initializer of the table's entry."""
    cores = _cores(function)
    integers = {name: f"{{From::{source}, 0, 0}}" for name, source in _FIXED.items()}
    integers |= {f"size_{axis}": f"{{From::size, 0, {axis}}}" for axis in range(form.rank)}
    integers |= {core: f"{{From::core_size, 0, {at}}}" for at, core in enumerate(cores)}
    typed: dict[str, dict[str, str]] = {}
    for place, parameter in _tensors(function):
        typed[parameter.name] = {"ptr": f"{{From::pointer, {place}, 0}}"}
        for axis in range(form.rank):
            integers[f"stride_{parameter.name}_{axis}"] = f"{{From::stride, {place}, {axis}}}"
        if isinstance(parameter, OptionalInput):
            integers[f"has_{parameter.name}"] = f"{{From::present, {place}, 0}}"
        for core in parameter.axes:
            integers[f"stride_{parameter.name}_{core}"] = (
                f"{{From::core_stride, {place}, {cores.index(core)}}}"
            )
    for place, parameter in enumerate(function.parameters):
        if isinstance(parameter, Option):
            integers[parameter.name] = f"{{From::number, {place}, 0}}"
        elif parameter.kind == "number":
            typed[parameter.name] = {
                "i64": f"{{From::number, {place}, 0}}",
                "f32": f"{{From::single, {place}, 0}}",
            }
    return {name: dict.fromkeys(_INTEGERS, source) for name, source in integers.items()} | typed


def _stride_masks(function: Function, form: Form, operator: Operator) -> Iterator[str]:
    """Initializers of batch and of core axes, by parameter, whose strides the operator takes."""
    names = {value.name for value in operator.values}
    batch, core = [0] * len(function.parameters), [0] * len(function.parameters)
    for place, parameter in _tensors(function):
        own = f"stride_{parameter.name}_"
        batch[place] = sum(1 << axis for axis in range(form.rank) if f"{own}{axis}" in names)
        core[place] = sum(1 << at for at, axis in enumerate(_cores(function)) if f"{own}{axis}" in names)
    return (f"{{{', '.join(map(str, masks))}}}" for masks in (batch, core))


_DLPACK: Mapping[str, tuple[int, int]] = {
    "i8": (0, 8), "i16": (0, 16), "i32": (0, 32), "i64": (0, 64), "u8": (1, 8), "u16": (1, 16),
        "u32": (1, 32), "u64": (1, 64),
    "fp16": (2, 16), "fp32": (2, 32), "fp64": (2, 64), "bf16": (4, 16), "i1": (6, 8),
}  # fmt: skip
"""DLPack's type code and bits of an element type."""

_FULL_NAMES = {"fp": "float", "bf": "bfloat", "i": "int", "u": "uint"}


def _full_name(dtype: str) -> str:
    """As numpy has it: float16 of fp16."""
    letters = dtype.rstrip("0123456789")
    return "bool" if dtype == "i1" else _FULL_NAMES[letters] + dtype[len(letters) :]


def _data(function: Function, operators: Mapping[str, Operator]) -> Iterator[str]:
    """Tables of one function."""
    name = function.name
    for at, form in enumerate(function.forms):
        known = _sources(function, form)
        sources = ", ".join(known[value.name][value.type] for value in operators[form.operator].values)
        yield f"constexpr Source k_{name}_values_{at}[] = {{{sources}}};"
    yield f"const Form k_{name}_forms[] = {{"
    for at, form in enumerate(function.forms):
        operator = operators[form.operator]
        digest = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(operator.interface_hash()))
        facts = f"{form.rank}, {str(form.dense).lower()}, {form.least}, {form.least_area}, {form.most}"
        strides = ", ".join(_stride_masks(function, form, operator))
        values = f"k_{name}_values_{at}, {len(operator.values)}"
        yield f'    {{"{form.operator}", {{{digest}}}, {facts}, {strides}, {values}}},'
    yield "};"
    cores = _cores(function)
    for parameter in function.parameters:
        if isinstance(parameter, Option):
            names = ", ".join(f'"{option}"' for option in parameter.options)
            yield f"constexpr const char* k_{name}_{parameter.name}[] = {{{names}}};"
    parameters = ", ".join(_described(function, parameter, cores) for parameter in function.parameters)
    yield f"constexpr Parameter k_{name}_parameters[] = {{{parameters}}};"
    dtypes = ", ".join(
        f'{{{_DLPACK[d][0]}, {_DLPACK[d][1]}, {DTYPE_NUMBERS[d]}, "{_full_name(d)}"}}'
        for d in function.dtypes
    )
    yield f"constexpr ElementType k_{name}_dtypes[] = {{{dtypes}}};"
    counts = (len(function.parameters), len(function.dtypes), len(function.forms))
    tables = zip(("parameters", "dtypes", "forms"), counts, strict=True)
    entries = ", ".join(f"k_{name}_{table}, {count}" for table, count in tables)
    quoted = ", ".join(f'"{core}"' for core in cores)
    independent = sum(1 << cores.index(axis) for axis in _independent(function))
    yield f'const Function k_{name} = {{"{name}", {entries}, {{{quoted}}}, {len(cores)}, {independent}}};'


def _described(function: Function, parameter: Parameter, cores: Sequence[str]) -> str:
    """Initializer of a parameter."""
    places = ", ".join(str(cores.index(axis)) for axis in parameter.axes)
    flags = ", ".join(str(flag).lower() for flag in (parameter.reused, isinstance(parameter, OptionalInput)))
    names = "nullptr, 0"
    if isinstance(parameter, Option):
        names = f"k_{function.name}_{parameter.name}, {len(parameter.options)}"
    axes = f"{{{places}}}, {len(parameter.axes)}"
    return f'{{"{parameter.name}", Kind::{_kind(parameter)}, {flags}, {axes}, {names}}}'


def _declaration(function: Function) -> str:
    parameters = ", ".join(f"{_C_TYPES[_kind(p)][0]} {p.name}" for p in function.parameters)
    return f"int aotforge_{function.name}({parameters}, void* stream)"


_TENSOR = ("const aotforge_tensor*", "of_tensor")
_C_TYPES = {
    "number": ("double", "of_number"), "axis": ("int64_t", "of_integer"), "option": ("int", "of_integer"),
    "input": _TENSOR, "output": _TENSOR,
}  # fmt: skip
"""C's type of a parameter, and the function that makes an argument of it."""


def _entry_points(function: Function) -> Iterator[str]:
    name = function.name
    arguments = ", ".join(
        f"{_C_TYPES[_kind(parameter)][1]}({parameter.name})" for parameter in function.parameters
    )
    yield f'extern "C" {_declaration(function)} {{'
    yield f"  const Argument arguments[] = {{{arguments}}};"
    yield f"  return call(k_{name}, arguments, stream);"
    yield "}"
    parameters = "void*, const TvmAny* arguments, int32_t count, TvmAny* result"
    yield f'extern "C" AOTFORGE_OPS_API int __tvm_ffi_{name}({parameters}) {{'
    yield f"  return call_tvm(k_{name}, arguments, count, result);"
    yield "}"


def _documented(function: Function) -> str:
    dtypes = ", ".join(map(_full_name, function.dtypes))
    tensors = ", ".join(
        f"{p.name} ({', '.join(('...', *p.axes))}){' or null' * isinstance(p, OptionalInput)}"
        for _, p in _tensors(function)
    )
    return "".join(_enumeration(function)) + (
        f"/* {function.summary}\n * {tensors}: axes of inputs at ... broadcast to those of the output; "
        f"element type of all: {dtypes}. */\n"
        f"AOTFORGE_OPS_API {_declaration(function)};\n"
    )


def _enumeration(function: Function) -> Iterator[str]:
    """Enumerators of options."""
    for parameter in function.parameters:
        if isinstance(parameter, Option):
            prefix = f"AOTFORGE_{function.name}_{parameter.name}".upper()
            names = ", ".join(f"{prefix}_{name.upper()} = {at}" for at, name in enumerate(parameter.options))
            yield f"/* Values of `{parameter.name}` of aotforge_{function.name}. */\nenum {{ {names} }};\n\n"


def _exports(functions: Iterable[Function]) -> str:
    names = " ".join(f"aotforge_{function.name}; __tvm_ffi_{function.name};" for function in functions)
    return f"{{ global: aotforge_ops_error; {names} local: *; }};\n"


def write_sources(sources: Mapping[str, str], folder: Path) -> Path:
    """Writes the files that changed into `folder`, and returns it. Raises OutputError."""
    for name, text in sources.items():
        file = folder / name
        data = text.encode()
        if not file.is_file() or file.read_bytes() != data:
            write_atomic(file, data)
    return folder


if __name__ == "__main__":
    try:
        write_sources(function_sources(Path(sys.argv[1])), Path(sys.argv[2]))
    except AotforgeError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command line
        sys.exit(error.exit_code)
