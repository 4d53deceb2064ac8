"""The public C++ interface as data (`compat/api_levels.yaml`), and headers and programs generated from it.

They do not depend on our own headers, so that a release can be compared with them.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from aotforge.base.manifest_reader import Manifest

HIP = """#pragma once
enum hipError_t : unsigned { hipSuccess = 0 };
typedef struct ihipStream_t* hipStream_t;
"""
"""hip/hip_runtime.h, as far as the interface needs it."""


class TensorViews(Manifest):
    """Sizes in bytes by rank; members of each, R being the rank; ranks that the library instantiates."""

    sizes: dict[int, int]
    instantiated: tuple[int, ...]
    members: tuple[str, ...]


class Constants(Manifest):
    """A struct of static constants."""

    type: str
    values: dict[str, int]


class Struct(Manifest):
    """Size and some offsets in bytes, measured on the reference's headers; `version` is kVersion."""

    size: int
    version: int | None = None
    offsets: dict[str, int] = Field(default_factory=dict)
    fields: tuple[str, ...]


class LazyTensors(Manifest):
    """LazyTensor<R>: size in bytes, the same for every rank."""

    size: int
    fields: tuple[str, ...]


class Level(Manifest):
    """One API level. `functions` are declarations by namespace."""

    serves: tuple[str, ...]
    version: tuple[int, int, int]
    constants: dict[str, Constants]
    structs: dict[str, Struct]
    lazy_tensor: LazyTensors
    extra_arguments: tuple[str, ...]
    functions: dict[str, tuple[str, ...]]
    experimental_archs: tuple[str, ...]


class Interface(Manifest):
    """The contents of api_levels.yaml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    dtypes: dict[str, int]
    tensor_view: TensorViews
    levels: dict[str, Level]
    errors: dict[str, int]


def spell(type_: str) -> str:
    """C++ for the file's short names: T4 is TensorView<4>, LT2 LazyTensor<2>."""
    return re.sub(r"\bLT(\d)\b", r"LazyTensor<\1>", re.sub(r"\bT(\d)\b", r"TensorView<\1>", type_))


def header(data: Interface, level: str) -> str:
    """The complete interface of a level as one header, namespace aotriton."""
    rules = data.levels[level]
    lines = [
        "#pragma once",
        "#include <array>",
        "#include <cstdint>",
        "#include <hip/hip_runtime.h>",
        "namespace aotriton {",
        "enum DType : int32_t {" + ", ".join(f"{k} = {v}" for k, v in data.dtypes.items()) + "};",
        "enum Gpu : uint64_t {};",
        "template <class S> class StreamTemplate { S stream_; public: StreamTemplate(S s) : stream_(s) {} };",
        "using Stream = StreamTemplate<hipStream_t>;",
        *_tensor_views(data),
        "template <int R> struct LazyTensor {",
        *(f"  {field};" for field in rules.lazy_tensor.fields),
        "};",
        "namespace v2::flash { " + " ".join(f"struct {name};" for name in rules.extra_arguments) + " }",
    ]
    for name, entry in rules.structs.items():
        space, _, short = name.rpartition("::")
        lines += [f"namespace {space} {{ struct {short} {{", *(f"  {spell(f)};" for f in entry.fields)]
        if entry.version is not None:
            lines.append(f"  static constexpr int32_t kVersion = {entry.version}; {short}();")
        lines.append("}; }")
    for space, functions in rules.functions.items():
        body = " ".join(spell(f) + ";" for f in functions)
        lines.append(f"namespace {space} {{ {body} }}" if space else body)
    return "\n".join([*lines, "}  // namespace aotriton", ""])


def _tensor_views(data: Interface) -> list[str]:
    members = [m.replace("R>", "Rank>") for m in data.tensor_view.members]
    fields = "void* base_; std::array<uint64_t, Rank> sizes_, strides_; DType dtype_;"
    return [
        f"template <int Rank> class TensorView {{ public: {' '.join(m + ';' for m in members)} private: {fields} }};",
        "template <> class TensorView<0> { void* base_; DType dtype_; public:",
        " TensorView(intptr_t b = 0, DType d = kUnknown) : base_(reinterpret_cast<void*>(b)), dtype_(d) {} };",
        *(f"extern template class TensorView<{n}>;" for n in data.tensor_view.instantiated),
    ]


def references(data: Interface, level: str) -> str:
    """A translation unit that refers to every symbol of the interface; it includes "interface.h"."""
    lines = [
        '#include "interface.h"',
        "using namespace aotriton;",
        "template <class F> void use(F f) { volatile F kept = f; (void)kept; }",
        "void all() {",
    ]
    found = (re.search(r"(\w+|operator bool)\(", member) for member in data.tensor_view.members)
    members = sorted({match.group(1) for match in found if match} - {"TensorView"})
    for rank in data.tensor_view.instantiated:
        view = f"TensorView<{rank}>"
        lines.append(f"  {{ {view} a; {view} b(0, {{}}, {{}}, kUnknown); (void)a; (void)b;")
        lines += [f"    use(&{view}::{name});" for name in members]
        lines.append("  }")
    for name, entry in data.levels[level].structs.items():
        lines += [f"  {{ {name} p; (void)p; }}"] if entry.version is not None else []
    for space, functions in data.levels[level].functions.items():
        lines += [f"  use(&aotriton::{space + '::' if space else ''}{function_name(f)});" for f in functions]
    return "\n".join([*lines, "}", ""])


def layout(data: Interface, level: str, include: str) -> str:
    """A program that prints size and field offsets of every struct, and the constants, as declared by `include`."""
    rules = data.levels[level]
    lines = [
        f"#include {include}",
        "#include <cstddef>",
        "#include <cstdio>",
        "using namespace aotriton;",
        "int main() {",
    ]
    lines += [_printed(f"TensorView<{n}>", f"sizeof(TensorView<{n}>)") for n in data.tensor_view.sizes]
    lines += [_printed(f"LazyTensor<{n}>", f"sizeof(LazyTensor<{n}>)") for n in (2, 4)]
    lines += [_printed(name, name) for name in data.dtypes]
    for name, entry in rules.structs.items():
        lines.append(_printed(name, f"sizeof({name})"))
        for field in (f.split()[-1] for f in entry.fields):
            sizes = f"offsetof({name}, {field}), sizeof({name}::{field})"
            lines.append(f'  std::printf("{name}.{field} %zu %zu\\n", {sizes});')
        if entry.version is not None:
            lines.append(_printed(f"{name}::kVersion", f"{name}::kVersion"))
    return "\n".join([*lines, "}", ""])


def function_name(declaration: str) -> str:
    """The name in a declaration such as `hipError_t check_gpu(Stream)`."""
    found = re.search(r"(\w+)\(", declaration)
    if found is None:
        raise ValueError(f"{declaration!r} declares no function")
    return found.group(1)


def _printed(label: str, expression: str) -> str:
    return f'  std::printf("{label} %d\\n", static_cast<int>({expression}));'
