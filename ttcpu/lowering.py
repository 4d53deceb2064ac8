"""TTIR to LLVM IR: a Triton module as one exported function that runs a range of the grid.

It takes two pointers: the kernel's arguments, 8 bytes each in order, and a `Launch` (launch.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from . import constants, control_flow, elementwise, memory, products, reductions, shapes
from .arguments import described_parameters
from .context import Context, Machine, Scratch, unsupported
from .element_types import TensorType, parse_type
from .image import Parameter
from .lanes import uniform
from .llvm_ir import Builder, Module, Value, integer
from .mlir import Operation
from .tensors import Buffer, Tensor

SUFFIX = "__range"
"""Behind a kernel's name: the function that runs a range of programs; the exported one calls it."""

_HIDDEN = {
    "x": "i32", "y": "i32", "z": "i32", "grid_x": "i32", "grid_y": "i32", "grid_z": "i32", "scratch": "ptr",
        "status": "ptr",
}  # fmt: skip
"""What every function gets beside its arguments: place, grid, memory, the failed assertion."""

_REGION_ENDS = {
    "scf.yield",
    "scf.condition",
    "tt.reduce.return",
    "tt.scan.return",
    "tt.map_elementwise.return",
}
"""Terminators, which the operations around them read."""

_IGNORED = {
    "tt.debug_barrier",
    "ttg.barrier",
    "gpu.barrier",
    "llvm.intr.assume",
    "tt.assume",
    "ttg.local_barrier",
}

_LOWERINGS: dict[str, Callable[[Context, Operation], None]] = {
    "arith.constant": constants.lower_constant,
    "tt.load": memory.lower_load,
    "tt.store": memory.lower_store,
    "tt.atomic_rmw": memory.lower_atomic,
    "tt.atomic_cas": memory.lower_compare_exchange,
    "tt.reduce": reductions.lower_reduce,
    "tt.scan": reductions.lower_scan,
    "tt.splat": shapes.lower_splat,
    "tt.unsplat": shapes.lower_unsplat,
    "tt.make_range": shapes.lower_make_range,
    "tt.expand_dims": shapes.lower_expand_dims,
    "tt.broadcast": shapes.lower_broadcast,
    "tt.trans": shapes.lower_trans,
    "tt.reshape": shapes.lower_reshape,
    "tt.join": shapes.lower_join,
    "tt.split": shapes.lower_split,
    "tt.cat": shapes.lower_cat,
    "tt.gather": shapes.lower_gather,
    "tt.histogram": shapes.lower_histogram,
    "tt.dot": products.lower_dot,
    "tt.dot_scaled": products.lower_dot_scaled,
    "tt.call": control_flow.lower_call,
    "tt.get_program_id": lambda ctx, operation: _place(ctx, operation, ""),
    "tt.get_num_programs": lambda ctx, operation: _place(ctx, operation, "grid_"),
}

_STRUCTURED = {
    "scf.for": control_flow.lower_for,
    "scf.if": control_flow.lower_if,
    "scf.while": control_flow.lower_while,
}


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """LLVM IR of a module: `scratch` in bytes per thread; no `parameters` for what no pack can have."""

    name: str
    text: str
    scratch: int
    messages: tuple[str, ...]
    parameters: tuple[Parameter, ...] | None


def lower_module(module: Operation, machine: Machine, *, lines: bool = False) -> Lowered:
    """With `lines`, instructions have source lines. Raises UnsupportedError with the source line."""
    functions = [op for op in module.regions[0].entry.operations if op.name == "tt.func"]
    entry = next(op for op in functions if op.attributes.get("sym_visibility", '"public"') == '"public"')
    out, scratch = Module(lines=lines, avx512=machine.avx512), Scratch()
    messages: list[str] = []
    for function in functions:
        _Function(out, machine, scratch, messages).lower(function)
    name = entry.string("sym_name")
    _export(out, entry, name)
    return Lowered(
        name=name,
        text=str(out),
        scratch=scratch.size,
        messages=tuple(messages),
        parameters=described_parameters(entry),
    )


