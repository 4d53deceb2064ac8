"""The public C++ interface as data (`compat/api_levels.yaml`), with programs generated from it.

They do not depend on our own headers, so that a release can be compared with them.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from aotforge.base.html import render
from aotforge.base.manifest_reader import Manifest

HIP = """#pragma once
enum hipError_t : unsigned { hipSuccess = 0 };
typedef struct ihipStream_t* hipStream_t;
"""
"""hip/hip_runtime.h, as far as the interface needs it."""


class TensorViews(Manifest):
    """Sizes in bytes by rank; members of each, R being the rank; ranks that the library instantiates."""

    sizes: dict[int, int]
    instantiated: tuple[int, ...]
    members: tuple[str, ...]

    @property
    def methods(self) -> list[str]:
        """Names of the members without the constructors."""
        found = (re.search(r"(\w+|operator bool)\(", member) for member in self.members)
        return sorted({match.group(1) for match in found if match} - {"TensorView"})


class Constants(Manifest):
    """A struct of static constants."""

    type: str
    values: dict[str, int]


class Struct(Manifest):
    """Size and some offsets in bytes, measured on the reference's headers; `version` is kVersion."""

    size: int
    version: int | None = None
    offsets: dict[str, int] = Field(default_factory=dict)
    fields: tuple[str, ...]

    @property
    def field_names(self) -> list[str]:
        """Names of the fields, in their order."""
        return [field.split()[-1] for field in self.fields]


class LazyTensors(Manifest):
    """LazyTensor<R>: size in bytes, the same for every rank."""

    size: int
    fields: tuple[str, ...]


class Level(Manifest):
    """One API level. `functions` are declarations by namespace."""

    serves: tuple[str, ...]
    version: tuple[int, int, int]
    constants: dict[str, Constants]
    structs: dict[str, Struct]
    lazy_tensor: LazyTensors
    extra_arguments: tuple[str, ...]
    functions: dict[str, tuple[str, ...]]
    experimental_archs: tuple[str, ...]


class Interface(Manifest):
    """The contents of api_levels.yaml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    dtypes: dict[str, int]
    tensor_view: TensorViews
    levels: dict[str, Level]
    errors: dict[str, int]


def spell(type_: str) -> str:
    """C++ for the file's short names: T4 is TensorView<4>, LT2 LazyTensor<2>."""
    return re.sub(r"\bLT(\d)\b", r"LazyTensor<\1>", re.sub(r"\bT(\d)\b", r"TensorView<\1>", type_))


def header(data: Interface, level: str) -> str:
    """The complete interface of a level as one header, namespace aotriton."""
    return render("interface.h.jinja", data=data, rules=data.levels[level], spell=spell)


def references(data: Interface, level: str) -> str:
    """A translation unit that refers to every symbol of the interface; it includes "interface.h"."""
    values = {"data": data, "rules": data.levels[level], "function_name": function_name}
    return render("interface_references.cpp.jinja", **values)


def layout(data: Interface, level: str, include: str) -> str:
    """A program that prints size and field offsets of every struct, and the constants, as declared by `include`."""
    return render("interface_layout.cpp.jinja", data=data, rules=data.levels[level], include=include)


def function_name(declaration: str) -> str:
    """The name in a declaration such as `hipError_t check_gpu(Stream)`."""
    found = re.search(r"(\w+)\(", declaration)
    if found is None:
        raise ValueError(f"{declaration!r} does not declare a function")
    return found.group(1)
