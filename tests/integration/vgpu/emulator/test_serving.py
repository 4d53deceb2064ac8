"""Program files in processes that are not Python's: whatever the process has, and whatever is wrong with the
file."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from ctypes import c_uint64, c_void_p
from pathlib import Path

import numpy as np
import pytest

from aotforge.errors import ExecutionError
from tests.integration.vgpu.emulator.handwritten import kernel
from vgpu.cache import default_cache
from vgpu.emulator import native
from vgpu.emulator.interpreter_library import build_library
from vgpu.emulator.program import LaunchRequest
from vgpu.hip.blob import ServeFile, program_file
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler

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


DAMAGE = [
    ("kernarg_sgpr", 31), ("kernarg_sgpr", 0xFFFFFFF0), ("preload_sgpr", 32), ("kernel", b"x" * 256),
        ("digest", b"x" * 72),
    ("arch", b"x" * 32), ("launch_at", 2**64 - 8), ("rows_at", 2**64 - 1), ("row_count", 0xFFFFFFFF),
        ("parameters_at", 2**63),
    ("effects_at", 2**64 - 64), ("program_at", 2**64 - 64), ("bytes", 0),
]  # fmt: skip
DAMAGED_LAUNCH = [
    ("waves", 0), ("waves", 33), ("vgprs", 257), ("user_sgprs", 33), ("item_ids", 4), ("entry", 0xFFFFFFFF),
        ("length", 0xFFFFFFFF),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [*DAMAGE, *DAMAGED_LAUNCH])
def test_numbers_beyond_a_launchs_arrays(
    file: bytes, interpreter: Path, field: str, value: int | bytes
) -> None:
    library = ctypes.CDLL(str(interpreter))
    library.serve_open.restype, library.serve_open.argtypes = c_void_p, [c_void_p, c_uint64]
    library.serve_close.argtypes = [c_void_p]
    data = ctypes.create_string_buffer(file, len(file))
    opened = library.serve_open(data, len(file))
    assert opened
    library.serve_close(opened)
    head = ServeFile.from_buffer(data)
    launch = native.Launch.from_buffer(data, head.launch_at)
    setattr(launch if (field, value) in DAMAGED_LAUNCH else head, field, value)
    assert not library.serve_open(data, len(file))


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
