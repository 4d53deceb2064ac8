# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201 - kernel code is Triton's dialect
"""Small Triton kernels that show what the interpreter does; some of them wrong on purpose."""

import triton
import triton.language as tl


@triton.jit
def copy(x, out, n, shift, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    if MASKED:
        tl.store(out + lane, tl.load(x + lane + shift, mask=lane < n, other=0.0), mask=lane < n)
    else:
        tl.store(out + lane, tl.load(x + lane + shift))


@triton.jit
def square(x, out, BLOCK: tl.constexpr):
    """x * x; -1 where that is above 2."""
    lane = tl.arange(0, BLOCK)
    product = tl.load(x + lane) * tl.load(x + lane)
    tl.store(out + lane, tl.where(product > 2, -1.0, product).to(out.dtype.element_ty))


@triton.jit
def total(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, BLOCK))))


@triton.jit
def convert(x, out, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(out + lane, tl.load(x + lane).to(out.dtype.element_ty))


@triton.jit
def count(out, at, amount):
    tl.atomic_add(out + at, amount)


@triton.jit
def product(x, out, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)
    tile = tl.load(x + row[:, None] * BLOCK + row[None, :])
    tl.store(out + row[:, None] * BLOCK + row[None, :], tl.dot(tile, tl.trans(tile)))


@triton.jit
def wrapped(out, a, b):
    tl.store(out, a * b)


@triton.jit
def which(out, BLOCK: tl.constexpr):
    place = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out + place, place + BLOCK)
