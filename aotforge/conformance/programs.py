"""Programs that use AOTriton as one PyTorch release does, generated from `compat/pytorch_calls.yaml`.

Every use stands on a line of its own, so that a compiler's complaint about a line names the use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aotforge.conformance.call_facts import Calls, CallSet, Version3

_VALUES = {
    "T4": "t4", "T2": "t2", "T1": "t1", "T0": "t0", "float": "1.0f", "bool": "true", "Stream": "stream",
    "int32_t": "static_cast<int32_t>(1)", "int64_t": "static_cast<int64_t>(0)", "uint64_t": "static_cast<uint64_t>(0)",
}  # fmt: skip
_BYTES = {
    "kUnknown": 0, "kUInt8": 1, "kInt8": 1, "kUInt16": 2, "kInt16": 2, "kFloat16": 2, "kBFloat16": 2, "kUInt32": 4,
    "kInt32": 4, "kFloat32": 4, "kUInt64": 8, "kInt64": 8,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Program:
    """C++ source and, by line (from 1), the use that stands there."""

    name: str
    source: str
    uses: Mapping[int, str]

    def use_at(self, line: int) -> str:
        """The use that a line belongs to: of lines without one, the last before it."""
        found = [number for number in self.uses if number <= line]
        return self.uses[max(found)] if found else "the program's frame"


Lines = Iterator[tuple[str, str]]
"""A use ("" for frame) and its line."""


def make_program(calls: Calls, name: str) -> Program:
    """The program of one set. It returns 0 when `check_gpu` and the calls that inference makes succeed with no device memory."""
    used = calls.sets[name]
    lines = list(_program(calls, used))
    return Program(
        name=name,
        source="".join(line + "\n" for _, line in lines),
        uses={number: use for number, (use, _) in enumerate(lines, 1) if use},
    )


def _program(calls: Calls, used: CallSet) -> Lines:
    for macro in used.defines:
        yield f"the macro {macro}", f"#define {macro}"
    if used.macros or used.gate:
        yield "header aotriton/config.h", "#include <aotriton/config.h>"
    if used.macros:
        yield "AOTRITON_VERSION_INT", "#define AOTRITON_VERSION_INT(x, y) (x * 100 + y)"
        yield (
            "AOTRITON_VERSION_MAJOR and AOTRITON_VERSION_MINOR as literals",
            'static_assert(AOTRITON_VERSION_INT(AOTRITON_VERSION_MAJOR, AOTRITON_VERSION_MINOR) >= 9, "version");',
        )
    if used.gate:
        yield "", f"#if !({used.gate})"
        yield f"the gate {used.gate}", f'#error "refused: {used.gate}"'
        yield "", "#endif"
    for header in calls.headers:
        yield f"header {header}", f"#include <{header}>"
    yield "", "#include <array>"
    yield "", "#include <cstdint>"
    yield "", "using aotriton::TensorView; using aotriton::DType;"
    yield from _types(calls)
    yield from _version2(calls, used)
    if used.v3:
        yield from _version3(calls, used.v3)
    yield from _main(used)


def _types(calls: Calls) -> Lines:
    yield "", "int bytes_of(DType dtype) {"
    yield "", "  switch (dtype) {"
    for name in calls.dtypes:
        yield f"DType::{name}", f"    case DType::{name}: return {_BYTES[name]};"
    yield "", "  }"
    yield "", "  return -1;"
    yield "", "}"
    yield "", "struct Views {"
    yield "TensorView<0>(intptr_t, DType)", "  TensorView<0> t0{static_cast<intptr_t>(0), DType::kUInt64};"
    for rank in (1, 2, 4):
        dims = f"std::array<uint64_t, {rank}>{{}}"
        yield (
            f"TensorView<{rank}>(intptr_t, array, array, DType)",
            f"  TensorView<{rank}> t{rank}{{static_cast<intptr_t>(0), {dims}, {dims}, DType::kFloat16}};",
        )
    yield "", "};"


_LOCALS = (
    "  const Views v; const auto t4 = v.t4; const auto t2 = v.t2; const auto t1 = v.t1; const auto t0 = v.t0;"
)
_UNUSED = "  (void)t4; (void)t2; (void)t1; (void)t0; (void)stream;"


def _version2(calls: Calls, used: CallSet) -> Lines:
    if not used.v2:
        return
    yield "", "hipError_t version2(aotriton::Stream stream) {"
    yield "", _LOCALS
    yield "", _UNUSED
    for name in used.v2:
        call = calls.v2[name]
        arguments = ", ".join(_VALUES[argument] for argument in call.arguments)
        yield (
            f"v2::flash::{call.function}",
            f"  if (aotriton::v2::flash::{call.function}({arguments}) == hipSuccess) return hipSuccess;",
        )
    yield "", "  return hipSuccess;"
    yield "", "}"


_LAZY = {
    "lazy": ("void* cookie", "cookie"),
    "lazy-self": ("aotriton::v3::flash::LazyTensor<{0}>* self", "self->cookie"),
}


def _version3(calls: Calls, used: Version3) -> Lines:
    yield "", "using namespace aotriton::v3::flash;"
    lazies = [2, *([4] if used.dq_acc else [])] if used.delta != "tensor" else []
    for rank in lazies:
        parameter, cookie = (text.format(rank) for text in _LAZY[used.delta])
        yield "", f"struct Lazy{rank} {{"
        yield "", "  Views views;"
        yield (
            f"LazyTensor<{rank}>::acquire",
            f"  static TensorView<{rank}> acquire({parameter}) {{ return static_cast<Lazy{rank}*>({cookie})->views.t{rank}; }}",
        )
        yield f"LazyTensor<{rank}>::dispose", f"  static void dispose({parameter}) {{ (void){cookie}; }}"
        yield "", "};"
    yield from _direction(calls, used, "fwd")
    yield from _direction(calls, used, "bwd")


def _direction(calls: Calls, used: Version3, way: str) -> Lines:
    params = f"attn_{way}_params"
    yield "", f"hipError_t {way}(aotriton::Stream stream) {{"
    yield "", _LOCALS
    yield "", _UNUSED
    yield f"v3::flash::{params}", f"  {params} params;"
    own = calls.v3_fields.fwd if way == "fwd" else calls.v3_fields.bwd
    for field, type_ in (calls.v3_fields.both | own).items():
        if type_ in calls.constants:
            first, *_, last = calls.constants[type_]
            for constant in dict.fromkeys((first, last)):
                yield (
                    f"{params}.{field} and {type_}::{constant}",
                    f"  params.{field} = {type_}::{constant};",
                )
        else:
            yield f"{params}.{field}", f"  params.{field} = {_VALUES[type_]};"
    if used.strided_varlen:
        yield "VarlenType::StridedVarlen", "  params.varlen_type = VarlenType::StridedVarlen;"
        for side in "qk":
            yield f"{params}.seq_strides_{side}", f"  params.seq_strides_{side} = t1;"
    if way == "bwd":
        yield from _lazy_fields(used, params)
    yield from _options(used, way)
    options = ", &options" if way == "bwd" else ""
    yield (
        f"v3::flash::attn_{way} and {params}::kVersion",
        f"  return attn_{way}(params, {params}::kVersion, stream{options});",
    )
    yield "", "}"


def _lazy_fields(used: Version3, params: str) -> Lines:
    if used.delta == "tensor":
        yield f"{params}.D", "  params.D = t2;"
        return
    for field, rank in (("D", 2), *([("DQ_ACC", 4)] if used.dq_acc else [])):
        yield "", f"  Lazy{rank} cookie{rank};"
        yield "", f"  LazyTensor<{rank}> lazy{rank};"
        yield f"LazyTensor<{rank}>::cookie", f"  lazy{rank}.cookie = &cookie{rank};"
        for callback in ("acquire", "dispose"):
            yield f"LazyTensor<{rank}>::{callback}", f"  lazy{rank}.{callback} = &Lazy{rank}::{callback};"
        yield f"{params}.{field}", f"  params.{field} = lazy{rank};"


def _options(used: Version3, way: str) -> Lines:
    if way == "bwd":
        yield "v3::flash::attn_options", "  attn_options options;"
        if used.deterministic:
            yield "attn_options.deterministic", "  options.deterministic = true;"


def _main(used: CallSet) -> Lines:
    yield "", "int main(int count, char**) {"
    yield "", "  hipStream_t native = nullptr;"
    yield "Stream(hipStream_t)", "  const aotriton::Stream stream(native);"
    yield (
        "v2::flash::check_gpu compared with hipSuccess",
        "  if (aotriton::v2::flash::check_gpu(stream) != hipSuccess) return 1;",
    )
    if used.gpu_question:
        yield (
            "isArchExperimentallySupported(hipStream_t)",
            "  if (aotriton::isArchExperimentallySupported(native)) return 2;",
        )
    yield "", "  if (bytes_of(DType::kFloat16) != 2) return 3;"
    calls = [name for name, holds in (("version2", used.v2), ("fwd", used.v3), ("bwd", used.v3)) if holds]
    total = " + ".join(f"static_cast<int>({name}(stream))" for name in calls) or "0"
    yield "", f"  return count > 1 && ({total}) == 0 ? 4 : 0;"
    yield "", "}"


_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_UNDEFINED = re.compile(r"undefined reference to [`'](?P<symbol>.+?)'(?:$|\n)")
_IN_PROGRAM = re.compile(r"program\.cpp:(?P<line>\d+)")


def violations(program: Program, output: str) -> tuple[str, ...]:
    """Uses in the program itself that the compiler refuses, with its words; none when it failed for another reason."""
    found = (
        f"{program.use_at(int(match['line']))}: {match['text']}"
        for match in _DIAGNOSTIC.finditer(output)
        if match["file"].endswith("program.cpp") and any(n <= int(match["line"]) for n in program.uses)
    )
    return tuple(dict.fromkeys(found))


def explain_failure(program: Program, output: str) -> tuple[str, ...]:
    """What a compiler or linker complains about, as the uses that it concerns; at least one line."""
    found: dict[str, None] = dict.fromkeys(violations(program, output))
    for match in _UNDEFINED.finditer(output):
        found[f"{match['symbol']}: not in the library"] = None
    if not found:
        errors = [match["text"] for match in _DIAGNOSTIC.finditer(output)]
        found |= dict.fromkeys(
            errors or [line for line in output.splitlines() if line][-1:] or ["no message"]
        )
    return tuple(found)
