"""The page docs/child-processes.md, from the kinds of child processes and the calls that start them.

python -m tests.support.child_processes     # writes the page
"""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from functools import cache
from pathlib import Path

from aotforge.base.child_processes import KINDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "child-processes.md"
STARTERS = {
    "aotforge/base/child_processes.py": "starts every child",
    "aotforge/sandbox/executors/agent.py": "starts a step inside its sandbox, with the step's own environment",
    "aotforge/cli/developer.py": "becomes the Python of `./dev python`, which is the user's own command",
    "aotforge/compile/worker.py": "forks a compile worker for each job, with the worker's environment",
    "aotforge/targets/cpu/launch.py": "forks to repeat a launch that may fault, with the program's environment",
    "aotforge/verify/native/child.py": "forks for each launch of an image, with the environment of its worker",
}
"""The only modules that may start processes themselves, and why."""

_STARTING_CHILDREN = {
    *("run_child", "run_child_bytes", "start_child", "child_environment"),
    *("run_program", "ProcessChannel", "PodmanChannel", "__init__"),
}
_STARTING = {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
_STARTING_OS = ("system", "popen", "fork", "forkpty", "spawn", "exec", "posix_spawn")
_INTRO = """# Child processes

Every process that `aotforge` starts is of one of these kinds.
A child receives the variables that its kind lists, those that its caller sets by value, and none else.
So signing keys (`AOTFORGE_KEY_*`, `AOTFORGE_SIGNING_KEY`) and access keys (`AWS_*`) never reach a child.
`aotforge/base/child_processes.py` defines the kinds; a test writes this page and compares it:
`python -m tests.support.child_processes`.

[threat-model.md](threat-model.md) states what each kind is trusted with.
"""


@cache
def trees() -> dict[str, ast.Module]:
    """Syntax trees of the package and of tasks.py, by path."""
    paths = [*sorted((ROOT / "aotforge").rglob("*.py")), ROOT / "tasks.py"]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def direct_starts(tree: ast.Module) -> list[str]:
    """Calls in a module that start a process without `base.child_processes`."""
    found = []
    types = {node.value for node in ast.walk(tree) if isinstance(node, ast.Subscript)}  # Popen[bytes]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {"subprocess", "os", "multiprocessing"}:
            names = {one.name for one in node.names}
            found += sorted(name for name in names if _starts(node.module, name))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node not in types:
            module, name = node.value.id, node.attr
            found += [f"{module}.{name}"] if _starts(module, name) else []
    return found


def _starts(module: str, name: str) -> bool:
    if module == "subprocess":
        return name in _STARTING
    if module == "os":
        return name.startswith(_STARTING_OS)
    if module == "asyncio":
        return name.startswith("create_subprocess")
    if module in {"pty", "ctypes.pythonapi"}:
        return name in {"fork", "spawn"}
    return module in {"multiprocessing", "concurrent"} and name in {"Process", "Pool", "ProcessPoolExecutor"}


def callers() -> dict[str, set[str]]:
    """Modules by the kind of child that they start: a call's first argument, or a value or default of a name `kind`."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            for kind in set() if path in STARTERS else _kinds(node):
                found[kind].add(path)
    return found


def _kinds(node: ast.AST) -> set[str]:
    values: list[ast.AST] = []
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        values += node.args[:1] if name in _STARTING_CHILDREN else []
        values += [one.value for one in node.keywords if one.arg == "kind"]
    elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "kind":
        values += ast.walk(node.value)
    elif isinstance(node, ast.arguments):
        values += [
            one
            for arg, one in zip(node.kwonlyargs, node.kw_defaults, strict=True)
            if arg.arg == "kind" and one
        ]
    words = {one.value for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return words & KINDS.keys()


def page() -> str:
    """The page."""
    where = callers()
    parts = [_INTRO]
    for name, kind in KINDS.items():
        inherited = ", ".join(f"`{one}`" for one in kind.inherited) or "nothing"
        fixed = ", ".join(f"`{key}={value}`" for key, value in kind.fixed.items()) or "nothing"
        lines = [
            *textwrap.wrap(f"- Programs: {kind.programs}.", 108, subsequent_indent="  "),
            *textwrap.wrap(f"- From the caller: {inherited}.", 108, subsequent_indent="  "),
            *textwrap.wrap(f"- Fixed: {fixed}.", 108, subsequent_indent="  "),
            "- Started by:",
            *(f"  - `{path}`" for path in sorted(where[name])),
        ]
        parts.append(f"## {name}\n\n" + "\n".join(lines) + "\n")
    table = "\n".join(f"- `{path}` {why}." for path, why in STARTERS.items())
    parts.append(f"## Modules that may start a process\n\n{table}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
