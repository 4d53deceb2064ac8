"""Strict reader of YAML 1.2 (core schema): no duplicate keys, aliases or other tags. Writer for it.

PyYAML resolves scalars by YAML 1.1, where `on` and `no` are booleans, `010` is 8 and `1:30` is 90; this reader does not.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aotforge.errors import ManifestError

_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"~|null|Null|NULL|"), lambda _: None),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    "int": (re.compile(r"[-+]?[0-9]+"), int),
    "octal": (re.compile(r"0o[0-7]+"), lambda text: int(text, 8)),
    "hexadecimal": (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    "float": (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    "special": (
        re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
        lambda text: float(text.replace(".", "")),
    ),
    "str": (re.compile(r"(?s:.*)"), str),
}
"""The first pattern that matches a plain scalar decides (YAML 1.2.2, section 10.3.2)."""

_DEPTH = 100

Location = tuple[int | str, ...]


class _CoreLoader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Resolves plain scalars by the core schema; limits nesting, as libyaml's composer recurses without a limit."""

    depth = 0

    def descend_resolver(self, parent: Any, index: Any) -> None:
        self.depth += 1
        if self.depth > _DEPTH:
            raise yaml.YAMLError(f"nested deeper than {_DEPTH} levels")

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        if kind is yaml.ScalarNode and implicit[0]:
            return _TAG + next(name for name, (pattern, _) in _SCALARS.items() if pattern.fullmatch(value))
        return super().resolve(kind, value, implicit)


@dataclass(frozen=True)
class Document:
    """A YAML file whose top level is a mapping. Lines count from 1."""

    path: Path
    node: Any

    def value(self, sequence: Callable[[Iterator[Any]], Any] = list) -> dict[Any, Any]:
        """Plain Python values; `sequence` makes the lists. Raises ManifestError (file, line)."""
        found: dict[Any, Any] = self._value(self.node, sequence, set())
        return found

    def line(self, location: Location) -> int:
        """Line of the deepest part of `location` that exists; for a missing key, of the mapping it belongs in."""
        line, node = 1, self.node
        for part in location:
            if isinstance(node, yaml.MappingNode):
                entries = {_scalar(key): (key, value) for key, value in node.value}
            elif isinstance(node, yaml.SequenceNode):
                entries = {index: (item, item) for index, item in enumerate(node.value)}
            else:
                break
            if part not in entries:
                break
            key, node = entries[part]
            line = key.start_mark.line + 1
        return line

    def _value(self, node: Any, sequence: Callable[[Iterator[Any]], Any], seen: set[int]) -> Any:
        if id(node) in seen:
            raise self._malformed(node, "an alias; write the value again")
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            try:
                return _scalar(node)
            except (KeyError, ValueError):
                raise self._malformed(node, f"{node.value!r} is not a valid {node.tag}") from None
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return sequence(self._value(item, sequence, seen) for item in node.value)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, sequence, seen)
        raise self._malformed(node, f"unknown tag {node.tag}")

    def _mapping(self, node: Any, sequence: Callable[[Iterator[Any]], Any], seen: set[int]) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._malformed(key, "a key is not a scalar")
            name = self._value(key, sequence, seen)
            if name in entries:
                raise self._malformed(key, f"duplicate key {name!r}")
            entries[name] = self._value(value, sequence, seen)
        return entries

    def _malformed(self, node: Any, what: str) -> ManifestError:
        return ManifestError(f"{self.path}:{node.start_mark.line + 1}: malformed YAML: {what}")


def read_yaml(path: Path) -> Document:
    """One YAML file. Raises ManifestError (file, line) for malformed YAML and for anything but one mapping."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise ManifestError(
            f"{path}: cannot be read: {error.strerror}", hint="check that the file exists and can be read"
        ) from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: not UTF-8 text (byte {error.start})") from error


def parse_yaml(text: str, path: Path) -> Document:
    """YAML text; errors name `path`. Raises ManifestError."""
    data = text.encode()
    try:
        node = yaml.compose(data, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # libyaml reports the end of a text as the line after it
        line = min(mark.line + 1, max(1, len(data.splitlines()))) if mark else 1
        problem = f"malformed YAML: {error.problem}"
        raise ManifestError(f"{path}:{line}: {problem}", cause=error.context or "") from None
    except yaml.YAMLError as error:
        line = data.count(b"\n", 0, getattr(error, "position", 0)) + 1
        raise ManifestError(f"{path}:{line}: malformed YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(node, yaml.MappingNode):
        found = "a list" if isinstance(node, yaml.SequenceNode) else "a value" if node else "nothing"
        raise ManifestError(f"{path}:1: expected keys and values, found {found}")
    return Document(path, node)


class _Writer(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes strings that the core schema reads as something else; PyYAML knows those of YAML 1.1."""


def _quoted(writer: Any, text: str) -> Any:
    name = next(name for name, (pattern, _) in _SCALARS.items() if pattern.fullmatch(text))
    return writer.represent_scalar(f"{_TAG}str", text, style=None if name == "str" else '"')


_Writer.add_representer(str, _quoted)


def write_yaml(values: dict[str, Any]) -> str:
    """YAML of JSON values that this reader reads as the same values."""
    return str(yaml.dump(values, Dumper=_Writer, sort_keys=False, width=118))


def _scalar(node: Any) -> Any:
    """Value of a scalar node. Raises KeyError for an unknown tag, ValueError for a value that its tag does not allow."""
    pattern, convert = _SCALARS[node.tag.removeprefix(_TAG)]
    if not pattern.fullmatch(node.value):
        raise ValueError(node.value)
    return convert(node.value)
