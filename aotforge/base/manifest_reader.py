"""Loads YAML files as validated models; an error names file, line, key and the nearest known key."""

import typing
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from aotforge.base.yaml_reader import Document, Location, parse_yaml, read_yaml
from aotforge.errors import ManifestError, suggest


class Manifest(BaseModel):
    """Base of every manifest model: unknown keys are refused, values are frozen, types are not coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


M = TypeVar("M", bound=BaseModel)


def load(path: Path, model: type[M]) -> M:
    """Read one YAML file as `model`. Raises ManifestError (file, line, key) for anything that does not fit."""
    return _validated(read_yaml(path), model)


def parse(text: str, path: Path, model: type[M]) -> M:
    """As `load`, of the text that `path` has or will have."""
    return _validated(parse_yaml(text, path), model)


def _validated(document: Document, model: type[M]) -> M:
    path = document.path
    try:
        return model.model_validate(document.value(tuple))
    except ValidationError as error:
        # a key that is missing is often one that is misspelt, so the misspelling comes first
        found = sorted(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
        first = found[0]
        where = document.line(first["loc"])
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ManifestError(
            f"{path}:{where}: {_key(first['loc'])}: {_reason(first['type'], first['msg'])}{more}",
            cause=_cause(model, first),
            hint=f"correct the key in {path}; models are in aotforge/base",
        ) from None


def line_of(path: Path, location: Location) -> int:
    """Line (from 1) of a key in a YAML file, for errors that are found only after loading."""
    return read_yaml(path).line(location)


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
    """Field names of the model that `location` leads to; none when it leads through a type that is not a model."""
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
