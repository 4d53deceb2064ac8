"""Masked accesses touch nothing beyond the mask: tensors end where a page begins without any access."""

from __future__ import annotations

import importlib.util
import multiprocessing
import struct
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.integration.ttcpu.features import compile_kernel
from tests.integration.ttcpu.guarded import run_guarded
from ttcpu.codegen import assembly, optimised
from ttcpu.errors import CompileError
from ttcpu.launch import load, run
from ttcpu.levels import host_level, host_levels, level_named

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
    turned = tl.load(x + tl.trans(i * 32 + j), mask=tl.trans(inside), other=0)
    tl.store(out + i * 32 + j, tl.trans(turned), mask=inside)
"""


STACK = """import triton
import triton.language as tl


@triton.jit
def many(x, out, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(COUNT):
        row = tl.load(x + k * BLOCK + i)
        total += row * tl.max(row, 0)
    tl.store(out + i, total)
"""


def _run_on_a_small_stack(path: Path, programs: int) -> None:
    """Kernels with `programs` buffers in use at once, in a thread that has 272 KiB."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    signature = {"x": "*fp32", "out": "*fp32", "COUNT": "constexpr", "BLOCK": "constexpr"}
    made = compile_kernel(module.many, signature, {"COUNT": programs, "BLOCK": 512}, host_level())
    loaded = load(made.name, made.code, made.scratch, made.messages)
    x = np.random.default_rng(0).integers(-5, 5, (programs, 512)).astype(np.float32)
    out = np.zeros(512, dtype=np.float32)
    threading.stack_size(272 << 10)
    thread = threading.Thread(
        target=run, args=(loaded, (1, 1, 1), struct.pack("<QQ", x.ctypes.data, out.ctypes.data))
    )
    thread.start()
    thread.join()
    assert np.array_equal(out, (x * x.max(1, keepdims=True)).sum(0))


def test_buffers_that_the_stack_has_no_place_for_are_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "stack_kernels.py"
    path.write_text(STACK)
    process = multiprocessing.get_context("spawn").Process(target=_run_on_a_small_stack, args=(path, 70))
    process.start()
    process.join(300)
    assert process.exitcode == 0


def test_a_kernel_that_needs_more_stack_than_threads_have_is_refused() -> None:
    text = f"""
declare void @use(ptr)
define i32 @kernel__range(ptr %a, ptr %l) {{
  %memory = alloca [{600 << 10} x i8]
  call void @use(ptr %memory)
  ret i32 0
}}"""
    level = level_named(host_level())
    with pytest.raises(CompileError, match=r"the kernel needs \d+ KiB of stack, more than 384 KiB"):
        assembly(optimised("kernel", text, level), level)


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
