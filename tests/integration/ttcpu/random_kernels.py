"""Random Triton kernels whose results are exact: executors of the language must agree on every bit.

Floats hold integers, whose bound is tracked, so that no order of additions and no fused product changes a
result. 32-bit integers overflow as they like, except where they are indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from tests.integration.vgpu.coverage.feature import Feature, Tensor, given

_LIMIT = 1 << 20
"""Largest float that a statement may yield; sums of 64 x 64 products of reduced factors stay below 2^24."""
_SMALL = 16
_HELPERS = """
@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def mixed(a, b, c, d):
    take = (a > c) | ((a == c) & (b < d))
    return tl.where(take, a, c), tl.where(take, b, d)


@triton.jit
def early(a, n):
    if n > 2:
        return a * 2
    return a - n


@triton.jit
def pair(a, b):
    return b, a + b
"""
_FLOATS: tuple[tuple[str, int, Callable[[int, int], int]], ...] = (
    *((text, _LIMIT, int.__add__) for text in ("{0} + {1}", "{0} - {1}")),
    *((f"tl.{name}({{0}}, {{1}})", _LIMIT, int.__add__) for name in ("minimum", "maximum")),
    ("{0} * {1}", 1 << 10, int.__mul__),
    *(
        (text, _LIMIT, lambda a, b: 4 * a + 9)
        for text in (
            "-{0}", "tl.abs({0})", "tl.floor({0} * 0.5)", "tl.ceil({0} * 0.25)", "tl.clamp({0}, -5.0, 9.0)",
            "tl.fma({0}, 3.0, {0})",
        )
    ),
    *(
        (f"{{0}}.to(tl.{kind}).to(tl.float32)", limit, lambda a, b: a)
        for kind, limit in (
            ("float16", 2048), ("bfloat16", 256), ("float64", _LIMIT), ("float8e5", 8), ("int32", _LIMIT),
            ("int8", 127), ("int64", _LIMIT),
        )
    ),
)  # fmt: skip
"""Texts, the largest operands, and the bound of the result by those of the operands."""
_INTEGERS = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} & {1}", "{0} | {1}", "{0} ^ {1}", "tl.minimum({0}, {1})",
    "tl.maximum({0}, {1})", "{0} // (({1} & 15) + 1)", "{0} % (({1} & 15) + 1)", "{0} << ({1} & 31)",
    "{0} >> ({1} & 31)", "{0}.to(tl.int8).to(tl.int32)", "{0}.to(tl.int16).to(tl.int32)",
    "({0}.to(tl.int64) * 1000003 >> 7).to(tl.int32)", "~{0}", "({0}.to(tl.uint32) >> 3).to(tl.int32)",
    "{0}.to(tl.uint8).to(tl.int32)", "tl.abs({0} >> 1)", "({0}.to(tl.uint32) % 1009).to(tl.int32)",
    "tl.umulhi({0}.to(tl.uint32), 2654435769).to(tl.int32)", "-{0}",
)  # fmt: skip
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class _Value:
    """A tensor variable of the kernel: `kind` is i32 or fp32; `bound` of a float's size."""

    name: str
    shape: tuple[int, ...]
    kind: str
    bound: int = 0


