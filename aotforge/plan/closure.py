"""What a kernel's compiled bytes depend on in the kernels root: its source closure, and the digest of that.

The closure of a function is its own definition, every top-level binding of its module whose name occurs in it (helpers,
constants, imports), and so on from there, through relative imports. That is more than Triton's own dependency finder follows and
never less. A module that cannot be taken apart (side effects at import, reflection, star imports) counts whole, and so
do packages' `__init__.py`, because importing runs them.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from aotforge.errors import RulesError
from aotforge.plan.syntax import Source, binding_text, canonical, future_imports, names_in, read_source

Item = tuple[str, str]
"""A member of a closure: module path below the root, and a top-level name in it ('*' for the whole module)."""

_WHOLE = "*"
_ALLOWED_PACKAGES = frozenset({"__future__", "math", "triton", "typing"})


@dataclass(kw_only=True)
class SourceTree:
    """Modules below one kernels root, each read and parsed once."""

    root: Path
    _modules: dict[str, Source] = field(default_factory=dict)

    def module(self, path: str) -> Source:
        """The parsed module. Raises RulesError when it cannot be read or parsed."""
        if path not in self._modules:
            self._modules[path] = read_source(self.root, path)
        return self._modules[path]

    def exists(self, path: str) -> bool:
        """Whether there is such a file below the root."""
        return path in self._modules or (self.root / path).is_file()

    def closure(self, path: str, function: str) -> tuple[Item, ...]:
        """Sorted members of the function's closure. Raises RulesError for imports that a kernel may not have."""
        found: set[Item] = set()
        waiting: list[Item] = [(path, function)]
        for module in self._imported(path):
            if self.module(module).opaque or PurePosixPath(module).name == "__init__.py":
                waiting.append((module, _WHOLE))
        while waiting:
            item = waiting.pop()
            if item not in found:
                found.add(item)
                waiting.extend(self._reached(*item))
        return tuple(sorted(found))

    def digest(self, path: str, function: str) -> str:
        """SHA-256 of the closure's syntax: changes when the compiled bytes can change, not with comments or layout."""
        hasher = hashlib.sha256(b"aotforge source closure 1\0")
        for module, name in self.closure(path, function):
            source = self.module(module)
            bindings = source.bindings.get(name, ())
            whole = name == _WHOLE
            text = canonical(source.tree) if whole else "".join(binding_text(part, name) for part in bindings)
            future = ",".join(future_imports(source.tree))
            hasher.update(f"{module}\0{future}\0{name}\0{len(text)}\0{text}\0".encode())
        return hasher.hexdigest()

    def _reached(self, path: str, name: str) -> Iterator[Item]:
        source = self.module(path)
        statements = source.tree.body if name == _WHOLE else list(source.bindings.get(name, ()))
        for statement in statements:
            if isinstance(statement, ast.ImportFrom) and statement.level:
                yield from self._imported_names(path, statement, name)
                continue
            if name == _WHOLE:
                continue  # every binding of this module is in already; only its imports lead on
            for used in names_in(statement):
                if used in source.bindings:
                    yield (path, used)

    def _imported_names(self, path: str, statement: ast.ImportFrom, wanted: str) -> Iterator[Item]:
        for alias in statement.names:
            if wanted not in {_WHOLE, alias.asname or alias.name}:
                continue
            target, is_module = self._resolve(path, statement, alias.name)
            yield (target, _WHOLE if is_module or alias.name == "*" else alias.name)

    def _imported(self, path: str) -> tuple[str, ...]:
        """Every module below the root that importing `path` runs, itself and packages' `__init__.py` included."""
        seen: set[str] = set()
        waiting = [path]
        while waiting:
            current = waiting.pop()
            if current in seen or not self.exists(current):
                continue
            seen.add(current)
            for folder in PurePosixPath(current).parents:
                waiting.append(str(folder / "__init__.py"))
            for node in ast.walk(self.module(current).tree):
                if isinstance(node, ast.ImportFrom) and node.level:
                    waiting.extend(self._resolve(current, node, alias.name)[0] for alias in node.names)
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    self._check_absolute(current, node)
        return tuple(sorted(seen))

    def _check_absolute(self, path: str, node: ast.Import | ast.ImportFrom) -> None:
        names = (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        )
        for name in names:
            package = name.partition(".")[0]
            if package not in _ALLOWED_PACKAGES:
                raise RulesError(
                    f"{self.root / path}:{node.lineno}: kernel code imports {name}",
                    cause="the compiled bytes would depend on something that the job key does not cover",
                    hint="import Triton or math, and siblings relatively: from .common import helper",
                )

    def _resolve(self, path: str, node: ast.ImportFrom, name: str) -> tuple[str, bool]:
        """Where `from <node> import name` takes `name` from: (file, whether `name` is that whole module)."""
        folder = PurePosixPath(path).parent
        for _ in range(node.level - 1):
            if folder == PurePosixPath("."):
                raise RulesError(f"{self.root / path}:{node.lineno}: relative import leaves the kernels root")
            folder = folder.parent
        base = folder / (node.module or "").replace(".", "/") if node.module else folder
        if name != "*":
            for candidate in (f"{base / name}.py", str(base / name / "__init__.py")):
                if self.exists(candidate):
                    return candidate, True
        for candidate in (f"{base}.py", str(base / "__init__.py")):
            if self.exists(candidate):
                return candidate, False
        raise RulesError(f"{self.root / path}:{node.lineno}: no module {'.' * node.level}{node.module or ''}")
