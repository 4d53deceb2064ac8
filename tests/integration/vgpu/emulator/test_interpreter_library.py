"""The interpreter as a library: parts are compiled once, and serve programs of other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.integration.vgpu.emulator.handwritten import kernel
from vgpu.cache import default_cache
from vgpu.emulator.generate import OPCODES
from vgpu.emulator.interpreter_library import build_library, load_library
from vgpu.emulator.listing import instruction_names, parse_line
from vgpu.emulator.program import LaunchRequest
from vgpu.hip.blob import program_file
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
FIRST, SECOND = ("s_endpgm", "v_add_f32", "global_load_dword"), ("s_endpgm", "v_mul_f32", "global_load_dword")


def _objects(cache: Path, kind: str) -> list[Path]:
    return sorted((cache / "emulator-1").glob(f"*.{kind}"))


def test_only_missing_handlers_are_compiled(tmp_path: Path) -> None:
    library = load_library(64, tmp_path, "plain", FIRST)
    assert all(library.handler(OPCODES[name]) for name in FIRST)
    assert not library.handler(OPCODES["v_mul_f32"])
    assert load_library(64, tmp_path, "plain", FIRST[:1]) is library
    before = _objects(tmp_path, "set")
    stages: list[str] = []
    second = build_library(64, tmp_path, "plain", SECOND, stages.append)
    assert stages == ["compiling the virtual GPU's interpreter: 3 instructions, 64 lanes"]
    (new,) = set(_objects(tmp_path, "set")) - set(before)
    assert [line.split()[0] for line in (new / "names").read_text().splitlines()] == ["v_mul_f32"]
    assert build_library(64, tmp_path, "plain", SECOND, stages.append) == second
    # it has what the first one had, too
    assert build_library(64, tmp_path, "plain", {*FIRST, *SECOND}, stages.append) == second
    assert len(stages) == 1  # nothing was compiled
    # another variant has its own handlers of what touches memory, and no others
    build_library(64, tmp_path, "checks", FIRST)
    (checked,) = set(_objects(tmp_path, "set")) - {*before, new}
    assert [line.split()[0] for line in (checked / "names").read_text().splitlines()] == ["global_load_dword"]
    build_library(64, tmp_path, "plain", ("global_store_dword",))
    before = _objects(tmp_path, "set")
    build_library(64, tmp_path, "checks", ("global_store_dword",))
    assert len(_objects(tmp_path, "set")) == len(before) + 1


def test_names_of_texts_are_those_of_the_decoder() -> None:
    text = """
\tv_dual_add_f32 v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5
\tv_cmp_gt_f32_e64 s[0:1], v1, v2
\tds_read_b32 v1, v2
\t.loc 1 2 3
\ts_made_up 0
"""
    assert instruction_names([text]) == {"v_add_f32", "v_mul_f32", "v_cmp_gt_f32", "ds_read_b32", "v_mov_b32"}
    assert parse_line("v_cmp_gt_f32_e64 s[0:1], v1, v2").name in instruction_names([text])


def test_a_program_has_the_handlers_of_its_instructions() -> None:
    program = kernel("v_mov_b32_e32 v1, v0", threads=64)
    library = program.code("plain").library
    assert all(library.handler(OPCODES[line.name]) for line in program.lines)


def test_a_truncated_library_is_linked_again(tmp_path: Path) -> None:
    """Also one without handlers, which only shows that the compiler works."""
    for names in ((), FIRST):
        library = build_library(64, tmp_path, "plain", names)
        size = library.stat().st_size
        assert build_library(64, tmp_path, "plain", names) == library
        library.write_bytes(b"")
        assert build_library(64, tmp_path, "plain", names).stat().st_size == size


BODY = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32_e32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v1, v0, s[6:7]
"""
OPEN = """
import ctypes, sys
library, data = ctypes.CDLL(sys.argv[1]), open(sys.argv[2], "rb").read()
library.serve_open.restype = ctypes.c_void_p
sys.exit(0 if library.serve_open(data, ctypes.c_uint64(len(data))) else 3)
"""


@pytest.fixture(scope="module")
def file() -> bytes:
    return program_file(kernel(BODY, threads=64), "digest")


@pytest.fixture(scope="module")
def interpreter() -> Path:
    return build_library(64, default_cache())


def test_a_program_with_functions_of_the_same_names(file: bytes, interpreter: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(file)
    (tmp_path / "other.c").write_text(
        "int run(void *p) { return 77; }\nunsigned long size_of(int what) { return 5; }\nint handlers[1];\n"
    )
    other = tmp_path / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, tmp_path / "other.c"], check=True)
    command = [sys.executable, "-c", OPEN, str(interpreter), str(tmp_path / "file")]
    done = subprocess.run(command, env=os.environ | {"LD_PRELOAD": str(other)}, check=False)
    assert done.returncode == 0


def test_a_plane_of_more_workgroups_than_32_bits_count() -> None:
    y = np.zeros(64, dtype=np.uint32)
    with pytest.raises(ExecutionError, match="without ending") as fault:
        kernel("loop:\ns_branch loop\n", threads=64).launch(
            LaunchRequest(
                grid=(65536, 65536, 1),
                arguments=[y.ctypes.data] * 2,
                memory=Memory({"y": y}),
                limit=10,
                jobs=1,
            )
        )
    assert "workgroup (0, 0, 0)" in str(fault.value)