class _Function:
    def __init__(self, module: Module, machine: Machine, scratch: Scratch, messages: list[str]) -> None:
        self.module, self.machine, self.scratch, self.messages = module, machine, scratch, messages
        self.targets: dict[str, control_flow.Target] = {}
        self.results: list[Value] = []

    def lower(self, function: Operation) -> None:
        blocks = function.regions[0].blocks
        types = [parse_type(argument.type) for argument in blocks[0].arguments]
        returned = _result_types(function)
        header = [f"{_parameter(t)} %a{n}" for n, t in enumerate(types)]
        header += [f"ptr %r{n}" for n in range(len(returned))]
        header += [f"{t}{' noalias' if name == 'scratch' else ''} %{name}" for name, t in _HIDDEN.items()]
        symbol = f'"{function.string("sym_name")}.program"'
        define = f"define internal void @{symbol}({', '.join(header)}) nounwind"
        builder = Builder(self.module, define, function.string("sym_name"), function.line)
        ctx = Context(
            module=self.module, b=builder, machine=self.machine, scratch=self.scratch,
            launch={name: Value(t, f"%{name}") for name, t in _HIDDEN.items()}, uses=_uses(function),
        )  # fmt: skip
        self.results = [Value("ptr", f"%r{n}") for n in range(len(returned))]
        for number, (argument, type_) in enumerate(zip(blocks[0].arguments, types, strict=True)):
            ctx.values[argument.name] = _argument(ctx, type_, Value(_parameter(type_), f"%a{number}"))
        self.targets = control_flow.block_targets(ctx, blocks)
        for block in blocks:
            if block.label in self.targets:
                control_flow.enter_block(ctx, block, self.targets[block.label])
            self.block(ctx, block.operations)
        builder.finish()

    def block(self, ctx: Context, operations: Sequence[Operation]) -> None:
        for operation in operations:
            with ctx.b.at(operation.line):
                if operation.name not in _WRITE_NOTHING:
                    ctx.load_delayed()
                self.operation(ctx, operation)
        ctx.load_delayed()

    def operation(self, ctx: Context, operation: Operation) -> None:
        name = operation.name
        if name in elementwise.ELEMENTWISE:
            elementwise.lower(ctx, operation)
        elif name in _LOWERINGS:
            _LOWERINGS[name](ctx, operation)
        elif name in _STRUCTURED:
            _STRUCTURED[name](ctx, operation, self.block)
        elif name in _IN_FUNCTIONS:
            _IN_FUNCTIONS[name](self, ctx, operation)
        elif name not in _IGNORED:
            raise unsupported(operation)

    def jump(self, ctx: Context, operation: Operation) -> None:
        control_flow.lower_jump(ctx, operation, self.targets)

    def map_elements(self, ctx: Context, operation: Operation) -> None:
        """tt.map_elementwise: a function of scalars, with control flow of its own, for every element."""
        if operation.integer("pack") != 1:
            raise unsupported(operation, "of several elements at a time")
        blocks = operation.regions[0].blocks
        tensors = [ctx.tensor(operand) for operand in operation.operands]
        buffers = [ctx.new_buffer(t.shape or (), t.element) for t in map(ctx.type_of, operation.results)]
        with ctx.rows(tensors[0].shape) as index, ctx.outside_loops():
            outer, self.targets = self.targets, control_flow.block_targets(ctx, blocks)
            ends = [ctx.b.variable(buffer.element.llvm) for buffer in buffers]
            done = ctx.b.name("mapped")
            for argument, tensor in zip(blocks[0].arguments, tensors, strict=True):
                ctx.values[argument.name] = ctx.evaluate(tensor, index, 0, 1).vector(ctx.b)
            for block in blocks:
                if block.label in self.targets:
                    control_flow.enter_block(ctx, block, self.targets[block.label])
                last = block.operations[-1]
                returns = last.name == "tt.map_elementwise.return"
                with ctx.block():
                    self.block(ctx, block.operations[:-1] if returns else block.operations)
                if returns:
                    for end, operand in zip(ends, last.operands, strict=True):
                        ctx.b.set(end, ctx.scalar(operand))
                    ctx.b.branch(done)
            self.targets = outer
            ctx.b.label(done)
            for buffer, end in zip(buffers, ends, strict=True):
                ctx.write(buffer, index, uniform(buffer.element, 1, ctx.b.get(end)))
        for result, buffer in zip(operation.results, buffers, strict=True):
            ctx.values[result.name] = ctx.buffered(buffer)

    def poison(self, ctx: Context, operation: Operation) -> None:
        (result,) = operation.results
        type_ = ctx.type_of(result)
        zero = Value(
            type_.element.llvm,
            "null" if type_.element.kind == "ptr" else "0" if type_.element.kind == "int" else "0.0",
        )
        ctx.values[result.name] = zero if type_.shape is None else ctx.constant_tensor(type_, zero)

    def leave(self, ctx: Context, operation: Operation) -> None:
        for operand, where in zip(operation.operands, self.results, strict=True):
            value = ctx.values[operand.name]
            if isinstance(value, Tensor):
                ctx.fill(Buffer(address=where, shape=value.shape, element=value.element), value)
            else:
                ctx.b.emit(f"store {value}, {where}")
        ctx.b.emit("ret void")

    def check(self, ctx: Context, operation: Operation) -> None:
        """tt.assert: the first failure is reported by its number, and the program ends."""
        b = ctx.b
        condition = ctx.values[operation.operands[0].name]
        self.messages.append(f"{operation.line}: {operation.string('message')}")
        number = integer(len(self.messages), "i32")
        if isinstance(condition, Value):
            self.fail_unless(ctx, condition, number)
            return
        with ctx.rows(condition.shape) as index:
            self.fail_unless(ctx, ctx.evaluate(condition, index, 0, 1).vector(b), number)

    def fail_unless(self, ctx: Context, holds: Value, number: Value) -> None:
        b = ctx.b
        failed, passed = b.name("failed"), b.name("passed")
        holds = holds if holds.type == "i1" else b.compare("icmp ne", holds, integer(0, holds.type))
        b.branch_if(holds, passed, failed)
        b.label(failed)
        b.emit(f"store {number}, {ctx.launch['status']}, align 4")
        b.emit("ret void")
        b.label(passed)


