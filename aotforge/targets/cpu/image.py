"""Reader of the description that a CPU image has of itself."""

import struct

from ttcpu.image import DESCRIPTION, HEADER, KINDS, NEEDED, VERSION, ImageDescription, Parameter
from vgpu.code_object import CodeObjectError
from vgpu.elf import read_elf

_LIMIT = 1 << 20


def read_description(binary: bytes) -> ImageDescription:
    """Raises CodeObjectError for a file that is not an image of this back end."""
    elf = read_elf(binary)
    try:
        at = elf.symbol(DESCRIPTION).value
        version, size, scratch, count, texts_after = HEADER.unpack_from(elf.memory, at)
        if size > min(_LIMIT, len(elf.memory) - at):
            raise ValueError(f"{size} bytes")
        data = elf.memory[at : at + size]
        if version != VERSION:
            raise CodeObjectError(f"{DESCRIPTION} has version {version}, not {VERSION}")
        kinds = data[HEADER.size : HEADER.size + count]
        texts = data[HEADER.size + count :].split(b"\0")
        if len(kinds) != count or len(texts) != texts_after + 3 or texts[-1]:
            raise ValueError("its parts do not have its size")
        symbol, level, *messages = (text.decode() for text in texts[:-1])
        parameters = tuple(Parameter(kind=KINDS[k & ~NEEDED], needed=bool(k & NEEDED)) for k in kinds)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CodeObjectError(f"{DESCRIPTION} is damaged: {error}") from error
    return ImageDescription(
        symbol=symbol, level=level, scratch=scratch, parameters=parameters, messages=tuple(messages)
    )
