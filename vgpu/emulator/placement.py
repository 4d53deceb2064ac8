"""A listing in the order of addresses, with the constants that the linker has set.

A kernel may call functions of its image: they come before or after it, in the text and in the image, not
always in one order.
"""

import itertools
import struct
from dataclasses import replace

from vgpu.emulator.assembly import Places
from vgpu.emulator.decoded import Line, Listing
from vgpu.errors import DecodeError

_NOP = b"\x00\x00\x80\xbf"
"""s_nop 0, with which assemblers fill to an alignment."""
_LAST = {"s_endpgm", "s_branch", "s_setpc_b64"}
"""Instructions that what is behind them does not follow."""
_RETURNED_TO = {"s_getpc_b64", "s_swappc_b64", "s_call_b64"}
_RELATIVE = {"s_add_u32", "s_addc_u32", "s_add_co_u32", "s_add_co_ci_u32"}
"""What compilers write behind s_getpc_b64 with constants of the linker: their encoding is one word, then the
constant."""
_LITERAL = 4


def place(listing: Listing, places: Places) -> Listing:
    """Instructions by address, and labels where one begins. Raises DecodeError for code between
    instructions."""
    starts, ends = places.starts, places.ends
    order = sorted(range(len(listing.lines)), key=starts.__getitem__)
    position = {old: new for new, old in enumerate(order)} | {len(order): len(order)}
    for old, after in itertools.pairwise(order):
        _check_gap(listing.lines[old], places.between(ends[old], starts[after]), starts[after] - ends[old])
    following = [*(starts[old] for old in order[1:]), ends[order[-1]]]
    lines = tuple(
        replace(listing.lines[old], address=starts[old], next_address=after)
        for old, after in zip(order, following, strict=True)
    )
    at_end = len(starts)  # a branch there is refused when it is bound
    labels = {
        name: position[at]
        for name, at in listing.labels.items()
        if at == at_end or places.labels[name] == starts[at]
    }
    return replace(listing, lines=lines, labels=labels)


def _check_gap(line: Line, gap: bytes, size: int) -> None:
    """Between an instruction and the next one. Raises DecodeError."""
    filled = gap == _NOP * (size // len(_NOP)) and line.name not in _RETURNED_TO
    if size < 0 or (size and line.name not in _LAST and not filled):
        raise DecodeError(
            f"{line.location}: {size} bytes behind it are no instruction of the text: {gap[:8].hex()}"
        )


def resolve(listing: Listing, memory: bytes, kernel: int) -> Listing:
    """Constants of the linker, from the loaded image; `kernel`: its place there. Raises DecodeError."""
    if not any(operand.symbol for line in listing.lines for operand in line.operands):
        return listing
    return replace(listing, lines=tuple(_resolved(line, memory, kernel) for line in listing.lines))


def _resolved(line: Line, memory: bytes, kernel: int) -> Line:
    at = kernel + line.address + _LITERAL
    if not any(operand.symbol for operand in line.operands):
        return line
    if line.name not in _RELATIVE:
        raise DecodeError(
            f"{line.location}: only {', '.join(sorted(_RELATIVE))} have constants of the linker"
        )
    if not 0 <= at <= len(memory) - 4:
        raise DecodeError(f"{line.location}: a constant of the linker outside of the image")
    (value,) = struct.unpack_from("<I", memory, at)
    return replace(
        line, operands=tuple(replace(one, integer=value) if one.symbol else one for one in line.operands)
    )
