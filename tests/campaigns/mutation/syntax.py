"""Mutants of a Python module, made from its syntax tree: one change of one place each, in the module's own
text."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator

_BOUNDARIES: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt,
    ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


def changes(source: str) -> dict[str, str]:
    """Every mutant of a module by name, which stays the same while the changed code does. Docstrings,
    annotations and messages are left as they are."""
    tree = ast.parse(source)
    left_alone = set(_left_alone(tree))
    lines = source.encode().splitlines(keepends=True)
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt) or id(node) in left_alone:
            continue
        before, old, after = _split(lines, node)
        for new in _mutations(node):
            name = f"{_short(old.decode())} -> {_short(new)}"
            seen[name] += 1
            text = f"({new})" if isinstance(node, ast.expr) else new
            unique = name if seen[name] == 1 else f"{name} #{seen[name]}"
            found[unique] = (before + text.encode() + after).decode()
    return found


def _short(text: str) -> str:
    return " ".join(text.split())[:100]


def _split(lines: list[bytes], node: ast.expr | ast.stmt) -> tuple[bytes, bytes, bytes]:
    """The text before a node, of it and after it. Offsets of the tree are in bytes."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    text = b"".join(lines[first : last + 1])
    end = len(text) - len(lines[last]) + node.end_col_offset
    return (
        b"".join(lines[:first]) + text[: node.col_offset],
        text[node.col_offset : end],
        text[end:] + b"".join(lines[last + 1 :]),
    )


def _left_alone(tree: ast.AST) -> Iterator[int]:
    """Nodes that tests need not notice: texts of errors, annotations, exports, decorators, assertions."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
                annotations = [each.annotation for each in (*args.args, *args.kwonlyargs)]
                parts = [node.returns, *node.decorator_list, *annotations]
            case ast.AnnAssign(annotation=text) | ast.keyword(arg="strict", value=text):
                parts = [text]  # strict, of zip, is an assertion
            case ast.ClassDef():
                parts = [*node.decorator_list]
            case ast.Assert() | ast.JoinedStr():
                parts = [node]
        for part in filter(None, parts):
            yield from map(id, ast.walk(part))


def _mutations(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[operator]):
            for other in _BOUNDARIES.get(type(operator), ()):
                yield ast.unparse(ast.Compare(left=node.left, ops=[other()], comparators=node.comparators))
        case ast.BoolOp(op=operator, values=values):
            other_op: ast.boolop = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield ast.unparse(ast.BoolOp(op=other_op, values=values))
            for left_out in range(len(values)):
                rest = values[:left_out] + values[left_out + 1 :]
                yield ast.unparse(rest[0] if len(rest) == 1 else ast.BoolOp(op=operator, values=rest))
        case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC and not _is_text(node):
            yield ast.unparse(ast.BinOp(left=node.left, op=_ARITHMETIC[type(operator)](), right=node.right))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield ast.unparse(operand)
        case ast.Constant(value=bool() as value):
            yield repr(not value)
        case ast.Constant(value=int() as value):
            yield repr(value + 1)
        case ast.If(test=test) | ast.While(test=test):
            yield from _forced(node, test)
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield "return None"


def _forced(node: ast.If | ast.While, test: ast.expr) -> Iterator[str]:
    """The statement with a condition that never holds; `while True` would not end."""
    make: Callable[..., ast.stmt] = ast.If if isinstance(node, ast.If) else ast.While
    new = make(test=ast.Constant(value=False), body=node.body, orelse=node.orelse)
    # the new lines are indented as the statement is
    text = ast.unparse(ast.fix_missing_locations(new))
    yield text.replace("\n", "\n" + " " * node.col_offset)


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr | ast.Constant) and not isinstance(getattr(side, "value", ""), int)
        for side in (node.left, node.right)
    )
