"""One kernel of the rules while it is planned: its function's parameters, and the place of errors."""

import ast
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from aotforge.base.architectures import Architectures
from aotforge.base.hazards import Hazards
from aotforge.errors import RulesError, suggest
from aotforge.plan.closure import SourceTree
from aotforge.rules import Kernel, Operator, Scalar, ValueType
from aotforge.toolchain.triton import Toolchain

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RulesLocation:
    """The rules file and the kernel in it that an error is about."""

    file: str
    kernel: str = ""

    def error(self, what: str, *, cause: str = "", hint: str = "") -> RulesError:
        """A RulesError that names this location."""
        kernel = f"kernel {self.kernel}: " if self.kernel else ""
        return RulesError(f"{self.file}: {kernel}{what}", cause=cause, hint=hint)

    def check_unique(self, what: str, names: Iterable[object]) -> None:
        """Raises RulesError for a name that occurs twice."""
        seen: set[object] = set()
        for name in names:
            if name in seen:
                raise self.error(f"{what} {name} is defined twice")
            seen.add(name)

    def run(self, what: str, function: Callable[..., T], *arguments: object) -> T:
        """The result of a function of the rules, which may raise anything. Raises RulesError."""
        try:
            return function(*arguments)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            raise self.error(
                f"{what} raises {type(error).__name__}: {error}",
                cause=f"{frame.filename}:{frame.lineno}: {frame.line}",
            ) from error


@dataclass(frozen=True, kw_only=True)
class FunctionSignature:
    """Parameters in order; those annotated constexpr; defaults that are literals."""

    parameters: tuple[str, ...]
    constexpr: frozenset[str]
    defaults: dict[str, Scalar]


def read_signature(tree: SourceTree, path: str, function: str) -> FunctionSignature:
    """Signature of a top-level `@triton.jit` function. Raises RulesError when there is none of that name."""
    body = tree.module(path).tree.body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        raise RulesError(
            f"{tree.root / path}: no function {function}",
            hint=suggest(function, functions) if functions else "the file has no function at its top level",
        )
    node = functions[function]
    location = f"{tree.root / path}:{node.lineno}"
    decorators = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
    if len(decorators) != 1 or decorators[0].rpartition(".")[2] != "jit":
        raise RulesError(
            f"{location}: {function} is decorated with {', '.join(decorators) or 'nothing'}",
            cause="settings come from rules.py, so kernels are plain @triton.jit functions",
        )
    if node.args.vararg or node.args.kwarg:
        raise RulesError(f"{location}: {function} takes * or ** parameters", hint="name every parameter")
    positional = [*node.args.posonlyargs, *node.args.args]
    every = [*positional, *node.args.kwonlyargs]
    padding: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults))
    values = [*padding, *node.args.defaults, *node.args.kw_defaults]
    return FunctionSignature(
        parameters=tuple(argument.arg for argument in every),
        constexpr=frozenset(
            a.arg for a in every if a.annotation and "constexpr" in ast.unparse(a.annotation)
        ),
        defaults={
            argument.arg: default
            for argument, value in zip(every, values, strict=True)
            if (default := _literal(value)) is not None
        },
    )


def _literal(value: ast.expr | None) -> Scalar | None:
    try:
        found = ast.literal_eval(value) if value else None
    except ValueError:
        return None
    return found if isinstance(found, int | str | bool) else None


@dataclass(frozen=True, kw_only=True)
class KernelContext:
    """A kernel of a family with its operator (`types`: of its values), its function and the compiler."""

    family: str
    kernel: Kernel
    operator: Operator
    types: dict[str, ValueType]
    tree: SourceTree
    folder: str
    source: str
    function: FunctionSignature
    source_digest: str
    toolchain: Toolchain
    toolchain_digest: str
    hazards: Hazards
    architectures: Architectures
    location: RulesLocation
