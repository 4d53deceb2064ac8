"""Which source line an instruction of an image comes from: the image's job compiled again with line info."""

from __future__ import annotations

from pathlib import Path

from aotforge.base.architectures import Architectures
from aotforge.compile.compile_plan import compile_one
from aotforge.plan.jobs import with_line_info
from aotforge.plan.model import CompileJob
from aotforge.virtual_gpu.emulator.lines import LineMap, read_lines


def source_map(
    job: CompileJob, hsaco: bytes, *, kernels_root: Path, architectures: Architectures, scratch: Path
) -> LineMap:
    """The lines of a job's image, for `Program.launch(source=...)`. `scratch` is an empty folder.

    Raises DecodeError when the sources no longer give the image's machine code: then no line is known; CompileError, CacheError,
    ToolchainError.
    """
    image = compile_one(
        with_line_info(job), kernels_root=kernels_root, architectures=architectures, scratch=scratch
    )
    return read_lines(image.hsaco, hsaco, image.symbol, root=kernels_root)