_WRITE_NOTHING = elementwise.ELEMENTWISE | {
    "arith.constant", "tt.load", "tt.store", "tt.splat", "tt.make_range", "tt.expand_dims", "tt.broadcast",
    "tt.get_program_id", "tt.get_num_programs", "tt.dot",
}  # fmt: skip
"""Operations that a load may be put off beyond; a store and a product look for themselves."""

_IN_FUNCTIONS: dict[str, Callable[[_Function, Context, Operation], None]] = {
    "cf.br": _Function.jump,
    "cf.cond_br": _Function.jump,
    "tt.return": _Function.leave,
    "tt.map_elementwise": _Function.map_elements,
    "ub.poison": _Function.poison,
    "tt.assert": _Function.check,
    "tt.print": lambda _function, ctx, operation: _print(ctx, operation),
}
OPERATIONS = frozenset(
    {*elementwise.ELEMENTWISE, *_LOWERINGS, *_STRUCTURED, *_IN_FUNCTIONS, *_IGNORED, *_REGION_ENDS, "tt.func"}
)
"""Names of the operations of TTIR that can be lowered."""


def _place(ctx: Context, operation: Operation, prefix: str) -> None:
    ctx.values[operation.results[0].name] = ctx.launch[f"{prefix}{'xyz'[operation.integer('axis')]}"]


def _parameter(type_: TensorType) -> str:
    return "ptr" if type_.shape is not None else type_.element.llvm


def _argument(ctx: Context, type_: TensorType, value: Value) -> Value | Tensor:
    if type_.shape is None:
        return value
    return ctx.buffered(Buffer(address=value, shape=type_.shape, element=type_.element))


def _result_types(function: Operation) -> list[str]:
    text = function.attributes["function_type"].rpartition("->")[2].strip()
    text = text[1:-1] if text.startswith("(") else text
    types, depth, start = [], 0, 0
    for at, char in enumerate(text + ","):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0 and text[start:at].strip():
            types.append(text[start:at].strip())
            start = at + 1
    return types


def _uses(function: Operation) -> dict[str, list[tuple[Operation, int]]]:
    """The users of every value, each with the number of loops around it."""
    uses: dict[str, list[tuple[Operation, int]]] = {}

    def visit(operations: Iterable[Operation], depth: int) -> None:
        for operation in operations:
            for operand in operation.operands:
                uses.setdefault(operand.name, []).append((operation, depth))
            inner = depth + (operation.name in {"scf.for", "scf.while"})
            for region in operation.regions:
                for block in region.blocks:
                    visit(block.operations, inner)

    for block in function.regions[0].blocks:
        visit(block.operations, 0)
    return uses


