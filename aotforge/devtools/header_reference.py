"""Reference of C and C++ headers: each declaration with its comment, as Markdown.

The headers are this project's: declarations begin in the first column, with their comment directly above.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TYPE = re.compile(
    r"\b(?:struct|class|enum(?:\s+class)?|union)\s+(?:alignas\(\w+\)\s+|[A-Z][A-Z_]+\s+)*(\w+)"
)
_FUNCTION = re.compile(r"(\w+)\s*\(")
_WRAPPED = 70
"""Columns of a comment's line from which it was broken because it was full."""

_SKIPPED = re.compile(r'namespace\b|extern ("C"|template)|\}')


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """`condition`: the preprocessor's conditions under which it exists; empty for none."""

    name: str
    comment: str
    code: str
    condition: str


def declarations(text: str) -> Iterator[Declaration]:
    """The declarations of a header's text, in order."""
    conditions: list[str] = []
    comment: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("#"):
            _follow(line, conditions)
            comment = []
        elif line.startswith(("//", "/*")):
            comment += _comment(line, lines)
        elif not line.strip() or _SKIPPED.match(line):
            comment = []
        else:
            code = _declaration(line, lines)
            if name := _name(code):
                where = " and ".join(one for one in conditions if one)
                yield Declaration(name=name, comment=_joined(comment), code=code, condition=where)
            comment = []


def header_section(name: str, text: str) -> list[str]:
    """Markdown of one header: what it is, then a heading per declaration."""
    lines = iter(text.strip().splitlines())
    about: list[str] = []
    for line in lines:
        if not line.startswith(("//", "/*")):
            break
        about += _comment(line, lines)
    parts = [f"## {name}\n", *([f"{_joined(about)}\n"] if about else [])]
    for one in declarations(text):
        parts.append(f"### {one.name}\n")
        parts += [f"{one.comment}\n"] * bool(one.comment)
        parts += [f"Only with `{one.condition}`.\n"] * bool(one.condition)
        parts.append(f"```cpp\n{one.code}\n```\n")
    return parts


def _joined(lines: list[str]) -> str:
    """Paragraphs of a comment; a line that ends early is a line of its own."""
    text = "".join(f"{line}  \n" if len(line) < _WRAPPED else f"{line}\n" for line in lines)
    return re.sub(r"\n\s*\n", "\n\n", text.strip())


def _comment(line: str, rest: Iterator[str]) -> list[str]:
    """The words of a comment that begins in this line."""
    if line.startswith("//"):
        return [_escaped(line[2:].strip())]
    found = [line]
    while "*/" not in found[-1]:
        found.append(next(rest))
    return [_escaped(one.removeprefix("/*").removesuffix("*/").strip(" *")) for one in found]


def _escaped(text: str) -> str:
    """Text in which Markdown finds no markup."""
    return re.sub(r"(?<!`)([*_<\[\]])", r"\\\1", text)


def _declaration(line: str, rest: Iterator[str]) -> str:
    """The lines to the end of a declaration or of a function's body."""
    found = [line]
    while True:
        code = "\n".join(one for one in found if not one.startswith("#"))
        code = re.sub(r"//.*|/\*.*?\*/", "", code).rstrip()
        depth = code.count("{") - code.count("}") + code.count("(") - code.count(")")
        if depth <= 0 and code.endswith((";", "}")):
            return "\n".join(found)
        found.append(next(rest))


def _name(code: str) -> str:
    head = code.partition("{")[0]
    if head.startswith("using "):
        return ""  # an alias of a type that has its own entry
    if found := _TYPE.search(head.partition("(")[0] if "alignas" not in head else head):
        return found[1]
    found = _FUNCTION.search(head)
    return found[1] if found else ""


def _follow(line: str, conditions: list[str]) -> None:
    """Conditions after a line of the preprocessor; include guards and tests of compilers count as none."""
    word, _, rest = line[1:].strip().partition(" ")
    if word in {"if", "ifdef", "ifndef"}:
        conditions.append(rest if "AOTRITON_VERSION" in rest else "")
    elif word == "elif":
        conditions[-1] = rest if "AOTRITON_VERSION" in rest else ""
    elif word == "else":
        conditions[-1] = f"!({conditions[-1]})" if conditions[-1] else ""
    elif word == "endif":
        conditions.pop()