@dataclass(kw_only=True)
class _Writer:
    draw: st.DrawFn
    rows: int
    columns: int
    lines: list[str] = field(default_factory=list)
    values: list[_Value] = field(default_factory=list)
    indent: str = ""
    names: int = 0

    def emit(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def new(self, text: str, shape: tuple[int, ...], kind: str, bound: int = 0) -> _Value:
        """Assign to a new variable; a float that has grown too large is brought back."""
        self.names += 1
        value = _Value(f"v{self.names}", shape, kind, bound)
        self.emit(f"{value.name} = {text}")
        if kind == "fp32" and bound > _LIMIT:
            return self.fitted(value, _SMALL)
        self.values.append(value)
        return value

    def fitted(self, value: _Value, limit: int) -> _Value:
        if value.kind != "fp32" or value.bound <= limit:
            return value
        text = f"tl.minimum(tl.maximum({value.name}, {-limit}.0), {limit}.0)"
        return self.new(text, value.shape, "fp32", limit)

    def value(self, kind: str = "", shape: tuple[int, ...] | None = None, limit: int = _LIMIT) -> _Value:
        """A variable in scope, converted and moved to the type that is wanted."""
        recent = self.values[-5:] if self.number(0, 2) else self.values
        found = self.draw(st.sampled_from(recent))
        kind = kind or found.kind
        if shape is not None and found.shape != shape:
            found = self.shaped(found, shape)
        if found.kind != kind:
            text = f"({found.name} & 31).to(tl.float32)" if kind == "fp32" else f"{found.name}.to(tl.int32)"
            found = self.new(text, found.shape, kind, 31)
        return self.fitted(found, limit) if kind == "fp32" else found

    def shaped(self, value: _Value, shape: tuple[int, ...]) -> _Value:
        square = (self.rows, self.columns)
        name, bound = value.name, value.bound
        if value.shape == shape:
            return value
        if value.shape == square:
            axis = 1 if shape == (self.rows,) else 0
            return self.new(f"tl.max({name}, {axis})", shape, value.kind, bound)
        if shape != square:
            return self.shaped(self.shaped(value, square), shape)
        spread = f"{name}[:, None]" if value.shape == (self.rows,) else f"{name}[None, :]"
        zeros = "tl.zeros((R, C), tl.float32)" if value.kind == "fp32" else "tl.zeros((R, C), tl.int32)"
        return self.new(f"{spread} + {zeros}", square, value.kind, bound)

    def shape(self) -> tuple[int, ...]:
        return self.draw(st.sampled_from([(self.rows, self.columns), (self.rows,), (self.columns,)]))

    def statement(self, depth: int = 0) -> None:
        simple = [
            *[self.floats] * 3, *[self.integers] * 4, self.select, self.reduce, self.reduce_pairs, self.scan,
            self.transpose, self.reshape, self.gathered_load, self.helper,
            self.product, self.flipped, self.joined, self.gather, self.histogram, self.atomic, self.sort,
        ]  # fmt: skip
        nested = [self.loop, self.branch, self.while_loop]
        chosen = self.draw(st.sampled_from(simple + nested if depth < 2 else simple))
        chosen(depth) if chosen in nested else chosen()

    def floats(self) -> None:
        text, limit, bound = self.draw(st.sampled_from(_FLOATS))
        a = self.value("fp32", limit=limit)
        b = self.value("fp32", a.shape, limit) if "{1}" in text else a
        self.new(text.format(a.name, b.name), a.shape, "fp32", bound(a.bound, b.bound))

    def integers(self) -> None:
        text, a = self.pick(*_INTEGERS), self.value("i32")
        b = self.value("i32", a.shape) if "{1}" in text else a
        self.new(text.format(a.name, b.name), a.shape, "i32")

    def select(self) -> None:
        a = self.value(self.pick("i32", "fp32"))
        b = self.value(a.kind, a.shape)
        c = self.value("", a.shape)
        condition = f"{c.name} {self.pick(*_COMPARISONS)} {self.number(-9, 9)}"
        if self.number(0, 1):
            other = f"({a.name} {self.pick(*_COMPARISONS)} {b.name})"
            condition = f"({condition}) {self.pick('&', '|', '^')} {other}"
        self.new(f"tl.where({condition}, {a.name}, {b.name})", a.shape, a.kind, max(a.bound, b.bound))

    def reduce(self) -> None:
        a = self.value(shape=(self.rows, self.columns), limit=1 << 14)
        axis = self.number(0, 1)
        functions = ("sum", "max", "min", "xor_sum") if a.kind == "i32" else ("sum", "max", "min")
        text = f"tl.{self.pick(*functions)}({a.name}, {axis})"
        if self.number(0, 3) == 0:
            text = f"tl.reduce({a.name}, {axis}, larger)"
        self.new(text, ((self.rows, self.columns)[1 - axis],), a.kind, a.bound * 64)

    def reduce_pairs(self) -> None:
        a = self.value(shape=(self.rows, self.columns))
        axis = self.number(0, 1)
        kept = ((self.rows, self.columns)[1 - axis],)
        if self.number(0, 1):
            self.new(f"tl.{self.pick('argmax', 'argmin')}({a.name}, {axis})", kept, "i32")
            return
        index = "tl.broadcast_to(c[None, :], (R, C))" if axis else "tl.broadcast_to(r[:, None], (R, C))"
        self.names += 1
        self.emit(f"w{self.names}, u{self.names} = tl.reduce(({a.name}, {index}), {axis}, mixed)")
        number = self.names
        self.new(f"w{number}", kept, a.kind, a.bound)
        self.new(f"u{number}", kept, "i32")

    def scan(self) -> None:
        a = self.value(limit=1 << 13)
        axis = self.number(0, len(a.shape) - 1)
        reverse = f", reverse={bool(self.number(0, 1))}"
        text = self.pick(
            f"tl.cumsum({a.name}, {axis}{reverse})", f"tl.associative_scan({a.name}, {axis}, larger{reverse})"
        )
        self.new(text, a.shape, a.kind, a.bound * 64)

    def transpose(self) -> None:
        a = self.value(shape=(self.rows, self.columns))
        b = self.value(a.kind, (self.rows, self.columns))
        if self.rows == self.columns:
            self.new(f"tl.trans({a.name}) + {b.name}", a.shape, a.kind, a.bound + b.bound)
        else:
            self.new(f"tl.trans({a.name} + 1)[:, :].trans(1, 0)", a.shape, a.kind, a.bound + 1)

    def reshape(self) -> None:
        a = self.value(shape=(self.rows, self.columns))
        self.new(f"tl.reshape(tl.trans(tl.reshape({a.name}, (C, R))), (R, C))", a.shape, a.kind, a.bound)

    def gathered_load(self) -> None:
        a = self.value("i32")
        b = self.value("", a.shape)
        kind = self.pick("i32", "fp32")
        source, bound = ("y", 0) if kind == "i32" else ("x", 8)
        other = self.number(-3, 3)
        mask = f"{b.name} {self.pick(*_COMPARISONS)} {self.number(-3, 3)}"
        text = f"tl.load({source} + ({a.name} & (R * C - 1)), mask={mask}, other={other})"
        self.new(text, a.shape, kind, bound)

    def helper(self) -> None:
        a = self.value(self.pick("i32", "fp32"))
        self.new(f"early({a.name}, n)", a.shape, a.kind, 2 * a.bound + 8)

    def product(self) -> None:
        kind = self.pick("float32", "float16", "bfloat16")
        a = self.value("fp32", (self.rows, self.columns), limit=_SMALL)
        b = self.value("fp32", (self.rows, self.columns), limit=_SMALL)
        c = self.value("fp32", (self.rows, self.rows) if self.rows == self.columns else None, limit=1 << 10)
        factors = f"{a.name}.to(tl.{kind}), tl.trans({b.name}).to(tl.{kind})"
        text = f"tl.dot({factors}, input_precision='ieee')"
        if c.shape == (self.rows, self.rows):
            text = f"tl.dot({factors}, {c.name}, input_precision='ieee')"
        made = f"{text} + 0.0"
        if self.rows == self.columns:
            self.new(made, (self.rows, self.rows), "fp32", _SMALL * _SMALL * 64 + (1 << 10))
        else:
            self.new(f"tl.sum({made}, 1)", (self.rows,), "fp32", (_SMALL * _SMALL * 64 + (1 << 10)) * 64)

    def flipped(self) -> None:
        a = self.value()
        self.new(f"tl.flip({a.name}, {self.number(0, len(a.shape) - 1)})", a.shape, a.kind, a.bound)

    def joined(self) -> None:
        a = self.value(shape=(self.rows,))
        b = self.value(a.kind, (self.rows,))
        self.names += 1
        number = self.names
        self.emit(f"w{number}, u{number} = tl.split(tl.join({a.name}, {b.name}) + 1)")
        self.new(f"w{number} - u{number}", a.shape, a.kind, a.bound + b.bound + 2)

    def gather(self) -> None:
        a = self.value(shape=(self.rows, self.columns))
        axis = self.number(0, 1)
        index = self.value("i32", a.shape)
        text = f"tl.gather({a.name}, {index.name} & {'C' if axis else 'R'} - 1, {axis})"
        self.new(text, a.shape, a.kind, a.bound)

    def histogram(self) -> None:
        a = self.value("i32", (self.columns,))
        self.new(f"tl.histogram({a.name} & C - 1, C)", (self.columns,), "i32")

    def atomic(self) -> None:
        a = self.value("i32")
        b = self.value("i32", a.shape)
        mask = f"{b.name} {self.pick(*_COMPARISONS)} {self.number(-3, 3)}"
        operation = self.pick("add", "xor")
        self.emit(f"tl.atomic_{operation}({operation}s + ({a.name} & 63), {b.name}, mask={mask})")

    def sort(self) -> None:
        a = self.value(shape=self.draw(st.sampled_from([(self.rows,), (self.columns,)])))
        self.new(f"tl.sort({a.name}, descending={bool(self.number(0, 1))})", a.shape, a.kind, a.bound)

    def carried(self, depth: int, header: str, tail: str = "") -> None:
        """Statements that assign to two variables of the enclosing block, which may change places.

        They begin with different values: Triton 3.9's passes take `b` for constant in `b = a; for ...: a, b =
        f(a), a`.
        """
        shape = self.shape()
        kind = self.pick("i32", "fp32")
        both = [self.value(kind, shape, _SMALL) for _ in range(2)]
        self.names += 2
        one, two = (_Value(f"a{self.names + n}", shape, kind, _SMALL) for n in range(2))
        other = f"tl.where({both[1].name} == 7, 0, {both[1].name})"
        self.emit(f"{one.name}, {two.name} = {both[0].name}, {other}")
        self.emit(header)
        outer, indent = list(self.values), self.indent
        self.indent += "    "
        self.values += [one, two]
        for _ in range(self.number(1, 3)):
            self.statement(depth + 1)
            made = self.values[-1]
            to = "int32" if kind == "i32" else "float32"
            text = f"{one.name} + {self.shaped(made, shape).name}.to(tl.{to})"
            self.new(text, shape, kind, _LIMIT + 1)
        first = self.fitted(self.values[-1], _SMALL)
        second = self.draw(st.sampled_from([one, two]))
        self.emit(f"{one.name}, {two.name} = {first.name}, {second.name}")
        if tail:
            self.emit(tail)
        self.indent, self.values = indent, [*outer, one, two]

    def loop(self, depth: int) -> None:
        self.names += 1
        k = f"k{self.names}"
        count = self.pick("n", "3", "n // 2 + 1")
        self.carried(depth, f"for {k} in {self.pick('range', 'tl.range')}({count}):")

    def while_loop(self, depth: int) -> None:
        self.names += 1
        t = f"t{self.names}"
        self.emit(f"{t} = n")
        self.carried(depth, f"while {t} > 0:", f"{t} = {t} - {self.pick('1', '2')}")

    def branch(self, depth: int) -> None:
        a = self.value("i32", (self.rows, self.columns))
        self.names += 1
        s = f"s{self.names}"
        self.emit(f"{s} = tl.sum(tl.sum({a.name} & 7, 1), 0)")
        condition = self.pick(
            f"{s} > {self.number(0, 7 * self.rows * self.columns)}",
            f"n {self.pick(*_COMPARISONS)} {self.number(0, 6)}",
        )
        self.carried(depth, f"if {condition}:")


@st.composite
def kernels(draw: st.DrawFn) -> Feature:
    """A kernel with inputs; its outputs are the last variables of the outermost block."""
    rows, columns = draw(st.sampled_from([16, 16, 32])), draw(st.sampled_from([16, 16, 32, 64]))
    size = rows * columns
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    writer = _Writer(draw=draw, rows=rows, columns=columns)
    square = (rows, columns)
    for line in ("r = tl.arange(0, R)", "c = tl.arange(0, C)", "at = r[:, None] * C + c[None, :]"):
        writer.emit(line)
    writer.values += [_Value("r", (rows,), "i32"), _Value("c", (columns,), "i32")]
    writer.new("tl.load(x + at)", square, "fp32", 8)
    writer.new("tl.load(y + at)", square, "i32")
    writer.new("tl.load(h + at).to(tl.float32)", square, "fp32", 4)
    for _ in range(draw(st.integers(3, 7))):
        writer.statement()
    outputs: dict[str, Tensor] = {}
    for value in writer.values[-8:]:
        if value.name in {"r", "c"}:
            continue
        place = {square: "at", (rows,): "r"}.get(value.shape, "c")
        writer.emit(f"tl.store(o_{value.name} + {place}, {value.name})")
        outputs[f"o_{value.name}"] = Tensor(kind=value.kind, size=int(np.prod(value.shape)), written=True)
    tensors = {
        "x": given("fp32", random.integers(-8, 9, size)),
        "y": given("i32", random.integers(-(2**31), 2**31, size)),
        "h": given("fp16", random.integers(-4, 5, size)),
        "adds": given("i32", np.zeros(64, dtype=np.int64), written=True),
        "xors": given("i32", np.zeros(64, dtype=np.int64), written=True),
    } | outputs
    return Feature(
        name="random", group="random", body="\n".join(writer.lines), tensors=tensors, helpers=_HELPERS,
        reference=lambda *_: None, values={"n": ("i32", draw(st.integers(0, 6)))},
            constants={"R": rows, "C": columns},
    )  # fmt: skip
