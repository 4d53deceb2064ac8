"""Kernels written in assembly for one purpose: assembled and linked by Triton's tools, loaded with the check
of their text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from aotforge.errors import ExecutionError
from vgpu.emulator.assembly import assemble, link
from vgpu.emulator.decoded import Checks
from vgpu.emulator.program import Emulator, LaunchRequest, Program
from vgpu.emulator.targets import emulated_target
from vgpu.memory import Memory

Words = npt.NDArray[np.uint32]

_TEXT = """\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
\t.amdhsa_code_object_version 5
\t.text
\t.globl\tkernel
\t.p2align\t8
\t.type\tkernel,@function
kernel:
{body}
\ts_endpgm
\t.section\t.rodata,"a",@progbits
\t.p2align\t6, 0x0
\t.amdhsa_kernel kernel
\t\t.amdhsa_group_segment_fixed_size {lds}
\t\t.amdhsa_private_segment_fixed_size {scratch}
\t\t.amdhsa_kernarg_size 16
\t\t.amdhsa_user_sgpr_count {user}
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t\t.amdhsa_next_free_vgpr {vgprs}
\t\t.amdhsa_next_free_sgpr 32
{more}\t\t.amdhsa_float_denorm_mode_32 3
\t\t.amdhsa_float_denorm_mode_16_64 3
\t.end_amdhsa_kernel
\t.text
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .offset: 0
        .size: 8
        .value_kind: global_buffer
        .address_space: global
      - .offset: 8
        .size: 8
        .value_kind: global_buffer
        .address_space: global
    .group_segment_fixed_size: {lds}
    .kernarg_segment_align: 8
    .kernarg_segment_size: 16
    .max_flat_workgroup_size: {threads}
    .name: kernel
    .private_segment_fixed_size: {scratch}
    .sgpr_count: 32
    .symbol: kernel.kd
    .vgpr_count: {vgprs}
    .wavefront_size: {lanes}
amdhsa.target: amdgcn-amd-amdhsa--{arch}
amdhsa.version:
  - 1
  - 2
...
\t.end_amdgpu_metadata
"""


def kernel(
    body: str, arch: str = "gfx908", *, threads: int, lds: int = 0, scratch: int = 0, user: int = 2
) -> Program:
    """A kernel of two pointers, s[0:1] being the kernarg segment, v0 the work-item, s2 the workgroup where it
    is passed there, or the one behind `user` SGPRs.
    """
    text = assembly_text(body, arch, threads=threads, lds=lds, scratch=scratch, user=user)
    return Emulator(arch).load(link(assemble(text, arch)), text)


def assembly_text(
    body: str, arch: str, *, threads: int, lds: int = 0, scratch: int = 0, user: int = 2
) -> str:
    """The text of `kernel`."""
    target = emulated_target(arch)
    more = ""
    if target.accumulators == "unified":
        more += "\t\t.amdhsa_accum_offset 32\n"
    if target.lanes == 32:
        more += "\t\t.amdhsa_wavefront_size32 1\n"
    lines = "\n".join(
        f"\t{line.strip()}" if not line.strip().endswith(":") else line.strip()
        for line in body.strip().splitlines()
    )
    return _TEXT.format(
        arch=arch,
        body=lines,
        lds=lds,
        scratch=scratch,
        threads=threads,
        vgprs=32,
        lanes=target.lanes,
        more=more,
        user=user,
    )


def run(
    body: str, arch: str = "gfx908", *, threads: int = 128, checks: bool | Checks = True, **options: Any
) -> Words:
    """Launch a kernel on x, the numbers from 0, and y, zeros; y afterwards. Both have 256 words. Raises
    ExecutionError."""
    launch = {name: options.pop(name) for name in ("schedule", "seed", "grid") if name in options}
    program = kernel(body, arch, threads=threads, **options)
    x, y = np.arange(256, dtype=np.uint32), np.zeros(256, dtype=np.uint32)
    program.launch(
        LaunchRequest(
            grid=launch.pop("grid", (1, 1, 1)),
            arguments=[x.ctypes.data, y.ctypes.data],
            memory=Memory({"x": x, "y": y}),
            checks=checks,
            **launch,
        )
    )
    return y


def caught(body: str, arch: str = "gfx908", **options: Any) -> ExecutionError:
    """The fault that a kernel is stopped for."""
    with pytest.raises(ExecutionError) as found:
        run(body, arch, **options)
    return found.value


def without(body: str, line: str, *, times: int = 1) -> str:
    """A body with a line taken out."""
    assert line in body
    return body.replace(line + "\n", "", times)
