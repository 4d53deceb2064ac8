"""Loads YAML files as validated models; an error names file, line, key and the nearest known key."""

import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from aotforge.errors import ManifestError, suggest

Location = tuple[int | str, ...]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's safe loader, which refuses a key that is there twice and reads dates as texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML declares it
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, dict | list) or key in values:
            mark = key_node.start_mark
            raise yaml.MarkedYAMLError(problem=f"duplicate key {key!r}", problem_mark=mark)
        values[key] = loader.construct_object(value_node, deep=True)
    return values


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


@dataclass(frozen=True)
class Document:
    """A YAML file whose top level is a mapping. Lines count from 1."""

    path: Path
    node: Any
    values: dict[Any, Any]

    def line(self, location: Location) -> int:
        """Line of the deepest part of `location` that exists: for a missing key, of its mapping."""
        line, node = 1, self.node
        for part in location:
            if isinstance(node, yaml.MappingNode):
                entries = {key.value: (key, value) for key, value in node.value}
            else:
                entries = {str(index): (item, item) for index, item in enumerate(node.value)}
            if isinstance(node, yaml.ScalarNode) or str(part) not in entries:
                break
            key, node = entries[str(part)]
            line = key.start_mark.line + 1
        return line


def read_yaml(path: Path) -> Document:
    """One YAML file. Raises ManifestError (file, line) for anything but one mapping."""
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
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        values = loader.construct_document(node) if node else None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        before = text[: getattr(error, "position", 0)].count("\n")
        # libyaml reports the end of a text as the line after it
        line = min(mark.line + 1, max(1, len(text.splitlines()))) if mark else before + 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ManifestError(f"{path}:{line}: malformed YAML: {problem}") from None
    if not isinstance(values, dict):
        actual = "a list" if isinstance(values, list) else "a value" if node else "nothing"
        raise ManifestError(f"{path}:1: expected keys and values, found {actual}")
    return Document(path, node, values)


def write_yaml(values: dict[str, Any]) -> str:
    """YAML of JSON values that this reader reads as the same values."""
    return str(yaml.safe_dump(values, sort_keys=False, width=118))


def _tuples(value: Any) -> Any:
    """Lists as tuples, which models have."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


class Manifest(BaseModel):
    """Base of every manifest model: unknown keys are refused, values are frozen, types are not coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


M = TypeVar("M", bound=BaseModel)


def load(path: Path, model: type[M]) -> M:
    """One YAML file as `model`. Raises ManifestError (file, line, key) for anything that does not fit."""
    return _validated(read_yaml(path), model)


def parse(text: str, path: Path, model: type[M]) -> M:
    """As `load`, of the text that `path` has or will have."""
    return _validated(parse_yaml(text, path), model)


def _validated(document: Document, model: type[M]) -> M:
    try:
        return model.model_validate(_tuples(document.values))
    except ValidationError as error:
        # a key that is missing is often one that is misspelt, so the misspelling comes first
        problems = sorted(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
        first = problems[0]
        where = f"{document.path}:{document.line(first['loc'])}: {_key(first['loc'])}"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ManifestError(
            f"{where}: {_REASONS.get(first['type'], first['msg'])}{more}",
            cause=_cause(model, first),
            hint=f"correct the key in {document.path}; models are in aotforge/base",
        ) from None


_REASONS = {"extra_forbidden": "unknown key", "missing": "required key is missing"}


def _key(location: Location) -> str:
    return ".".join(str(part) for part in location) or "(top level)"


def _cause(model: type[BaseModel], error: Any) -> str:
    if error["type"] == "extra_forbidden":
        known = _fields(model, error["loc"][:-1])
        return suggest(str(error["loc"][-1]), known) if known else ""
    if error["type"] == "missing":
        return ""
    return f"found {error['input']!r}"


def _fields(model: type[BaseModel], location: Location) -> tuple[str, ...]:
    """Field names of the model that `location` leads to; none for another type."""
    current: Any = model
    for part in location:
        if fields := getattr(current, "model_fields", None):
            current = fields[str(part)].annotation if str(part) in fields else None
        else:
            # dict[K, V] leads to V, tuple[T, ...] and list[T] to T
            inner = [kind for kind in typing.get_args(current) if kind is not Ellipsis]
            current = inner[-1] if inner else None
    return tuple(field.alias or name for name, field in getattr(current, "model_fields", {}).items())
