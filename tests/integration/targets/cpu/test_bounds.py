"""Masked accesses touch nothing beyond the mask: tensors end where a page begins without any access."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from aotforge.targets.cpu.levels import host_level, host_levels
from tests.integration.targets.cpu.guarded import run_guarded

pytestmark = pytest.mark.compiler
SOURCE = """import triton
import triton.language as tl


@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0), mask=i < n)


@triton.jit
def beyond(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i <= n, other=0), mask=i < n)


@triton.jit
def reverse(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + n - 1 - i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def transposed(x, out, n, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, 32)[None, :]
    inside = i * 32 + j < n
    tl.store(out + i * 32 + j, tl.trans(tl.load(x + tl.trans(i * 32 + j), mask=tl.trans(inside), other=0)), mask=inside)
"""


def _exit_code(kernel: str, kind: str, count: int, level: str, folder: Path) -> int | None:
    path = folder / "bounds_kernels.py"
    path.write_text(SOURCE)
    process = multiprocessing.get_context("spawn").Process(
        target=run_guarded, args=(path, kernel, kind, count, level)
    )
    process.start()
    process.join(300)
    return process.exitcode


@pytest.mark.parametrize("kernel", ["copy", "reverse", "transposed"])
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_nothing_beyond_the_mask_is_touched(kernel: str, level: str, tmp_path: Path) -> None:
    if level not in host_levels():
        pytest.skip("this processor has no AVX-512")
    assert _exit_code(kernel, "i8 i16 fp16 fp32 i64", 1001, level, tmp_path) == 0


def test_an_access_one_element_beyond_ends_the_process(tmp_path: Path) -> None:
    assert _exit_code("beyond", "i8", 1001, host_level(), tmp_path) == -11
