"""MLIR in its generic text form, as values: operations with regions, attributes and source lines.

The form (`"dialect.op"(operands) <{properties}> ({regions}) : type`) is that of every dialect. libtriton's
bindings give no access to float constants, array attributes or the blocks of a region.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import CompileError


@dataclass(frozen=True)
class SSA:
    """A value by its name in the text, unique in its function; `type` is MLIR's text."""

    name: str
    type: str


@dataclass(kw_only=True, eq=False)
class Operation:
    """One operation. `attributes`: properties, too, as text; `line`: "file:line" or empty."""

    name: str
    operands: tuple[SSA, ...]
    results: tuple[SSA, ...]
    attributes: dict[str, str]
    regions: tuple[Region, ...] = ()
    successors: tuple[str, ...] = ()
    line: str = ""

    def integer(self, name: str) -> int:
        """An integer attribute, as in `axis = 0 : i32`. Raises CompileError when there is none."""
        return int(self._text(name).split(":")[0])

    def boolean(self, name: str) -> bool:
        """A boolean or unit attribute; False when it is missing."""
        return self.attributes.get(name, "false") in {"true", ""}

    def integers(self, name: str) -> list[int]:
        """A dense array, as in `order = array<i32: 1, 0>`."""
        body = self._text(name).partition(":")[2].rstrip("> ")
        return [int(item) for item in body.split(",") if item.strip()]

    def string(self, name: str) -> str:
        """A string attribute without its quotes; MLIR's escapes are undone."""
        text = self._text(name).strip()[1:-1]
        return re.sub(r"\\([0-9A-Fa-f]{2})", lambda m: chr(int(m[1], 16)), text).replace('\\"', '"')

    def _text(self, name: str) -> str:
        if name not in self.attributes:
            raise CompileError(f"{self.name} at {self.line or 'an unknown line'} has no attribute {name}")
        return self.attributes[name]


@dataclass(kw_only=True, eq=False)
class Block:
    """A straight line of operations; the last one is its terminator."""

    label: str
    arguments: tuple[SSA, ...]
    operations: list[Operation] = field(default_factory=list)


@dataclass(kw_only=True, eq=False)
class Region:
    """The blocks of a region, entry first."""

    blocks: list[Block]

    @property
    def entry(self) -> Block:
        """The first block."""
        return self.blocks[0]


