"""Names of all instructions that Triton's own LLVM knows, and which of them each arch has.

The names are in the assembler's table, each behind its length. An assembler distinguishes a name that the
arch lacks from one without its operands, so that no operands are needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

_NAME = re.compile(rb"(?:s|v|ds|buffer|global|flat|scratch|image|tbuffer|exp|lds|cluster|tensor)_[a-z0-9_]+")
_ERROR = re.compile(r"^triton-amdgpu-assembler:(\d+):\d+: error: (.*)$", re.MULTILINE)
_LACKING = ("instruction not supported on this GPU", "invalid instruction")
_ASSEMBLE = """
import sys
from triton._C.libtriton import llvm
from triton.backends.amd.compiler import assemble_amdgcn
llvm.init_targets()
try:
    assemble_amdgcn(sys.stdin.read(), sys.argv[1], "")
except RuntimeError:
    pass  # every line is an error: they are on stderr
"""


@cache
def instruction_names() -> tuple[str, ...]:
    """Of every AMD GPU."""
    import triton

    library = Path(triton.__file__).parent / "_C" / "libtriton.so"
    data = library.read_bytes()
    names = {match[0].decode() for match in _NAME.finditer(data) if data[match.start() - 1] == len(match[0])}
    return tuple(sorted(names))


@cache
def known_instructions(arch: str) -> frozenset[str]:
    """Those that the assembler takes for an arch."""
    names = instruction_names()
    made = subprocess.run(
        [sys.executable, "-c", _ASSEMBLE, arch],
        input="\n".join(names) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lacking = {int(number) for number, what in _ERROR.findall(made.stderr) if what.startswith(_LACKING)}
    assert lacking, made.stderr[-500:]
    return frozenset(name for number, name in enumerate(names, 1) if number not in lacking)
