"""Options of the installed Triton's AMD back end, read from its source: Triton itself is not imported."""

import ast
import importlib.util
from functools import cache
from pathlib import Path

from aotforge.errors import ToolchainError

_SOURCE = "backends/amd/compiler.py"
_CLASS = "HIPOptions"
_KINDS = {"bool": bool, "int": int, "str": str}
_NOT_CODE = {
    "arch": "the target has it",
    "backend_name": "it is a name",
    "supported_fp8_dtypes": "it is a property of the arch",
    "deprecated_fp8_dot_operand_dtypes": "it is a property of the arch",
    "allowed_dot_input_precisions": "it is a property of the arch",
    "extern_libs": "it is a path of this machine",
    "instrumentation_mode": "instrumented images need memory that the library does not pass",
    "fpsan_homomorphic_casts": "it is part of the instrumentation",
    "launch_cooperative_grid": "it changes the launch, not the image",
    "num_ctas": "no arch here launches clusters",
    "sanitize_overflow": "it adds assertions to debug builds only",
}
"""Options that a setting must not have, and why."""
FIELDS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
"""Options that are fields of a setting themselves."""


@cache
def hip_options() -> dict[str, type]:
    """Every option that changes an image and is not a field of a setting, with its type. Raises ToolchainError."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        raise ToolchainError(
            "Triton is not installed", hint="run ./dev again: it installs the pinned version"
        )
    file = Path(found.origin).parent / _SOURCE
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError) as error:
        raise ToolchainError(f"{file} cannot be read: {error}", hint="reinstall Triton") from error
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == _CLASS]
    if not classes:
        raise ToolchainError(f"{file} has no class {_CLASS}", cause="it is another version of Triton")
    fields = {
        node.target.id: ast.unparse(node.annotation).partition(" ")[0]
        for node in classes[0].body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return {
        name: _KINDS[kind]
        for name, kind in fields.items()
        if kind in _KINDS and name not in _NOT_CODE and name not in FIELDS
    }


def refusal(name: str, value: object) -> tuple[str, str]:
    """The cause and the next step why a setting cannot have this option; empty texts when it can. Raises ToolchainError."""
    options = hip_options()
    if name in FIELDS:
        return f"{name} is a field of Setting", f"Setting({name}=...)"
    if name in _NOT_CODE:
        return _NOT_CODE[name], f"options are {', '.join(options)}"
    if name not in options:
        return "Triton's AMD back end has no such option", f"options are {', '.join(options)}"
    if type(value) is not options[name]:
        return f"{name} is {options[name].__name__}", ""
    return "", ""
