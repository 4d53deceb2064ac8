"""The virtual HIP fills hidden kernel arguments as HIP does: by metadata, for both ways of passing the
explicit ones."""

from __future__ import annotations

import ctypes
import hashlib
from ctypes import c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from tests.integration.vgpu.emulator.test_hidden_arguments import COUNTS, HIDDEN, hidden_kernel
from tests.integration.vgpu.hip.conftest import Play
from tests.support.triton_kernels import compile_kernel

pytestmark = pytest.mark.compiler


@pytest.mark.parametrize("packed", [False, True])
def test_grid_sizes_reach_a_triton_kernel(play: Play, tmp_path: Path, packed: bool) -> None:
    made = compile_kernel(COUNTS, "gfx942", {"out": "*i32"})
    (tmp_path / f"{hashlib.sha256(made.binary).hexdigest()}.s").write_text(made.asm)
    hip = play("gfx942", texts=str(tmp_path))
    function, like = hip.function(made.binary, "kernel"), np.zeros((24, 3), dtype=np.int32)
    out = hip.upload(like)
    if packed:
        values = np.array([out.value, 0, 0], dtype=np.uint64)
        size = c_size_t(values.nbytes)
        extra = (c_void_p * 5)(1, values.ctypes.data, 2, ctypes.addressof(size), 3)
        hip.hipModuleLaunchKernel(function, 2, 3, 4, 256, 1, 1, 0, None, None, extra)
    else:
        hip.launch(function, (2, 3, 4), 256, [out, c_void_p(), c_void_p()])
    hip.hipDeviceSynchronize()
    assert (hip.download(out, like) == (2, 3, 4)).all()


@pytest.mark.parametrize(
    "kind", ["hidden_group_size_x", "hidden_group_size_y", "hidden_grid_dims", "hidden_dynamic_lds_size"]
)
def test_hidden_arguments_are_those_of_the_emulator(play: Play, tmp_path: Path, kind: str) -> None:
    size, value = HIDDEN[kind]
    image, text = hidden_kernel(kind, size)
    (tmp_path / f"{hashlib.sha256(image).hexdigest()}.s").write_text(text)
    hip = play(texts=str(tmp_path))
    function, like = hip.function(image, "kernel"), np.zeros(1, dtype=np.uint32)
    out = hip.upload(like)
    arguments = (c_void_p * 1)(ctypes.addressof(out))
    hip.hipModuleLaunchKernel(function, 5, 6, 7, 64, 1, 1, 512, None, arguments, None)
    hip.hipDeviceSynchronize()
    assert int(hip.download(out, like)[0]) & (1 << 8 * size) - 1 == value