def parse(text: str) -> Operation:
    """The module. Raises CompileError for text that is not MLIR's generic form."""
    parser = _Parser(text)
    parser.skip_aliases()
    try:
        return parser.operation()
    except RecursionError:
        raise parser.fail("a module with fewer nested regions") from None


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(r"%[A-Za-z0-9_$.\-]+(?:#\d+)?")
_SPACE = re.compile(r"(?:\s|//[^\n]*)*")
_SOURCE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, wanted: str) -> CompileError:
        line = self.text.count("\n", 0, self.at) + 1
        return CompileError(
            f"line {line} of the module: {wanted} expected, found {self.text[self.at : self.at + 40]!r}"
        )

    def space(self) -> None:
        spaces = _SPACE.match(self.text, self.at)
        self.at = spaces.end() if spaces else self.at

    def peek(self, literal: str) -> bool:
        self.space()
        return self.text.startswith(literal, self.at)

    def take(self, literal: str) -> bool:
        if not self.peek(literal):
            return False
        self.at += len(literal)
        return True

    def need(self, literal: str) -> None:
        if not self.take(literal):
            raise self.fail(repr(literal))

    def match(self, pattern: re.Pattern[str], wanted: str) -> str:
        self.space()
        match = pattern.match(self.text, self.at)
        if not match:
            raise self.fail(wanted)
        self.at = match.end()
        return match[0]

    def skip_aliases(self) -> None:
        while self.peek("#"):
            end = self.text.find("\n", self.at)
            self.at = end + 1 if end >= 0 else len(self.text)

    def balanced(self, stops: str) -> str:
        """Text up to a character of `stops` outside of brackets and strings; the character is not taken."""
        self.space()
        start, depth = self.at, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.match(_STRING, "a complete string")
                continue
            if self.text.startswith("->", self.at):
                self.at += 2
                continue
            if depth == 0 and char in stops:
                return self.text[start : self.at].strip()
            depth += (char in _CLOSING) - (char in _CLOSING.values())
            self.at += 1
        raise self.fail(f"one of {stops!r}")

    def operation(self) -> Operation:
        results = self.result_names() if self.peek("%") else []
        name = self.match(re.compile(r'"[^"]*"'), "an operation's name")[1:-1]
        self.need("(")
        operands = self.names(")")
        successors = self.successors() if self.take("[") else []
        attributes = self.attributes(">") if self.take("<") else {}
        regions = self.regions() if self.peek("(") else []
        if self.peek("{"):
            attributes |= self.attributes()
        self.need(":")
        operand_types, result_types = self.function_type()
        line = self.location() if self.take("loc(") else ""
        if len(operands) != len(operand_types) or len(results) != len(result_types):
            raise self.fail(f"{len(operands)} operands and {len(results)} results with as many types")
        values = tuple(SSA(n, t) for n, t in zip(operands, operand_types, strict=True))
        return Operation(
            name=name,
            operands=values,
            results=tuple(SSA(n, t) for n, t in zip(results, result_types, strict=True)),
            attributes=attributes,
            regions=tuple(regions),
            successors=tuple(successors),
            line=line,
        )

    def result_names(self) -> list[str]:
        names = []
        while True:
            name = self.match(_NAME, "a result's name")
            if self.take(":"):
                count = int(self.match(re.compile(r"[0-9]{1,4}"), "a number of results"))
                names += [f"{name}#{i}" for i in range(count)]
            else:
                names.append(name)
            if not self.take(","):
                break
        self.need("=")
        return names

    def names(self, end: str) -> list[str]:
        names: list[str] = []
        while not self.take(end):
            names.append(self.match(_NAME, "an operand"))
            self.take(",")
        return names

    def successors(self) -> list[str]:
        labels = []
        while not self.take("]"):
            labels.append(self.match(re.compile(r"\^[A-Za-z0-9_]+"), "a successor"))
            self.take(",")
        return labels

    def attributes(self, after: str = "") -> dict[str, str]:
        values: dict[str, str] = {}
        self.need("{")
        while not self.take("}"):
            name = self.match(re.compile(r'[A-Za-z_][\w.$]*|"[^"]*"'), "an attribute's name").strip('"')
            values[name] = self.balanced(",}") if self.take("=") else ""
            self.take(",")
        if after:
            self.need(after)
        return values

    def regions(self) -> list[Region]:
        regions = []
        self.need("(")
        while not self.take(")"):
            regions.append(self.region())
            self.take(",")
        return regions

    def region(self) -> Region:
        self.need("{")
        blocks: list[Block] = []
        while not self.take("}"):
            if self.peek("^"):
                blocks.append(self.block_header())
            else:
                if not blocks:
                    blocks.append(Block(label="", arguments=()))
                blocks[-1].operations.append(self.operation())
        return Region(blocks=blocks or [Block(label="", arguments=())])

    def block_header(self) -> Block:
        label = self.match(re.compile(r"\^[A-Za-z0-9_]+"), "a block's label")
        arguments = []
        if self.take("("):
            while not self.take(")"):
                name = self.match(_NAME, "a block argument")
                self.need(":")
                type_ = self.type_before(",)", "loc(")
                if self.take("loc("):
                    self.location()
                arguments.append(SSA(name, type_))
                self.take(",")
        self.need(":")
        return Block(label=label, arguments=tuple(arguments))

    def type_before(self, stops: str, word: str) -> str:
        """A type that ends at a character of `stops`, or at `word` after a space."""
        start = self.at
        text = self.balanced(stops)
        cut = text.find(f" {word}")
        if cut >= 0:
            self.at = self.text.index(word, start)
            text = text[:cut]
        return text.strip()

    def function_type(self) -> tuple[list[str], list[str]]:
        operands = self.types()
        self.need("->")
        if self.peek("("):
            return operands, self.types()
        return operands, [self.single_type()]

    def types(self) -> list[str]:
        self.need("(")
        types = []
        while not self.take(")"):
            types.append(self.balanced(",)"))
            self.take(",")
        return types

    def single_type(self) -> str:
        self.space()
        start, depth = self.at, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if depth == 0 and char in " \n),":
                break
            depth += (char in "<(") - (char in ">)")
            self.at += 1
        return self.text[start : self.at]

    def location(self) -> str:
        """The first source line that a location names; the text from behind `loc(` to its end is taken."""
        start, depth = self.at, 1
        while depth:
            if self.at >= len(self.text):
                raise self.fail("the end of a location")
            char = self.text[self.at]
            if char == '"':
                self.match(_STRING, "a complete string")
                continue
            depth += (char == "(") - (char == ")")
            self.at += 1
        source = _SOURCE.search(self.text, start, self.at)
        return f"{source[1]}:{source[2]}" if source else ""
