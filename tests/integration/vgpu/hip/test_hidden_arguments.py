"""The virtual HIP fills hidden kernel arguments as HIP does: by metadata, for both ways of passing the
explicit ones."""

from __future__ import annotations

import ctypes
import hashlib
from ctypes import c_void_p
from pathlib import Path

import numpy as np
import pytest

from tests.integration.vgpu.emulator.test_hidden_arguments import HIDDEN, hidden_kernel
from tests.integration.vgpu.hip.conftest import Play

pytestmark = pytest.mark.compiler


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
