"""Functions of a preprocessed source with those that they name, without the rest: a host compiler cannot read
kernels and launches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[{}()\[\];]|[^"\'{}()\[\];]+')
_NAMESPACE = re.compile(r"^\s*(?:inline\s+)?(?:namespace\b[^{;=]*|extern\s+\"C\"\s*)\{$", re.DOTALL)
_RETURN = re.compile(r'^# \d+ "(?P<file>[^"]*)" 2', re.MULTILINE)
_MARKER = re.compile(r"^#.*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """A declaration; `name` is that of what has a body. The opening and the end of a namespace are chunks as
    well."""

    text: str
    name: str = ""

    @property
    def words(self) -> set[str]:
        return set(re.findall(r"\w+", self.text))


def kept(preprocessed: str, source: str, names: Collection[str]) -> str:
    """What a compiler's -E makes of `source`: all of its headers, and of its own text declarations and what
    `names` need.

    Raises KeyError for a name that has no body there.
    """
    starts = [found.end() for found in _RETURN.finditer(preprocessed) if found["file"] == source]
    at = max(starts, default=0)
    chunks = list(_chunks(_MARKER.sub("", preprocessed[at:])))
    bodies: dict[str, set[str]] = {}
    for chunk in chunks:
        if chunk.name:
            bodies.setdefault(chunk.name, set()).update(chunk.words)
    if missing := sorted(set(names) - bodies.keys()):
        raise KeyError(", ".join(missing))
    registered = {word for chunk in chunks if not chunk.name for word in re.findall(r"&(\w+)", chunk.text)}
    wanted, new = set[str](), {*names, *(registered & bodies.keys())}
    while new:
        wanted |= new
        new = {word for name in new for word in bodies[name] if word in bodies} - wanted
    body = "".join(chunk.text for chunk in chunks if not chunk.name or chunk.name in wanted)
    return preprocessed[:at] + "\n" + body


def _chunks(text: str) -> Iterator[_Chunk]:
    """Declarations at the level of namespaces."""
    parts: list[str] = []
    braces = others = 0
    for token in _TOKEN.findall(text):
        parts.append(token)
        if token in "([":
            others += 1
        elif token in ")]":
            others -= 1
        elif token == "{" and not braces and not others and _NAMESPACE.match("".join(parts)):
            yield _Chunk(text="".join(parts))
            parts = []
        elif token == "{":
            braces += 1
        elif token == "}" and not braces:  # of a namespace
            yield _Chunk(text="".join(parts))
            parts = []
        elif token == "}":
            braces -= 1
            if not braces and not others:
                chunk = "".join(parts)
                yield _Chunk(text=chunk, name=_name(chunk.partition("{")[0]))
                parts = []
        elif token == ";" and not braces and not others:
            yield _Chunk(text="".join(parts))
            parts = []
    yield _Chunk(text="".join(parts))


def _name(head: str) -> str:
    """Of a function, or of a structure: the last word in front of the parameters."""
    head = head.strip()
    while head.startswith("template"):
        depth = 0
        for at, letter in enumerate(head):
            depth += (letter == "<") - (letter == ">")
            if letter == ">" and not depth:
                head = head[at + 1 :].strip()
                break
        else:
            return ""
    words = re.findall(r"\w+", head.partition("(")[0])
    return words[-1] if words else ""
