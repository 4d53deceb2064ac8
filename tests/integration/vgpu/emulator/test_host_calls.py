"""`tl.device_print` and `tl.device_assert`: texts with program and lane, assertions as named failures."""

from __future__ import annotations

import re

import numpy as np
import pytest

from aotforge.errors import ExecutionError, UnsupportedError
from tests.integration.vgpu.emulator.handwritten import caught, run
from tests.integration.vgpu.emulator.test_hidden_arguments import stored
from tests.support.triton_kernels import CompiledKernel, compile_kernel, launch
from vgpu.emulator import hooks
from vgpu.emulator.hooks import PrintedText

pytestmark = pytest.mark.compiler
ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
PRINTS = """
@triton.jit
def kernel(x, scale):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    v = tl.load(x + i)
    tl.device_print("value", v * scale)
    tl.device_print("hexadecimal", i, hex=True)
"""
ASSERTS = """
@triton.jit
def kernel(x):
    i = tl.program_id(0) * 256 + tl.arange(0, 256)
    v = tl.load(x + i)
    tl.device_assert(v < 10, "v is large")
    tl.store(x + i, v + 1)
"""


def prints(arch: str) -> CompiledKernel:
    return compile_kernel(PRINTS, arch, {"x": "*i32", "scale": "i32"}, num_warps=2)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("schedule", [None, 5])
def test_every_element_is_printed_with_its_program(arch: str, schedule: int | None) -> None:
    kernel = prints(arch)
    x, received = np.arange(384, dtype=np.int32), list[PrintedText]()
    report = launch(
        kernel.load(arch), [x, 5], grid=(3, 1, 1), lds=kernel.lds, schedule=schedule, on_print=received.append
    )
    assert tuple(received) == report.printed
    values = [one for one in received if "value" in one.text]
    pattern = r"pid \((\d+), 0, 0\) idx \( *(\d+)\) value: (.*)\n"
    found = sorted(
        (int(m[1]), int(m[2]), int(m[3])) for one in values if (m := re.fullmatch(pattern, one.text))
    )
    assert found == sorted((n // 128, n % 128, 5 * n) for n in range(384))
    assert all(
        one.group == (int(one.text.split("(")[1].split(",")[0]), 0, 0) and not one.error for one in received
    )
    assert sum("hexadecimal: 0x0000017f\n" in one.text for one in received) == 1


@pytest.mark.parametrize("arch", ARCHS)
def test_an_assertion_that_fails_names_message_program_and_line(arch: str) -> None:
    kernel = compile_kernel(ASSERTS, arch, {"x": "*i32"}, num_warps=4, debug=True)
    program, x = kernel.load(arch), np.full(512, 3, dtype=np.int32)
    report = launch(program, [x], grid=(2, 1, 1), lds=kernel.lds)
    assert (x == 4).all() and report.printed == ()
    x[256 + 200] = 77
    with pytest.raises(ExecutionError) as fault:
        launch(program, [x], grid=(2, 1, 1), lds=kernel.lds)
    assert re.match(
        r"kernel: device assertion failed: 'v is large', at .*kernel_source.py:9$",
        fault.value.what,
    )
    lanes = 64 if arch.startswith("gfx9") else 32
    thread = 200 % (4 * lanes)
    assert f"workgroup (1, 0, 0), wave {thread // lanes}, lane {thread % lanes}" in fault.value.cause


@pytest.mark.parametrize("size", range(8))
def test_an_assertion_of_any_length_is_complete(size: int) -> None:
    """Messages are sent in words of 8 bytes, and one that fills its last word has no zero at its end."""
    source = ASSERTS.replace("v is large", "v is large" + "x" * size)
    kernel = compile_kernel(source, "gfx908", {"x": "*i32"}, num_warps=1, debug=True)
    with pytest.raises(ExecutionError) as fault:
        launch(kernel.load("gfx908"), [np.full(256, 77, dtype=np.int32)], grid=(1, 1, 1), lds=kernel.lds)
    assert f"device assertion failed: 'v is large{'x' * size}', at " in fault.value.what


def first_text(prefix: str) -> str:
    """The text of the first lane; `prefix` becomes a part of the format."""
    source = f'@triton.jit\ndef kernel(x):\n    tl.device_print("{prefix}", x)\n'
    kernel = compile_kernel(source, "gfx908", {"x": "i64"}, num_warps=1)
    report = launch(kernel.load("gfx908"), [0x10000002A], grid=(1, 1, 1), lds=kernel.lds)
    assert len(report.printed) == 64
    return report.printed[0].text.removeprefix("pid (0, 0, 0) idx ()")


@pytest.mark.parametrize(
    ("conversion", "text"),
    [
        ("", " one: 4294967338\n"),
        ("%-6d|", " one42    |"),
        ("%#lx", " one0x10000002a"),
        ("%.3llu", " one4294967338"),
        ("%+hhd", " one+42"),
        ("%zX", " one10000002A"),
        ("%5.1f", " one  0.0"),
        ("%c", " one*"),
    ],
)
def test_conversions(conversion: str, text: str) -> None:
    assert first_text(f"one{conversion}").startswith(text)


@pytest.mark.parametrize(
    "conversion",
    ["%Sld", "%S", "%C", "%lc", "%Lf", "%llf", "%9$lx", "%1$d", "%m", "%n", "%*d", "%hn", "%'d", "%Id",
        "%.2000f", "%2000d", "%.", "%l", "%"],
)  # fmt: skip
def test_conversions_that_the_c_library_takes_for_others_end_the_text(conversion: str) -> None:
    """Letters before the conversion's own were taken over: `%Sld` reads where the argument points to."""
    assert first_text(f"one{conversion}") == " one"


def test_packets_in_a_circle_are_a_fault() -> None:
    body = """
    s_mov_b64 exec, 1
    s_load_dwordx2 s[8:9], s[0:1], 0x8
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v2, s8
    v_mov_b32_e32 v3, s9
    v_mov_b32_e32 v4, 1
    v_mov_b32_e32 v5, 0
    v_mov_b32_e32 v6, 2
    global_store_dwordx2 v[2:3], v[4:5], off offset:112
    global_store_dword v[2:3], v6, off offset:128
    global_store_dwordx2 v[2:3], v[4:5], off offset:32
    s_waitcnt vmcnt(0)
    s_sendmsg sendmsg(MSG_INTERRUPT)
    """
    with pytest.raises(UnsupportedError, match="service 0 of the host"):
        stored(
            "hidden_hostcall_buffer", 8, "\n".join(f"\t{line.strip()}" for line in body.strip().splitlines())
        )


def test_a_launch_keeps_texts_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_MOST_BYTES", 3 * len("pid (0, 0, 0) idx () one: 4294967338\n"))
    source, received = '@triton.jit\ndef kernel(x):\n    tl.device_print("one", x)\n', list[PrintedText]()
    kernel = compile_kernel(source, "gfx908", {"x": "i64"}, num_warps=1)
    report = launch(
        kernel.load("gfx908"), [0x10000002A], grid=(1, 1, 1), lds=kernel.lds, on_print=received.append
    )
    assert len(report.printed) == 3 and len(received) == 64


def test_a_trap_is_a_fault() -> None:
    assert caught("s_trap 2").what == "kernel executes s_trap 2"


def test_an_interrupt_without_a_buffer_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="service 0 of the host"):
        run("s_sendmsg sendmsg(MSG_INTERRUPT)")