def _print(ctx: Context, operation: Operation) -> None:
    """tt.print: a line for every element, as on a GPU: program, number of the element, text, value."""
    prefix = operation.string("prefix")
    signed = operation.integers("isSigned")
    is_hex = operation.boolean("hex")
    if not operation.operands:
        _printf(ctx, f"pid (%u, %u, %u){prefix}\n", [])
    for number, operand in enumerate(operation.operands):
        value = ctx.values[operand.name]
        element = ctx.type_of(operand).element
        if isinstance(value, Value):
            _printf(
                ctx,
                f"pid (%u, %u, %u) idx (){prefix}{_format(element.kind, signed[number], is_hex)}\n",
                [value],
            )
            continue
        places = ", ".join(["%u"] * len(value.shape))
        text = f"pid (%u, %u, %u) idx ({places}){prefix}{_format(element.kind, signed[number], is_hex)}\n"
        with ctx.rows(value.shape) as index:
            where = [ctx.b.cast("trunc", i, "i32") for i in index]
            _printf(ctx, text, [*where, ctx.evaluate(value, index, 0, 1).vector(ctx.b)])


def _format(kind: str, signed: int, is_hex: bool) -> str:
    if kind == "float":
        return "%f"
    if kind == "ptr":
        return "%p"
    return "0x%llx" if is_hex else "%lld" if signed else "%llu"


def _printf(ctx: Context, text: str, values: Sequence[Value]) -> None:
    b = ctx.b
    promoted = []
    for value in values:
        if value.type == "float":
            promoted.append(b.cast("fpext", value, "double"))
        elif value.type.startswith("i") and value.type != "i32":
            promoted.append(b.cast("sext" if value.type != "i1" else "zext", value, "i64"))
        else:
            promoted.append(value)
    data = text.encode() + b"\0"
    escaped = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in data)
    address = ctx.module.constant(f'[{len(data)} x i8] c"{escaped}"')
    place = [ctx.launch[axis] for axis in "xyz"]
    ctx.module.declare("printf", "i32", ["ptr", "..."])
    b.emit(f"call i32 (ptr, ...) @printf({', '.join(map(str, [address, *place, *promoted]))})")


def _export(module: Module, entry: Operation, name: str) -> None:
    """The exported function: runs the programs begin .. end-1 in order, returns the status word."""
    # a function with source lines is not inlined into the exported one, which has none
    apart = " noinline" if module.lines else ""
    define = f"define i32 @{name}{SUFFIX}(ptr %arguments, ptr %launch) nounwind{apart}"
    b = Builder(module, define, f"{name}{SUFFIX}", entry.line)
    values = []
    for number, argument in enumerate(entry.regions[0].entry.arguments):
        element = parse_type(argument.type).element
        address = b.address(Value("ptr", "%arguments"), "i8", integer(8 * number))
        stored = b.load(element.stored, address, 8)
        if element.is_narrow:
            raise unsupported(entry, f"with a scalar argument of type {element.name}")
        values.append(b.cast("trunc", stored, "i1") if element.name == "i1" else stored)

    def field(offset: int, type_: str) -> Value:
        return b.load(
            type_, b.address(Value("ptr", "%launch"), "i8", integer(offset)), 4 if type_ == "i32" else 8
        )

    grid = [field(4 * axis, "i32") for axis in range(3)]
    begin, end, scratch, status = field(16, "i64"), field(24, "i64"), field(32, "ptr"), field(40, "ptr")
    wide = [b.cast("zext", size, "i64") for size in grid]
    with b.loop(b.binary("sub", end, begin)) as turn:
        program = b.add(begin, turn)
        x = b.binary("urem", program, wide[0])
        rest = b.binary("udiv", program, wide[0])
        y, z = b.binary("urem", rest, wide[1]), b.binary("udiv", rest, wide[1])
        place = [b.cast("trunc", value, "i32") for value in (x, y, z)]
        arguments = ", ".join(map(str, [*values, *place, *grid, scratch, status]))
        b.emit(f'call void @"{name}.program"({arguments})')
    b.emit(f"ret i32 {b.load('i32', status, 4).text}")
    b.finish()
