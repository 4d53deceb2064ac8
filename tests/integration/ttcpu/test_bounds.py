"""Masked accesses touch nothing beyond the mask: tensors end where a page begins without any access."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.integration.ttcpu.features import loaded
from tests.integration.vgpu.coverage.formats import storage
from tests.support.cpu_launch import run
from tests.support.modules import load_module
from ttcpu.codegen import assembly, optimised
from ttcpu.errors import CompileError
from ttcpu.levels import host_level, host_levels, level_named

pytestmark = pytest.mark.compiler
BLOCK = 128
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
    signature = {"x": "*fp32", "out": "*fp32", "COUNT": "constexpr", "BLOCK": "constexpr"}
    kernel = loaded(load_module(path, STACK).many, signature, {"COUNT": programs, "BLOCK": 512})
    x = np.random.default_rng(0).integers(-5, 5, (programs, 512)).astype(np.float32)
    out = np.zeros(512, dtype=np.float32)
    threading.stack_size(272 << 10)
    thread = threading.Thread(
        target=run, args=(kernel, (1, 1, 1), struct.pack("<QQ", x.ctypes.data, out.ctypes.data))
    )
    thread.start()
    thread.join()
    assert np.array_equal(out, (x * x.max(1, keepdims=True)).sum(0))


def _exit_code(target: Callable[..., None], *arguments: object) -> int | None:
    """Of a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    process.join(300)
    return process.exitcode


def test_buffers_that_the_stack_has_no_place_for_are_beside_it(tmp_path: Path) -> None:
    assert _exit_code(_run_on_a_small_stack, tmp_path / "stack_kernels.py", 70) == 0


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


def _before_a_guard(size: int) -> tuple[mmap.mmap, int]:
    """Memory of `size` bytes whose next byte is in a page without any access, and its address."""
    pages = -(-size // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    end = start + pages * mmap.PAGESIZE
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory, end - size


def _run_guarded(path: Path, kernel: str, kinds: str, count: int, level: str) -> None:
    """Run it for each type and compare; a wrong access ends the process with a signal."""
    module = load_module(path, SOURCE)
    for kind in kinds.split():
        signature = {"x": f"*{kind}", "out": f"*{kind}", "n": "i32", "BLOCK": "constexpr"}
        made = loaded(getattr(module, kernel), signature, {"BLOCK": BLOCK}, level)
        numbers = np.arange(count).astype(storage(kind))
        source, source_at = _before_a_guard(numbers.nbytes)
        target, target_at = _before_a_guard(numbers.nbytes)
        ctypes.memmove(source_at, numbers.ctypes.data, numbers.nbytes)
        run(made, (-(-count // BLOCK), 1, 1), struct.pack("<QQi4x", source_at, target_at, count))
        found = np.frombuffer(ctypes.string_at(target_at, numbers.nbytes), dtype=storage(kind))
        expected = numbers[::-1] if kernel == "reverse" else numbers
        assert np.array_equal(found, expected), kind
        del source, target


@pytest.mark.parametrize("kernel", ["copy", "reverse", "transposed"])
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_nothing_beyond_the_mask_is_touched(kernel: str, level: str, tmp_path: Path) -> None:
    if level not in host_levels():
        pytest.skip("this processor has no AVX-512")
    arguments = (tmp_path / "bounds.py", kernel, "i8 i16 fp16 fp32 i64", 1001, level)
    assert _exit_code(_run_guarded, *arguments) == 0


def test_an_access_one_element_beyond_ends_the_process(tmp_path: Path) -> None:
    arguments = (tmp_path / "bounds.py", "beyond", "i8", 1001, host_level())
    assert _exit_code(_run_guarded, *arguments) == -11
