"""Headers of AMD's code objects whose numbers no file has."""

from __future__ import annotations

import struct

import pytest

from vgpu.code_object import CodeObjectError
from vgpu.loaded import check_loaded


@pytest.mark.parametrize(("segments", "sections"), [(2**63, 0), (64, 2**63), (2**64 - 1, 2**64 - 1)])
def test_tables_beyond_what_a_file_has(segments: int, sections: int) -> None:
    counts = (0, 64, 56, int(segments > 64), 64, 1, 0)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01", 3, 224, 1, 0, segments, sections, *counts)
    with pytest.raises(CodeObjectError, match="truncated or damaged"):
        check_loaded(header, {})
