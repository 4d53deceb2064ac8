"""A listing in the order of addresses, with the constants that the linker has set.

A kernel may call functions of its image: they come before or after it, in the text and in the image, not always in one order.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace

from aotforge.errors import DecodeError
from aotforge.virtual_gpu.emulator.decoded import Line, Listing

_LITERAL = 4  # bytes before the literal of an instruction that has one: encodings with 32-bit constants are one word long


def place(listing: Listing, addresses: Sequence[int]) -> Listing:
    """Instructions sorted by address. `addresses`: of every line, then of the first byte behind the last one."""
    order = sorted(range(len(listing.lines)), key=addresses.__getitem__)
    position = {old: new for new, old in enumerate(order)} | {len(order): len(order)}
    starts = [addresses[old] for old in order]
    behind = addresses[-1] if order[-1] == len(order) - 1 else starts[-1] + 4  # nothing runs there
    lines = tuple(
        replace(listing.lines[old], address=here, next_address=after)
        for old, here, after in zip(order, starts, [*starts[1:], behind], strict=True)
    )
    return replace(listing, lines=lines, labels={name: position[at] for name, at in listing.labels.items()})


def resolve(listing: Listing, memory: bytes, kernel: int) -> Listing:
    """Constants that the linker has set, from the loaded image. `kernel`: the kernel's place in it. Raises DecodeError."""
    if not any(operand.symbol for line in listing.lines for operand in line.operands):
        return listing
    return replace(listing, lines=tuple(_resolved(line, memory, kernel) for line in listing.lines))


def _resolved(line: Line, memory: bytes, kernel: int) -> Line:
    at = kernel + line.address + _LITERAL
    if not any(operand.symbol for operand in line.operands):
        return line
    if not 0 <= at <= len(memory) - 4:
        raise DecodeError(f"{line.location}: a constant of the linker outside of the image")
    (value,) = struct.unpack_from("<I", memory, at)
    return replace(
        line, operands=tuple(replace(one, integer=value) if one.symbol else one for one in line.operands)
    )
