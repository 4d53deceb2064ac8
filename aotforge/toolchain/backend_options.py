"""Options of the installed Triton's back ends, read from their sources: Triton itself is not imported."""

import ast
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aotforge.errors import ToolchainError

_KINDS = {"bool": bool, "int": int, "str": str, "Optional[int]": int}


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """Options of one back end.

    `source` is a path below Triton's package, `options_class` the class in it whose fields are the options.
    `not_code` are those that a setting must not have, with the reason; `fields` those that are fields of a
    setting themselves. `maker` names the back end.
    """

    maker: str
    source: str
    options_class: str
    not_code: Mapping[str, str]
    fields: tuple[str, ...]

    def names(self) -> dict[str, type]:
        """Types of the options that change code and have no field of a setting. Raises ToolchainError."""
        return {
            name: _KINDS[kind]
            for name, kind in _annotations(self.source, self.options_class).items()
            if kind in _KINDS and name not in self.not_code and name not in self.fields
        }

    def refusal(self, name: str, value: object) -> tuple[str, str]:
        """Cause and next step where a setting cannot have this option, else empty. Raises ToolchainError.

        Without Triton it is not known: plans for another machine's compiler were checked there.
        """
        if importlib.util.find_spec("triton") is None:
            return "", ""
        options = self.names()
        if name in self.fields:
            return f"{name} is a field of Setting", f"Setting({name}=...)"
        if name in self.not_code:
            return self.not_code[name], f"options are {', '.join(options)}"
        if name not in options:
            return f"Triton's {self.maker} back end has no such option", f"options are {', '.join(options)}"
        if type(value) is not options[name]:
            return f"{name} is {options[name].__name__}", ""
        return "", ""


@cache
def _annotations(source: str, options_class: str) -> dict[str, str]:
    """Type by field of a class in one of Triton's files."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise ToolchainError(
            "Triton is not installed", hint="run ./dev again: it installs the pinned version"
        )
    file = Path(spec.origin).parent / source
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError) as error:
        raise ToolchainError(f"{file} cannot be read: {error}", hint="reinstall Triton") from error
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == options_class]
    if not classes:
        raise ToolchainError(f"{file} has no class {options_class}", cause="it is another version of Triton")
    return {
        node.target.id: ast.unparse(node.annotation).partition(" ")[0]
        for node in classes[0].body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
