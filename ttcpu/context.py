"""State of lowering one function: values by name, loops over elements, buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from . import narrow_floats
from .element_types import Element, TensorType, parse_type
from .errors import UnsupportedError
from .lanes import Lanes, arithmetic, full, uniform
from .llvm_ir import Builder, Module, Value, Variable, integer, vector_type
from .mlir import SSA, Operation
from .tensors import Buffer, DelayedLoad, Index, Tensor

_IN_FRAME = 2048
"""Bytes up to which a buffer is in the stack frame, where LLVM may turn it into registers."""
_FRAME = 64 << 10
"""Bytes of all buffers in a frame: threads may have little stack, and what LLVM spills comes to it."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Float32 lanes of a vector register; whether to fuse products and sums, and multiply `pairs_bf16`."""

    lanes: int
    contract: bool = True
    pairs_bf16: bool = False

    @property
    def avx512(self) -> bool:
        """Whether vector registers have 512 bits."""
        return self.lanes >= 16


@dataclass(kw_only=True)
class Scratch:
    """Bytes of memory beside the stack that a program needs, in all functions together."""

    size: int = (
        64  # never 0: kernels divide by a GPU's shared memory, whose place it has in Triton's interface
    )

    def take(self, size: int) -> int:
        """The offset of `size` more bytes, 64-byte aligned."""
        offset = self.size
        self.size += (size + 63) // 64 * 64
        return offset


@dataclass(frozen=True, kw_only=True)
class Carried:
    """Where control flow carries a value: a `variable` of a scalar, a `buffer` of a tensor.

    With `first` and `increment` the variable is the distance of indices or pointers from their first value.
    """

    argument: SSA
    variable: Variable | None = None
    buffer: Buffer | None = None
    first: Tensor | None = None
    increment: SSA | None = None


@dataclass(frozen=True, kw_only=True)
class Loop:
    """An scf.for whose body is being lowered."""

    terminator: Operation
    carried: Sequence[Carried]


