"""Source lines of the machine code, and the variables by which Triton prints its representations."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.integration.ttcpu.features import compile_kernel
from tests.support.modules import load_module
from ttcpu.levels import host_level

pytestmark = pytest.mark.compiler
ROOT = Path(__file__).parents[3]
SOURCE = """import triton
import triton.language as tl


@triton.jit
def twice(v):
    return v * 2.0


@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    for _ in range(n):
        v = tl.sqrt(v)
    tl.store(out + i, twice(v), mask=i < n)
"""
SIGNATURE = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
COMPILE = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "import debugged\nfrom tests.integration.ttcpu.features import compile_kernel\n"
    "compile_kernel(debugged.kernel, {'x': '*fp32', 'out': '*fp32', 'n': 'i32', 'BLOCK': 'constexpr'}, "
    "{'BLOCK': 64}, sys.argv[2])\n"
)


def _compiled(folder: Path) -> bytes:
    module = load_module(folder / "debugged.py", SOURCE)
    return compile_kernel(module.kernel, SIGNATURE, {"BLOCK": 64}, host_level()).code


def _lines(code: bytes) -> set[tuple[str, int]]:
    """The files and lines of all instructions."""
    found = set()
    for unit in ELFFile(io.BytesIO(code)).get_dwarf_info().iter_CUs():
        program = unit.dwarfinfo.line_program_for_CU(unit)
        files, folders = program["file_entry"], program["include_directory"]
        for entry in program.get_entries():
            if entry.state is not None and entry.state.line:
                file = files[entry.state.file - 1]
                path = Path(folders[file.dir_index - 1].decode(), file.name.decode())
                found.add((str(path), entry.state.line))
    return found


def test_the_code_has_the_lines_of_the_kernel_and_of_what_it_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "0")
    lines = _lines(_compiled(tmp_path))
    assert {file for file, _ in lines} == {str(tmp_path / "debugged.py")}
    marked = {number for number, line in enumerate(SOURCE.splitlines(), 1) if "    " in line}
    assert {number for _, number in lines} - {11} == marked  # 11: the kernel itself


def test_the_variable_of_triton_leaves_the_lines_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    code = _compiled(tmp_path)
    assert b"debugged" not in code
    assert not ELFFile(io.BytesIO(code)).has_dwarf_info()


@pytest.mark.parametrize(
    ("variable", "printed"),
    [("MLIR_ENABLE_DUMP", "IR Dump Before CSEPass"), ("LLVM_IR_ENABLE_DUMP", "IR Dump After SROAPass")],
)
def test_representations_are_printed(variable: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "debugged.py").write_text(SOURCE)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(tmp_path), host_level()],
        capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, variable: "1"},
    )  # fmt: skip
    assert printed in done.stderr
