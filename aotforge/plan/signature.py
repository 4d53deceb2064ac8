"""Parameters of a kernel function, read from its syntax without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from aotforge.errors import RulesError, suggest
from aotforge.plan.closure import SourceTree
from aotforge.rules import Scalar


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
            hint=suggest(function, functions)
            if functions
            else "the file defines no function at its top level",
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
            a.arg: v.value
            for a, v in zip(every, values, strict=True)
            if isinstance(v, ast.Constant) and isinstance(v.value, int | str | bool)
        },
    )
