"""LLVM IR as typed values, and a builder of functions with structured loops, branches and variables."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .source_lines import SourceLines


@dataclass(frozen=True)
class Value:
    """An operand: LLVM's type and its text, a name or a literal."""

    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def constant(self) -> int | None:
        """The number of an integer literal."""
        return int(self.text) if self.text.lstrip("-").isdigit() else None


def integer(value: int, type_: str = "i64") -> Value:
    """An integer literal; i1 is written as 0 or 1."""
    return Value(type_, str(value & 1) if type_ == "i1" else str(value))


def real(value: float, type_: str = "float") -> Value:
    """A float literal, by its bits as a double, which is how LLVM writes them exactly."""
    if type_ == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return Value(type_, f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}")


def vector_type(element: str, width: int) -> str:
    """`<width x element>`; the element itself for a width of 1."""
    return element if width == 1 else f"<{width} x {element}>"


def vector(values: Sequence[Value]) -> Value:
    """A constant vector."""
    if len(values) == 1:
        return values[0]
    return Value(vector_type(values[0].type, len(values)), f"<{', '.join(map(str, values))}>")


def zero(type_: str) -> Value:
    """Zero of any type."""
    if type_.startswith(("<", "[")):
        return Value(type_, "zeroinitializer")
    return {"float": real(0.0), "double": real(0.0, "double"), "ptr": Value("ptr", "null")}.get(
        type_, Value(type_, "0")
    )


@dataclass(frozen=True)
class Variable:
    """A mutable scalar or vector of a function, in its stack frame until mem2reg makes it SSA."""

    type: str
    address: Value


class Module:
    """Functions, declarations and constants of one module. `avx512`: they may use intrinsics of AVX-512."""

    def __init__(self, *, lines: bool = False, avx512: bool = False) -> None:
        self.avx512 = avx512
        self.functions: list[str] = []
        self.lines = SourceLines() if lines else None
        self._declarations: dict[str, str] = {}
        self._constants: dict[str, str] = {}

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> None:
        """An external function."""
        self._declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"

    def constant(self, text: str) -> Value:
        """The address of an anonymous constant whose type and value are `text`; equal ones are shared."""
        name = self._constants.setdefault(text, f"@.constant{len(self._constants)}")
        return Value("ptr", name)

    def __str__(self) -> str:
        constants = [
            f"{name} = private unnamed_addr constant {text}, align 64"
            for text, name in self._constants.items()
        ]
        lines = str(self.lines) if self.lines else ""
        return "\n".join([*constants, *self._declarations.values(), *self.functions, lines])