@dataclass(kw_only=True)
class Context:
    """One function being lowered. `launch`: place in the grid, scratch memory, status word."""

    module: Module
    b: Builder
    machine: Machine
    scratch: Scratch
    launch: dict[str, Value]
    uses: dict[str, list[tuple[Operation, int]]]
    values: dict[str, Value | Tensor] = field(default_factory=dict)
    depth: int = 0
    loops: list[Loop] = field(default_factory=list)
    delayed: list[DelayedLoad] = field(default_factory=list)
    all_true: Tensor | None = None
    framed: int = 0
    _evaluated: list[dict[tuple[object, ...], Lanes]] = field(default_factory=list)

    def type_of(self, ssa: SSA) -> TensorType:
        """The parsed type of a value."""
        return parse_type(ssa.type)

    def scalar(self, ssa: SSA) -> Value:
        """A scalar operand."""
        value = self.values[ssa.name]
        assert isinstance(value, Value), ssa
        return value

    def tensor(self, ssa: SSA) -> Tensor:
        """A tensor operand."""
        value = self.values[ssa.name]
        assert isinstance(value, Tensor), ssa
        return value

    def uses_of(self, ssa: SSA) -> list[tuple[Operation, int]]:
        """The operations that use a value, each with its loop depth."""
        return self.uses.get(ssa.name, [])

    def evaluate(self, tensor: Tensor, index: Index, axis: int, width: int) -> Lanes:
        """Elements of a tensor; inside a loop over elements each is computed once."""
        if not self._evaluated:
            return tensor.evaluate(index, axis, width)
        key = (id(tensor), tuple(i.text for i in index), axis, width)
        for layer in reversed(self._evaluated):
            if key in layer:
                return layer[key]
        lanes = tensor.evaluate(index, axis, width)
        self._evaluated[-1][key] = lanes
        return lanes

    def symbol(self, name: str) -> str:
        """The symbol of a function of the module, which does not clash with the exported one."""
        return f'"{name}.program"'

    @contextmanager
    def outside_loops(self) -> Iterator[None]:
        """Code that may run or not: a loop around it cannot be updated in place."""
        outer, self.loops = self.loops, []
        try:
            yield
        finally:
            self.loops = outer

    @contextmanager
    def where_all_hold(self, mask: Tensor) -> Iterator[None]:
        """Code that runs where every element of a mask is true."""
        self.all_true = mask
        try:
            yield
        finally:
            self.all_true = None

    @contextmanager
    def block(self) -> Iterator[None]:
        """Code that does not dominate what follows: what it evaluates is forgotten at its end."""
        self._evaluated.append({})
        try:
            yield
        finally:
            self._evaluated.pop()

    @contextmanager
    def nest(self, shape: Sequence[int], axis: int | None = None) -> Iterator[tuple[Index, int, int]]:
        """Loops over all elements, vectors along `axis` innermost; yields (index, axis, width)."""
        along = len(shape) - 1 if axis is None else axis
        width = min(self.machine.lanes, shape[along])
        index: list[Value] = [integer(0)] * len(shape)
        with ExitStack() as stack:
            for number, size in enumerate(shape):
                if number != along:
                    index[number] = stack.enter_context(self.b.loop(size))
            index[along] = stack.enter_context(self.b.loop(shape[along], width))
            stack.enter_context(self.block())
            yield tuple(index), along, width

    @contextmanager
    def rows(self, shape: Sequence[int]) -> Iterator[Index]:
        """Loops over all indices of a shape, one at a time."""
        with ExitStack() as stack:
            index = tuple(stack.enter_context(self.b.loop(size)) for size in shape)
            stack.enter_context(self.block())
            yield index

    # -- buffers
    # ---------------------------------------------------------------------------------------------------

    def new_buffer(self, shape: tuple[int, ...], element: Element, *, wide: bool = False) -> Buffer:
        """Uninitialised memory of a tensor."""
        buffer = Buffer(address=Value("ptr", ""), shape=shape, element=element, wide=wide)
        count = 1
        for size in shape:
            count *= size
        if count * buffer.size <= min(_IN_FRAME, _FRAME - self.framed):
            self.framed += count * buffer.size
            address = self.b.frame(f"[{count} x {buffer.stored}]")
        else:
            offset = self.scratch.take(count * buffer.size)
            address = self.b.address(self.launch["scratch"], "i8", integer(offset))
        return Buffer(address=address, shape=shape, element=element, wide=wide)

    def position(self, buffer: Buffer, index: Index) -> Value:
        """The linear element number of an index."""
        total = integer(0)
        for size, i in zip(buffer.shape, index, strict=True):
            total = self.b.add(self.b.mul(total, integer(size)), i)
        return total

    def read(self, buffer: Buffer, index: Index, axis: int, width: int) -> Lanes:
        """Elements of a buffer along any axis."""
        b = self.b
        start = self.position(buffer, index)
        stride = 1
        for size in buffer.shape[axis + 1 :]:
            stride *= size
        if stride == 1 or width == 1:
            address = b.address(buffer.address, buffer.stored, start)
            loaded = b.load(vector_type(buffer.stored, width), address, buffer.size)
        else:

            def lane(number: int) -> Value:
                place = b.add(start, integer(number * stride))
                return b.load(buffer.stored, b.address(buffer.address, buffer.stored, place), buffer.size)

            loaded = b.per_lane(width, buffer.stored, lane)
        return full(buffer.element, loaded if buffer.wide else self.from_memory(buffer.element, loaded))

    def write(self, buffer: Buffer, index: Index, lanes: Lanes) -> None:
        """Store elements along the last axis."""
        value = lanes.vector(self.b)
        stored = value if buffer.wide else self.to_memory(buffer.element, value)
        address = self.b.address(buffer.address, buffer.stored, self.position(buffer, index))
        self.b.store(stored, address, buffer.size)

    def from_memory(self, element: Element, stored: Value) -> Value:
        """Register form of what is in memory."""
        if element.is_narrow:
            return narrow_floats.decode(self.b, element, stored)
        return self.b.cast("trunc", stored, "i1") if element.name == "i1" else stored

    def to_memory(self, element: Element, value: Value) -> Value:
        """Memory form of registers."""
        if element.is_narrow:
            return narrow_floats.encode(self.b, element, value)
        return self.b.cast("zext", value, "i8") if element.name == "i1" else value

    def buffered(self, buffer: Buffer) -> Tensor:
        """The tensor in a buffer."""
        return Tensor(
            type=TensorType(buffer.shape, buffer.element),
            evaluate=lambda index, axis, width: self.read(buffer, index, axis, width),
            cost=1,
            reads={buffer: True},
            natural=len(buffer.shape) - 1,
            buffer=buffer,
        )

    def materialise(self, tensor: Tensor, into: Buffer | None = None, *, wide: bool = False) -> Tensor:
        """The tensor in memory: as it is when it is there already, and `into` when that is given."""
        if (
            into is None
            and tensor.buffer is not None
            and (tensor.buffer.wide or not wide or not tensor.element.is_narrow)
        ):
            return tensor
        buffer = into or self.new_buffer(tensor.shape, tensor.element, wide=wide and tensor.element.is_narrow)
        self.fill(buffer, tensor)
        return self.buffered(buffer)

    def load_delayed(self, but_for: Operation | None = None) -> None:
        """Execute loads that were put off here, but for those that wait for one operation."""
        for load in self.delayed:
            if load.user is not but_for:
                buffer = self.new_buffer(load.tensor.shape, load.tensor.element)
                self.fill(buffer, load.tensor)
                load.buffer = buffer
        self.delayed = [load for load in self.delayed if load.buffer is None]

    def fill(self, buffer: Buffer, tensor: Tensor) -> None:
        """Evaluate one tensor into a buffer by rows, or by tiles where its natural axis is not the last."""
        last, natural = len(tensor.shape) - 1, tensor.natural
        tile = min(self.machine.lanes, tensor.shape[natural], tensor.shape[last])
        if natural == last or tile == 1:
            with self.nest(tensor.shape) as (index, axis, width):
                self.write(buffer, index, self.evaluate(tensor, index, axis, width))
            return
        with ExitStack() as stack:
            start = [
                stack.enter_context(self.b.loop(size, tile if axis in {natural, last} else 1))
                for axis, size in enumerate(tensor.shape)
            ]
            stack.enter_context(self.block())
            columns = []
            for number in range(tile):
                index = (*start[:last], self.b.add(start[last], integer(number)))
                columns.append(self.evaluate(tensor, index, natural, tile).vector(self.b))
            for number, row in enumerate(transposed(self.b, columns)):
                moved = list(start)
                moved[natural] = self.b.add(start[natural], integer(number))
                self.write(buffer, tuple(moved), full(tensor.element, row))

    # -- leaves
    # ----------------------------------------------------------------------------------------------------

    def constant_tensor(self, type_: TensorType, scalar: Value) -> Tensor:
        """Every element the same scalar."""
        assert type_.shape is not None
        return Tensor(
            type=type_,
            evaluate=lambda _index, _axis, width: uniform(type_.element, width, scalar),
            natural=len(type_.shape) - 1,
            steps=lambda _: 0,
        )

    def range_tensor(self, type_: TensorType, start: int) -> Tensor:
        """start, start + 1, ..."""

        def evaluate(index: Index, _axis: int, width: int) -> Lanes:
            first = self.b.add(
                self.b.cast("trunc", index[0], type_.element.llvm), integer(start, type_.element.llvm)
            )
            return arithmetic(type_.element, width, first, integer(1, type_.element.llvm))

        return Tensor(type=type_, evaluate=evaluate, natural=0, steps=lambda _: 1)


def transposed(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """The transpose of a square of vectors: pairs of rows exchange blocks of 1, 2, 4, ... lanes."""
    rows = list(rows)
    size = len(rows)
    step = 1
    while step < size:
        for number in range(size):
            if number & step:
                continue
            upper, lower = rows[number], rows[number + step]
            low = [lane if not lane & step else size + lane - step for lane in range(size)]
            high = [lane + step if not lane & step else size + lane for lane in range(size)]
            rows[number], rows[number + step] = b.shuffle(upper, lower, low), b.shuffle(upper, lower, high)
        step *= 2
    return rows


def unsupported(operation: Operation, why: str = "") -> UnsupportedError:
    """The error of an operation that the back end does not have."""
    return UnsupportedError(
        f"{operation.line or 'the kernel'}: the CPU back end does not support "
        f"{operation.name}{f' {why}' if why else ''}",
        cause="this operation of the Triton language has no lowering to x86-64",
        hint="write the line in other operations, or run the kernel with TRITON_INTERPRET=1",
    )
