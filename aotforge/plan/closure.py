"""The source closure of a kernel: the files that its image depends on; digest of their syntax.

The closure of a file is the file, the `__init__.py` files of its packages, and the closures of all modules
that it imports relatively, anywhere in it. The digest covers no comments, docstrings and formatting. It is
the same in every Python version (`ast.dump` is not: it gains fields and drops empty ones over time).
"""

import ast
import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from aotforge.errors import RulesError

_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores", "type_params"})
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
_ALLOWED_PACKAGES = frozenset({"__future__", "math", "triton", "typing"})


def import_statements(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import in the module, at any depth. Visits statements only: no expression contains an import."""
    waiting: deque[ast.AST] = deque([tree])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        for block in _BLOCKS:
            waiting.extend(getattr(node, block, ()))


def canonical(value: object) -> str:
    """Syntax as text: equal for sources that differ in comments, layout or docstrings only."""
    if isinstance(value, list):
        return f"[{''.join(f'{canonical(item)},' for item in value)}]"
    if not isinstance(value, ast.AST):
        return f"{type(value).__name__}:{value!r}"
    parts = []
    for name in value._fields:
        entry = getattr(value, name, None)
        # None is content as a constant's value; everywhere else it means that there is nothing
        content = isinstance(value, ast.Constant) and name == "value"
        if not content and (name in _IGNORED_FIELDS or entry is None or entry == []):
            continue
        if name == "body" and isinstance(value, ast.FunctionDef | ast.ClassDef | ast.Module):
            entry = value.body[1:] if ast.get_docstring(value, clean=False) is not None else value.body
        parts.append(f"{name}={canonical(entry)},")
    return f"{type(value).__name__}({''.join(parts)})"


@dataclass(frozen=True, kw_only=True)
class Module:
    """A parsed file below the kernels root: digest of its syntax, files that importing it reads."""

    tree: ast.Module
    digest: str
    imports: tuple[str, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """Names and attributes in it."""
        nodes = [*ast.walk(self.tree)]
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        return frozenset(attributes | {node.id for node in nodes if isinstance(node, ast.Name)})


@dataclass(kw_only=True)
class SourceTree:
    """Modules below one kernels root, each read and parsed once. Paths are relative to it, in POSIX form."""

    root: Path
    _modules: dict[str, Module] = field(default_factory=dict)
    _names: dict[str, frozenset[str]] = field(default_factory=dict)

    def module(self, path: str) -> Module:
        """The parsed module. Raises RulesError when it is not readable, or imports what a kernel may not."""
        if path not in self._modules:
            tree = _parse(self.root / path)
            self._modules[path] = Module(
                tree=tree,
                digest=hashlib.sha256(canonical(tree).encode()).hexdigest(),
                imports=tuple(self._imports(path, tree)),
            )
        return self._modules[path]

    def closure(self, path: str) -> tuple[str, ...]:
        """Sorted files of the closure. Raises RulesError."""
        found: set[str] = set()
        waiting = [path]
        while waiting:
            current = waiting.pop()
            if current not in found:
                found.add(current)
                waiting.extend(self.module(current).imports)
        return tuple(sorted(found))

    def digest(self, path: str) -> str:
        """SHA-256 of the closure's syntax: changes when the compiled bytes can change. Raises RulesError."""
        lines = "".join(f"{name} {self.module(name).digest}\n" for name in self.closure(path))
        return hashlib.sha256(f"aotforge source closure 2\n{lines}".encode()).hexdigest()

    def names(self, path: str) -> frozenset[str]:
        """Every name and attribute in the closure. Raises RulesError."""
        if path not in self._names:
            self._names[path] = frozenset().union(*(self.module(name).names for name in self.closure(path)))
        return self._names[path]

    def _imports(self, path: str, tree: ast.Module) -> Iterator[str]:
        packages = (str(folder / "__init__.py") for folder in PurePosixPath(path).parents)
        yield from filter(self._exists, packages)
        for node in import_statements(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._check_absolute(path, node, alias.name)
            elif node.level:
                for alias in node.names:
                    yield from self._resolve(path, node, alias.name)
            else:
                self._check_absolute(path, node, node.module or "")

    def _check_absolute(self, path: str, node: ast.Import | ast.ImportFrom, name: str) -> None:
        if name.partition(".")[0] not in _ALLOWED_PACKAGES:
            raise RulesError(
                f"{self.root / path}:{node.lineno}: kernel code imports {name}",
                cause="the compiled bytes would depend on something that the job key does not cover",
                hint="import Triton or math, and siblings relatively: from .common import helper",
            )

    def _resolve(self, path: str, node: ast.ImportFrom, name: str) -> list[str]:
        """Every file that `from <node> import name` can take `name` from."""
        folders = PurePosixPath(path).parents
        if node.level > len(folders):
            raise RulesError(f"{self.root / path}:{node.lineno}: relative import leaves the kernels root")
        base = folders[node.level - 1] / (node.module or "").replace(".", "/")
        modules = [base] if name == "*" else [base / name, base]
        found = [
            file
            for module in modules
            for file in (f"{module}.py", str(module / "__init__.py"))
            if self._exists(file)
        ]
        if not found:
            raise RulesError(
                f"{self.root / path}:{node.lineno}: no module {'.' * node.level}{node.module or ''}"
            )
        return found

    def _exists(self, path: str) -> bool:
        return path in self._modules or (self.root / path).is_file()


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except OSError as error:
        raise RulesError(f"{file}: cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise RulesError(f"{file}:{line}: not valid Python: {getattr(error, 'msg', error)}") from None