class Builder:
    """Writes one function: every method appends an instruction and returns its result."""

    def __init__(self, module: Module, header: str, name: str = "", line: str = "") -> None:
        self.module = module
        self._scope = module.lines.function(name, line) if module.lines else ""
        self._header = f"{header} !dbg {self._scope}" if self._scope else header
        self._location = ""
        self._set_line(line)
        self._frame: list[str] = []
        self._body: list[str] = []
        self._names = 0

    def finish(self) -> None:
        """Add the function to the module."""
        lines = [
            f"{self._header} {{",
            "entry:",
            *self._frame,
            "  br label %start",
            "start:",
            *self._body,
            "}",
        ]
        self.module.functions.append("\n".join(lines))

    def name(self, stem: str = "") -> str:
        """A name that is not in use."""
        self._names += 1
        return f"{stem or 'v'}{self._names}"

    @contextmanager
    def at(self, line: str) -> Iterator[None]:
        """Instructions of a line ("file:line") of the source; '': of the line around it."""
        outer = self._location
        self._set_line(line)
        try:
            yield
        finally:
            self._location = outer

    def _set_line(self, line: str) -> None:
        if self._scope and line:
            assert self.module.lines is not None
            self._location = f", !dbg {self.module.lines.location(self._scope, line)}"

    def emit(self, text: str) -> None:
        """An instruction without a result."""
        self._body.append(f"  {text}{self._location}")

    def let(self, type_: str, text: str) -> Value:
        """An instruction with a result."""
        name = f"%{self.name()}"
        self._body.append(f"  {name} = {text}{self._location}")
        return Value(type_, name)

    # -- frame
    # -----------------------------------------------------------------------------------------------------

    def frame(self, type_: str, align: int = 64) -> Value:
        """The address of a slot of the stack frame."""
        name = f"%{self.name('slot')}"
        self._frame.append(f"  {name} = alloca {type_}, align {align}")
        return Value("ptr", name)

    def variable(self, type_: str, initial: Value | None = None) -> Variable:
        """A variable, set to `initial` here."""
        variable = Variable(type_, self.frame(type_))
        if initial is not None:
            self.set(variable, initial)
        return variable

    def get(self, variable: Variable) -> Value:
        """A variable's value."""
        return self.let(variable.type, f"load {variable.type}, {variable.address}")

    def set(self, variable: Variable, value: Value) -> None:
        """Assign to a variable."""
        assert value.type == variable.type, (value, variable)
        self.emit(f"store {value}, {variable.address}")

    # -- arithmetic
    # ------------------------------------------------------------------------------------------------

    def binary(self, operation: str, a: Value, b: Value) -> Value:
        """`operation` may have flags, as in "add nsw". Integer literals are folded where that is trivial."""
        folded = _fold(operation.split(maxsplit=1)[0], a, b)
        return folded or self.let(a.type, f"{operation} {a}, {b.text}")

    def add(self, a: Value, b: Value) -> Value:
        """Integer sum."""
        return self.binary("add", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """Integer product."""
        return self.binary("mul", a, b)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """`predicate` as in "icmp slt"."""
        return self.let(_like(a.type, "i1"), f"{predicate} {a}, {b.text}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """a where the condition holds, else b."""
        return self.let(a.type, f"select {condition}, {a}, {b}")

    def cast(self, operation: str, a: Value, element: str) -> Value:
        """A conversion to the same number of lanes of `element`; none when the types agree."""
        type_ = _like(a.type, element)
        if type_ == a.type:
            return a
        if a.constant is not None and operation in {"sext", "trunc"} and not type_.startswith("<"):
            return Value(type_, _wrapped(a.constant, int(type_[1:])))
        return self.let(type_, f"{operation} {a} to {type_}")

    def call(self, name: str, result: str, *arguments: Value, flags: str = "") -> Value:
        """A call of an external function or intrinsic, which is declared."""
        self.module.declare(name, result, [a.type for a in arguments])
        text = f"call {flags}{' ' if flags else ''}{result} @{name}({', '.join(map(str, arguments))})"
        if result == "void":
            self.emit(text)
            return Value("void", "")
        return self.let(result, text)

    def intrinsic(self, stem: str, *arguments: Value, flags: str = "") -> Value:
        """`llvm.STEM` overloaded by the first argument's type, which is the result's too."""
        type_ = arguments[0].type
        return self.call(f"llvm.{stem}.{mangled(type_)}", type_, *arguments, flags=flags)

    # -- vectors
    # ---------------------------------------------------------------------------------------------------

    def splat(self, scalar: Value, width: int) -> Value:
        """A vector of one value."""
        if width == 1:
            return scalar
        type_ = vector_type(scalar.type, width)
        if not scalar.text.startswith("%") and not scalar.text.startswith("@"):
            return Value(type_, f"<{', '.join([str(scalar)] * width)}>")
        first = self.let(type_, f"insertelement {type_} poison, {scalar}, i64 0")
        return self.shuffle(first, first, [0] * width)

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes of a, then of b, by number; a single lane gives a scalar."""
        if len(lanes) == 1:
            width = lanes_of(a.type)
            source = a if lanes[0] < width else b
            return self.extract(source, lanes[0] % width)
        type_ = vector_type(element_of(a.type), len(lanes))
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.let(type_, f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{mask}>")

    def extract(self, a: Value, lane: int | Value) -> Value:
        """One lane."""
        if not a.type.startswith("<"):
            return a
        where = lane if isinstance(lane, Value) else integer(lane)
        return self.let(element_of(a.type), f"extractelement {a}, {where}")

    def insert(self, a: Value, scalar: Value, lane: int) -> Value:
        """`a` with one lane replaced."""
        return (
            self.let(a.type, f"insertelement {a}, {scalar}, i64 {lane}") if a.type.startswith("<") else scalar
        )

    def per_lane(self, width: int, result: str, function: Callable[[int], Value]) -> Value:
        """A vector of `function`'s scalars."""
        if width == 1:
            return function(0)
        value = Value(vector_type(result, width), "poison")
        for lane in range(width):
            value = self.insert(value, function(lane), lane)
        return value

    # -- memory
    # ----------------------------------------------------------------------------------------------------

    def address(self, base: Value, element: str, index: Value) -> Value:
        """base + index elements; `index` may be a vector of i64."""
        if index.constant == 0:
            return base
        type_ = _like(index.type, "ptr") if base.type == "ptr" else base.type
        return self.let(type_, f"getelementptr {element}, {base}, {index}")

    def load(self, type_: str, address: Value, align: int) -> Value:
        """A load of a scalar or vector."""
        return self.let(type_, f"load {type_}, {address}, align {align}")

    def store(self, value: Value, address: Value, align: int) -> None:
        """A store of a scalar or vector."""
        self.emit(f"store {value}, {address}, align {align}")

    # -- control flow
    # ----------------------------------------------------------------------------------------------

    def branch(self, label: str) -> None:
        """Jump."""
        self.emit(f"br label %{label}")

    def branch_if(self, condition: Value, then: str, otherwise: str) -> None:
        """Conditional jump."""
        self.emit(f"br {condition}, label %{then}, label %{otherwise}")

    def label(self, label: str) -> None:
        """Begin a basic block."""
        self._body.append(f"{label}:")

    @contextmanager
    def loop(self, count: int | Value, step: int = 1) -> Iterator[Value]:
        """A counted loop; yields the i64 counter. A loop of one turn is none."""
        if isinstance(count, int) and count <= step:
            yield integer(0)
            return
        limit = integer(count) if isinstance(count, int) else count
        counter = self.variable("i64", integer(0))
        head, body, end = self.name("head"), self.name("body"), self.name("end")
        if isinstance(count, int):
            self.branch(body)
        else:
            self.branch(head)
            self.label(head)
            self.branch_if(self.compare("icmp slt", self.get(counter), limit), body, end)
        self.label(body)
        index = self.get(counter)
        yield index
        following = self.let("i64", f"add nuw nsw {index}, {step}")
        self.set(counter, following)
        if isinstance(count, int):
            self.branch_if(self.compare("icmp ult", following, limit), body, end)
        else:
            self.branch(head)
        self.label(end)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Code that runs where the scalar condition holds."""
        then, end = self.name("then"), self.name("end")
        self.branch_if(condition, then, end)
        self.label(then)
        yield
        self.branch(end)
        self.label(end)


def element_of(type_: str) -> str:
    """The element of a vector type; a scalar type itself."""
    return type_[1:-1].partition(" x ")[2] if type_.startswith("<") else type_


def lanes_of(type_: str) -> int:
    """Lanes of a vector type; 1 of a scalar's."""
    return int(type_[1:].partition(" x ")[0]) if type_.startswith("<") else 1


def mangled(type_: str) -> str:
    """LLVM's suffix of overloaded intrinsics: v16f32."""
    lanes, element = lanes_of(type_), element_of(type_)
    short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(
        element, element
    )
    return f"v{lanes}{short}" if lanes > 1 or type_.startswith("<") else short


def _like(type_: str, element: str) -> str:
    return f"<{lanes_of(type_)} x {element}>" if type_.startswith("<") else element


def _wrapped(value: int, bits: int) -> str:
    value &= (1 << bits) - 1
    return str(value - (1 << bits) if bits > 1 and value >> (bits - 1) else value)


def _fold(operation: str, a: Value, b: Value) -> Value | None:
    """The result where it is trivial for scalar integers: two literals, or one that is neutral or zero."""
    x, y = a.constant, b.constant
    if a.type.startswith("<"):
        return None
    if x is not None and y is not None and operation in {"add", "mul", "sub"}:
        result = {"add": x + y, "mul": x * y, "sub": x - y}[operation]
        return Value(a.type, _wrapped(result, int(a.type[1:])))
    if y is not None and y == _NEUTRAL.get(operation):
        return a
    if operation in {"add", "or", "mul"} and x == _NEUTRAL[operation]:
        return b
    return Value(a.type, "0") if operation == "mul" and 0 in {x, y} else None


_NEUTRAL = {"add": 0, "sub": 0, "or": 0, "shl": 0, "mul": 1}
