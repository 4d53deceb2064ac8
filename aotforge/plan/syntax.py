"""Python source as data: a canonical text of its syntax, and what a module's top level binds.

The canonical text leaves out positions, comments, formatting and docstrings, and does not depend on the Python version that
parses (`ast.dump` does: it gains fields and drops empty ones from release to release).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import RulesError

_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores", "type_params"})
_PURE_BUILTINS = frozenset(
    {"abs", "bool", "float", "frozenset", "int", "len", "max", "min", "range", "str", "tuple"}
)
_REFLECTION = frozenset(
    {"__import__", "delattr", "eval", "exec", "globals", "importlib", "locals", "setattr", "sys", "vars"}
)


def canonical(node: ast.AST) -> str:
    """Syntax of `node` as text: equal for sources that differ in comments, layout or docstrings only."""
    parts: list[str] = []
    _write(node, parts)
    return "".join(parts)


def _write(value: object, parts: list[str]) -> None:
    if isinstance(value, ast.AST):
        parts.append(f"{type(value).__name__}(")
        for name in value._fields:
            entry = getattr(value, name, None)
            # None as a constant's value is content, everywhere else it means that there is nothing
            content = isinstance(value, ast.Constant) and name == "value"
            if not content and (name in _IGNORED_FIELDS or entry is None or entry == []):
                continue
            if name == "body" and isinstance(value, ast.FunctionDef | ast.ClassDef | ast.Module):
                entry = _without_docstring(value.body)
            parts.append(f"{name}=")
            _write(entry, parts)
            parts.append(",")
        parts.append(")")
    elif isinstance(value, list):
        parts.append("[")
        for item in value:
            _write(item, parts)
            parts.append(",")
        parts.append("]")
    else:
        parts.append(f"{type(value).__name__}:{value!r}")


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] if body and _is_string(body[0]) else body


def _is_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


@dataclass(frozen=True, kw_only=True)
class Source:
    """A module below the kernels root. `path` is relative to it, in POSIX form; `opaque` says why it cannot be taken apart."""

    path: str
    tree: ast.Module
    bindings: dict[str, tuple[ast.stmt, ...]]
    opaque: str


def read_source(root: Path, path: str) -> Source:
    """Parse `root`/`path`. Raises RulesError naming file and line when it is not Python."""
    file = root / path
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except OSError as error:
        raise RulesError(f"{file}: cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise RulesError(f"{file}:{line}: not valid Python: {getattr(error, 'msg', error)}") from None
    bindings: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in bound_names(statement):
            bindings.setdefault(name, []).append(statement)
    return Source(
        path=path,
        tree=tree,
        bindings={name: tuple(statements) for name, statements in bindings.items()},
        opaque=_opacity(tree),
    )


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Names that a top-level statement binds, as far as it is of a kind that can be taken apart."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(statement, ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id


def names_in(node: ast.AST) -> frozenset[str]:
    """Every name that occurs below `node`, whatever it is used for: more than it can reach, never less."""
    return frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def binding_text(statement: ast.stmt, name: str) -> str:
    """Canonical text of what `statement` says about `name`; an import statement's other names do not count."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        origin = (
            f"{'.' * statement.level}{statement.module or ''}"
            if isinstance(statement, ast.ImportFrom)
            else ""
        )
        used = [a for a in statement.names if name in {a.asname, a.name, a.name.partition(".")[0]}]
        return "".join(f"import({origin},{alias.name},{alias.asname or ''})" for alias in used)
    return canonical(statement)


def future_imports(tree: ast.Module) -> tuple[str, ...]:
    """Names imported from __future__: they change how the whole module is read."""
    found = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
    return tuple(sorted(alias.name for node in found for alias in node.names))


def _opacity(tree: ast.Module) -> str:
    """Why single bindings of the module cannot be looked at alone, or ''."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            return f"line {node.lineno}: a global statement"
        if isinstance(node, ast.Name) and node.id in _REFLECTION:
            return f"line {node.lineno}: {node.id}"
    own = {name for statement in tree.body for name in bound_names(statement)}
    pure = _pure_modules(tree) | (_PURE_BUILTINS - own)
    for statement in tree.body:
        if reason := _statement_opacity(statement, pure):
            return f"line {statement.lineno}: {reason}"
    return ""


def _pure_modules(tree: ast.Module) -> frozenset[str]:
    """Top-level names through which only Triton and the standard library's `math` are reached."""
    pure = set()
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name.partition(".")[0] in {"triton", "math"}:
                    pure.add(alias.asname or alias.name.partition(".")[0])
        elif (
            isinstance(statement, ast.ImportFrom)
            and statement.level == 0
            and (statement.module or "").partition(".")[0] in {"triton", "math"}
        ):
            pure.update(alias.asname or alias.name for alias in statement.names)
    return frozenset(pure)


def _statement_opacity(statement: ast.stmt, pure: frozenset[str]) -> str:
    if isinstance(statement, ast.Import | ast.Pass) or _is_string(statement):
        return ""
    if isinstance(statement, ast.ImportFrom):
        return "a star import" if any(alias.name == "*" for alias in statement.names) else ""
    if isinstance(statement, ast.FunctionDef):
        return _function_opacity(statement, pure)
    if isinstance(statement, ast.Assign) and all(_plain_target(target) for target in statement.targets):
        return _expression_opacity(statement.value, pure)
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return _expression_opacity(statement.value, pure) if statement.value else ""
    return f"a statement of kind {type(statement).__name__}"


def _function_opacity(function: ast.FunctionDef, pure: frozenset[str]) -> str:
    """What defining a function runs: decorators, which may put anything in its place, and defaults."""
    for decorator in function.decorator_list:
        if _head(decorator.func if isinstance(decorator, ast.Call) else decorator) not in pure:
            return f"decorator of {function.name}"
    evaluated = (*function.decorator_list, *function.args.defaults, *filter(None, function.args.kw_defaults))
    return next(filter(None, (_expression_opacity(part, pure) for part in evaluated)), "")


def _plain_target(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(_plain_target(item) for item in target.elts)
    return isinstance(target, ast.Name)


def _expression_opacity(expression: ast.expr, pure: frozenset[str]) -> str:
    """Calls may change what they are given, so only calls into Triton, `math` and pure builtins can be looked at alone."""
    for node in ast.walk(expression):
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return f"a {type(node).__name__} expression"
        if isinstance(node, ast.Call) and _head(node.func) not in pure:
            return "a call at import"
    return ""


def _head(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
