"""YAML files as validated models; every complaint names file, line and key.

`load(path, Model)` is the one door: malformed YAML, unknown keys, duplicate keys, wrong types and missing keys become
ManifestError, with the nearest known key where there is one.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from aotforge.errors import ManifestError, suggest


class Manifest(BaseModel):
    """Base of every manifest model: unknown keys are refused, values are frozen, types are not coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]


def load(path: Path, model: type[M]) -> M:
    """Read one YAML file as `model`. Raises ManifestError (file, line, key) for anything that does not fit."""
    tree = _parse(path)
    try:
        return model.model_validate(_plain(tree))
    except ValidationError as error:
        # a key that is missing is often one that is misspelt, so the misspelling comes first
        found = sorted(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
        first = found[0]
        where = _position(tree, first["loc"])
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ManifestError(
            f"{path}:{where}: {_key(first['loc'])}: {_reason(first['type'], first['msg'])}{more}",
            cause=_cause(model, first),
            hint=f"correct the key in {path}; models are in aotforge/base",
        ) from None


def line_of(path: Path, location: Location) -> int:
    """Line (from 1) of a key in a YAML file, for complaints that are found only after loading."""
    return _position(_parse(path), location)


def _parse(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ManifestError(
            f"{path}: cannot be read: {error.strerror}", hint="check that the file exists and can be read"
        ) from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: not UTF-8 text (byte {error.start})") from error
    try:
        tree = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ManifestError(
            f"{path}:{line}: malformed YAML: {error.problem}", cause=error.context or ""
        ) from None
    except (YAMLError, ValueError) as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise ManifestError(f"{path}:{line}: malformed YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(tree, Mapping):
        raise ManifestError(
            f"{path}:1: expected keys and values, found {'a list' if isinstance(tree, Sequence) else tree!r}"
        )
    return tree


def _plain(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {_scalar(key): _plain(value) for key, value in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str | bytes):
        return tuple(_plain(item) for item in node)
    return _scalar(node)


def _scalar(value: Any) -> Any:
    # ruamel's round-trip scalars are subclasses (ScalarFloat, ScalarBoolean, ...) that strict models refuse
    if isinstance(value, bool) or type(value).__name__ == "ScalarBoolean":
        return bool(value)
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    return value


def _position(tree: Any, location: Location) -> int:
    """Line of the deepest node of `location` that exists; of a missing key, the line of the mapping it belongs in."""
    line = 1
    node = tree
    for part in location:
        if isinstance(node, Mapping) and part in node:
            line = node.lc.key(part)[0] + 1  # type: ignore[attr-defined]
        elif (
            isinstance(node, Sequence)
            and not isinstance(node, str)
            and isinstance(part, int)
            and part < len(node)
        ):
            line = node.lc.item(part)[0] + 1  # type: ignore[attr-defined]
        else:
            break
        node = node[part]
    return line


def _key(location: Location) -> str:
    return ".".join(str(part) for part in location) or "(top level)"


def _reason(kind: str, message: str) -> str:
    return {"extra_forbidden": "unknown key", "missing": "required key is missing"}.get(kind, message)


def _cause(model: type[BaseModel], error: Any) -> str:
    if error["type"] == "extra_forbidden":
        known = _fields(model, error["loc"][:-1])
        return suggest(str(error["loc"][-1]), known) if known else ""
    if error["type"] == "missing":
        return ""
    return f"found {error['input']!r}"


def _fields(model: type[BaseModel], location: Location) -> tuple[str, ...]:
    """Field names of the model that `location` leads to; none when the way goes through a type that is no model."""
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))
            current = field.annotation if field else None
        else:
            # dict[K, V] leads to V, tuple[T, ...] and list[T] to T
            inner = [kind for kind in typing.get_args(current) if kind is not Ellipsis]
            current = inner[-1] if inner else None
        if current is None:
            return ()
    if isinstance(current, type) and issubclass(current, BaseModel):
        return tuple(current.model_fields)
    return ()
