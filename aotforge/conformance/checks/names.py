"""Check of the headers' public C++ names against their release's list, `compat/api_names/`."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.compilers import standin_hip
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.errors import listed
from aotforge.run.release_programs import FILE_LIMIT

FOLDER = Path("compat", "api_names")

HEADERS = ("config.h", "cpp_tune.h", "dtypes.h", "flash.h", "runtime.h", "util.h")
CLANG_FLAGS = (
    "-fsyntax-only", "-Xclang", "-ast-dump=json", "-Xclang", "-ast-dump-filter", "-Xclang", "aotriton",
)  # fmt: skip
_SECONDS = 120
_KINDS = {
    *("EnumConstantDecl", "FieldDecl", "FunctionDecl", "VarDecl", "TypeAliasDecl"),
    *("CXXMethodDecl", "CXXConversionDecl", "CXXConstructorDecl"),
}
_DESUGARED = {"FieldDecl", "VarDecl", "TypeAliasDecl"}
_RECORDS = {"CXXRecordDecl", "ClassTemplateSpecializationDecl"}


class PublicName(NamedTuple):
    """One public name; `type` is empty for records, enumerations and templates."""

    kind: str
    name: str
    type: str


def check_names(context: CheckContext) -> list[Finding]:
    """Every name of the release's headers exists, in its scope, with its type and constness."""
    release = context.compat.release.api_level
    what = f"every public name of AOTriton {release}"
    clang = next((compiler for compiler in reversed(context.compilers) if compiler.family == "clang"), None)
    if clang is None:
        return [not_run("names", what, "no clang is installed, whose syntax tree lists the names")]
    wanted = read_names(context.checkout / FOLDER / f"{release}.tsv")
    hip = context.hip.include or standin_hip(context.checkout).include
    includes = [context.prefix / "include", *([hip] if hip else [])]
    done = context.programs.compile(
        [str(clang.path), clang.standard("17"), *context.hip.flags, *(f"-I{path}" for path in includes),
         *CLANG_FLAGS, "-x", "c++", "-"],
        readable=includes, seconds=_SECONDS, text=program(), output_limit=FILE_LIMIT,
    )  # fmt: skip
    if done.status:
        return [failed("names", what, f"{clang.name} does not compile the headers: {done.stderr[-300:]}")]
    violations = differences(wanted, names_of_dump(done.stdout))
    return [finding_from("names", what, violations, f"{len(wanted)} names, by {clang.name}")]


def read_names(path: Path) -> frozenset[PublicName]:
    """The list of a release. Raises OSError."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line)
    return frozenset(_normal(kind, name, type_) for kind, name, type_ in rows)


def program() -> str:
    """A translation unit with every public header."""
    return "".join(f"#include <aotriton/{header}>\n" for header in HEADERS)


def names_of_dump(dump: str) -> frozenset[PublicName]:
    """Names in the output of `clang CLANG_FLAGS`. Raises ValueError for text that is not such a dump."""
    return frozenset(name for node in _documents(dump) for name in _names(node, ()))


def differences(wanted: frozenset[PublicName], declared: frozenset[PublicName]) -> list[str]:
    """A line per name of `wanted` that is missing or has another type or scope; additions are none."""
    by_name: dict[tuple[str, str], list[str]] = {}
    by_last: dict[tuple[str, str], list[str]] = {}
    for entry in sorted(declared):
        by_name.setdefault((entry.kind, entry.name), []).append(entry.type)
        by_last.setdefault((entry.kind, entry.name.rpartition("::")[2]), []).append(entry.name)
    lines = []
    for entry in sorted(wanted - declared):
        text = f"{entry.kind} {entry.name}" + (f": {entry.type}" if entry.type else "")
        if types := by_name.get((entry.kind, entry.name)):
            lines.append(f"{text} is declared as {listed(types)}")
        elif places := by_last.get((entry.kind, entry.name.rpartition("::")[2])):
            lines.append(f"{text} is missing; {listed([*dict.fromkeys(places)])} exists")
        else:
            lines.append(f"{text} is missing")
    return lines


def _documents(dump: str) -> Iterator[Mapping[str, Any]]:
    """clang prints one JSON document per declaration that the filter matches."""
    decoder, position = json.JSONDecoder(), 0
    while start := re.compile(r"\S").search(dump, position):
        node, position = decoder.raw_decode(dump, start.start())
        yield node


def _names(node: Mapping[str, Any], scope: tuple[str, ...]) -> Iterator[PublicName]:
    kind, name, inner = node.get("kind", ""), node.get("name", ""), node.get("inner", ())
    path = "::".join((*scope, name)) if name else "::".join(scope)
    if node.get("isImplicit"):
        return
    if kind == "ClassTemplateDecl":
        for child in inner:
            if child.get("kind") in _RECORDS:
                yield from _names(child, scope)
    elif kind == "FunctionTemplateDecl":
        yield _normal("FunctionTemplate", path, "")
    elif kind in _KINDS:
        yield _normal(kind.removesuffix("Decl"), path, "" if kind == "EnumConstantDecl" else _type(node))
    elif (
        kind == "NamespaceDecl" or (kind in _RECORDS and node.get("completeDefinition")) or kind == "EnumDecl"
    ):
        if kind != "NamespaceDecl":
            yield PublicName("Enum" if kind == "EnumDecl" else "Record", path, "")
        for child in inner:
            yield from _names(child, (*scope, name))


def _type(node: Mapping[str, Any]) -> str:
    type_ = node.get("type", {})
    text: str = type_.get("qualType", "")
    return type_.get("desugaredQualType", text) if node["kind"] in _DESUGARED else text


def _normal(kind: str, name: str, type_: str) -> PublicName:
    """Without what compilers spell differently: qualification in types, parameters of constructors' names."""
    if kind in {"CXXConstructor", "FunctionTemplate"}:
        name = re.sub(r"<\w+>$", "", name)
    type_ = (
        re.sub(r"\baotriton::(v\d::flash::)?", "", type_)
        .replace("std::", "")
        .replace("unsigned long", "uint64_t")
    )
    type_ = re.sub(r"\bT(\d)\b", r"TensorView<\1>", type_)  # aliases of the same type
    return PublicName(kind, name, type_.strip())
