"""A second set of headers for the public interface, generated from compat/api_levels.yaml: no line of it comes from ours.

What compiles and links against these must agree with the library; what our headers say must agree with these.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from .runtime import ROOT

HIP = """#pragma once
enum hipError_t : unsigned { hipSuccess = 0 };
typedef struct ihipStream_t* hipStream_t;
"""


def facts() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(ROOT / "compat" / "api_levels.yaml")
    return loaded


def spell(type_: str) -> str:
    return re.sub(r"\bLT(\d)\b", r"LazyTensor<\1>", re.sub(r"\bT(\d)\b", r"TensorView<\1>", type_))


def header(data: Mapping[str, Any], level: str) -> str:
    """The whole interface as one header, namespace aotriton."""
    rules = data["levels"][level]
    lines = [
        "#pragma once",
        "#include <array>",
        "#include <cstdint>",
        "#include <hip/hip_runtime.h>",
        "namespace aotriton {",
    ]
    lines += ["enum DType : int32_t {" + ", ".join(f"{k} = {v}" for k, v in data["dtypes"].items()) + "};"]
    lines += ["enum Gpu : uint64_t {};"]
    lines += [
        "template <class S> class StreamTemplate { S stream_; public: StreamTemplate(S s) : stream_(s) {} };"
    ]
    lines += ["using Stream = StreamTemplate<hipStream_t>;"]
    members = [m.replace("R>", "Rank>") for m in data["tensor_view"]["members"]]
    fields = "void* base_; std::array<uint64_t, Rank> sizes_, strides_; DType dtype_;"
    lines += [
        f"template <int Rank> class TensorView {{ public: {' '.join(m + ';' for m in members)} private: {fields} }};"
    ]
    lines += ["template <> class TensorView<0> { void* base_; DType dtype_; public:"]
    lines += [
        " TensorView(intptr_t b = 0, DType d = kUnknown) : base_(reinterpret_cast<void*>(b)), dtype_(d) {} };"
    ]
    lines += [f"extern template class TensorView<{n}>;" for n in data["tensor_view"]["instantiated"]]
    lines += ["namespace v3::flash {", "template <int R> struct LazyTensor {"]
    lines += [f"  {field};" for field in rules["lazy_tensor"]["fields"]] + ["};", "}"]
    lines += [
        "namespace v2::flash { " + " ".join(f"struct {name};" for name in rules["extra_arguments"]) + " }"
    ]
    for name, entry in rules["structs"].items():
        space, _, short = name.rpartition("::")
        lines += [
            f"namespace {space} {{ struct {short} {{",
            *(f"  {spell(field)};" for field in entry["fields"]),
        ]
        lines += (
            [f"  static constexpr int32_t kVersion = {entry['version']}; {short}();"]
            if "version" in entry
            else []
        )
        lines += ["}; }"]
    for space, functions in rules["functions"].items():
        body = " ".join(spell(f) + ";" for f in functions)
        lines += [f"namespace {space} {{ {body} }}" if space else body]
    return "\n".join([*lines, "}  // namespace aotriton", ""])


def references(data: Mapping[str, Any], level: str) -> str:
    """A translation unit that refers to every symbol of the interface."""
    lines = [
        '#include "interface.h"',
        "using namespace aotriton;",
        "template <class F> void use(F f) { volatile F kept = f; (void)kept; }",
    ]
    lines += ["void all() {"]
    for rank in data["tensor_view"]["instantiated"]:
        lines += [
            f"  {{ TensorView<{rank}> a; TensorView<{rank}> b(0, {{}}, {{}}, kUnknown); (void)a; (void)b;"
        ]
        names = {
            m.group(1)
            for m in (re.search(r"(\w+|operator bool)\(", x) for x in data["tensor_view"]["members"])
            if m
        }
        lines += [f"    use(&TensorView<{rank}>::{name});" for name in sorted(names - {"TensorView"})] + [
            "  }"
        ]
    for name, entry in data["levels"][level]["structs"].items():
        lines += [f"  {{ {name} p; (void)p; }}"] if "version" in entry else []
    for space, functions in data["levels"][level]["functions"].items():
        lines += [f"  use(&aotriton::{space + '::' if space else ''}{_name(f)});" for f in functions]
    return "\n".join([*lines, "}", ""])


def layout(data: Mapping[str, Any], level: str, include: str) -> str:
    """A program that prints size and field offsets of every struct, and the constants, as it sees them through `include`."""
    lines = [
        f"#include {include}",
        "#include <cstddef>",
        "#include <cstdio>",
        "using namespace aotriton;",
        "int main() {",
    ]
    lines += [
        f'  std::printf("TensorView<{n}> %zu\\n", sizeof(TensorView<{n}>));'
        for n in data["tensor_view"]["sizes"]
    ]
    lines += [f'  std::printf("LazyTensor<{n}> %zu\\n", sizeof(v3::flash::LazyTensor<{n}>));' for n in (2, 4)]
    lines += [f'  std::printf("{name} %d\\n", (int){name});' for name in data["dtypes"]]
    for name, entry in data["levels"][level]["structs"].items():
        lines += [f'  std::printf("{name} %zu\\n", sizeof({name}));']
        for field in (f.split()[-1] for f in entry["fields"]):
            lines += [
                f'  std::printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof({name}::{field}));'
            ]
        if "version" in entry:
            lines += [f'  std::printf("{name}::kVersion %d\\n", {name}::kVersion);']
    return "\n".join([*lines, "}", ""])


def _name(declaration: str) -> str:
    found = re.search(r"(\w+)\(", declaration)
    assert found
    return found.group(1)


def compile_program(
    source: str,
    folder: Path,
    includes: Sequence[Path],
    *,
    name: str = "program",
    flags: Sequence[str] = (),
    cxx: str = "g++",
) -> subprocess.CompletedProcess[str]:
    """Compile `source` in `folder` to `name`; the result is not checked."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.cpp").write_text(source)
    command = [
        cxx,
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-invalid-offsetof",
        f"{name}.cpp",
        "-o",
        name,
    ]
    command += [f"-I{path}" for path in includes] + list(flags)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def defined_symbols(library: Path) -> set[str]:
    return set(_nm(["nm", "-D", "--defined-only", str(library)]))


def undefined_symbols(objects: Path) -> set[str]:
    return set(_nm(["nm", "-u", str(objects)]))


def _nm(command: list[str]) -> Iterator[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        yield line.split()[-1].partition("@")[0]
