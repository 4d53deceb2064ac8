"""Views of registers and memory, line tables and conditions, without a kernel."""

from __future__ import annotations

import ctypes
import io
import struct
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import DecodeError, UnsupportedError
from aotforge.verify.interpreter.number_formats import bf16_bits
from vgpu.cli import _tracer, main, parse_argument
from vgpu.emulator import native
from vgpu.emulator.address_space import AddressSpace
from vgpu.emulator.debugger.locations import source_lines
from vgpu.emulator.debugger.session import Quit, Stop
from vgpu.emulator.debugger.shell import Shell
from vgpu.emulator.debugger.views import FORMATS, ViewContext, format_view, parse_views
from vgpu.emulator.decoded import Line
from vgpu.emulator.listing import parse_listing
from vgpu.memory import Memory

TEXT = """
	.amdgcn_target "amdgcn-amd-amdhsa--gfx908"
k:
	.file	1 "/home/me" "k.py"
	.file	2 "other.py"
	.loc	1 7 3
	s_nop 0
.Ltmp0:
	s_nop 1
	.loc	2 9 1
	v_mov_b32_e32 v0, v1
	.loc	1 0 1
	s_nop 2
	s_endpgm
	.section	.rodata
	.amdhsa_kernel k
"""


@pytest.fixture
def context() -> ViewContext:
    wave = native.WAVES[64]()
    for lane in range(64):
        wave.v[3][lane] = lane
        wave.v[256][lane] = struct.unpack("<I", struct.pack("<f", lane / 2))[0]
    wave.s[0], wave.s[1] = 0x3C00_C000, 7
    wave.s[106], wave.s[107] = 1, 0x80000000
    wave.s[126] = 0xFFFFFFFE
    wave.scc = 1
    lds = ctypes.create_string_buffer(bytes(range(64)), 64)
    scratch = ctypes.create_string_buffer(bytes(range(8)) * 64, 512)
    wave.lds, wave.lds_bytes = ctypes.addressof(lds), 64
    wave.scratch, wave.scratch_bytes = ctypes.addressof(scratch), 8
    wave.keep = (lds, scratch)
    x = np.arange(8, dtype=np.float32)
    space = AddressSpace(Memory({"x": x}))
    return ViewContext(
        wave=wave,
        lanes=range(64),
        registers=(4, 1),
        memory=space,
        arguments={"x": space.address(x.ctypes.data), "scale": 0.5},
        width=64,
    )


def shown(text: str, context: ViewContext) -> str:
    return "\n".join(line for view in parse_views(text) for line in format_view(view, context))


def test_registers(context: ViewContext) -> None:
    lines = shown("v3", context).splitlines()
    assert lines[0] == "v3"
    assert lines[1].split(": ")[1].split() == ["~00000000", *(f"{n:08x}" for n in range(1, 8))]
    assert "lane 56: ~00000038" in lines[8]  # EXEC has lanes 1 to 31 only
    assert "0.5" in shown("a0:f32", context)
    assert shown("s[0:1]", context) == "s[0:1] = 3c00c000 00000007"
    assert shown("s0-s1:u32", context) == "s0-s1 = 1006682112 7"
    assert shown("s0:f16", context) == "s0 = -2 1"
    assert shown("vcc,scc", context) == "vcc = 8000000000000001\nscc = 1"


def test_memory(context: ViewContext) -> None:
    assert shown("lds[4:12]", context).split() == ["lds[4:12]", "0x0004:", "07060504", "0b0a0908"]
    assert shown("lds[0:4]:u8", context).split()[-4:] == ["00", "01", "02", "03"]
    assert shown("x[4:12]:f32", context).split()[-2:] == ["1", "2"]
    at = int(context.arguments["x"])
    assert shown(f"memory[{at:#x}:{at + 4:#x}]:f32", context).split()[-1] == "0"
    rows = shown("scratch[0:8]:u8", context)
    assert rows.count("lane") == 64 and rows.count("04 05 06 07") == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v4", "no v4"),
        ("a1", "no a1"),
        ("lds[0:68]", "beyond the 64 bytes"),
        ("lds[8:8]", "not a valid range"),
        ("scratch[0:9]", "beyond the 8 bytes"),
        ("x[0:33]", "outside of the buffers"),
        ("y[0:4]", "no argument y"),
        ("scale[0:4]", "not a pointer"),
        ("memory[0:4]", "outside of the buffers"),
        ("v0:q", "unknown format"),
        ("v[0", "not a register"),
        ("1.0", "not a register"),
        ("scc[", "not a register"),
    ],
)
def test_what_cannot_be_shown_is_refused(context: ViewContext, text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        shown(text, context)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5))
def test_formats_show_the_bits_they_are_given(values: list[int]) -> None:
    words = np.array(values, dtype=np.uint32)
    assert [int(text, 16) for text in FORMATS["x"](words)] == values
    assert [int(text) & 0xFFFFFFFF for text in FORMATS["i32"](words)] == values
    halves = [int(text) for text in FORMATS["u16"](words)]
    assert [low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=True)] == values
    assert [int(text, 16) for text in FORMATS["u8"](words)] == list(words.tobytes())


@given(st.floats(width=16, allow_nan=False), st.floats(-(2.0**100), 2.0**100, width=32))
def test_floats_are_shown_as_numbers(half: float, single: float) -> None:
    word = np.array([half, 1.0], dtype=np.float16).view(np.uint32)
    assert [float(t) for t in FORMATS["f16"](word)] == [pytest.approx(half, rel=1e-5), 1.0]
    rounded = bf16_bits(np.array([single, 2.0], dtype=np.float32))
    assert float(FORMATS["bf16"](rounded.view(np.uint32))[0]) == pytest.approx(single, rel=2**-8, abs=1e-37)


def test_line_tables() -> None:
    listing = parse_listing(TEXT)
    found = {
        line.text: str(source)
        for line in listing.lines
        if (source := source_lines(TEXT, listing).get(line.number))
    }
    assert found == {"s_nop 0": "k.py:7", "s_nop 1": "k.py:7", "v_mov_b32_e32 v0, v1": "other.py:9"}
    bare = "\n".join(line for line in TEXT.splitlines() if ".loc" not in line)
    assert not source_lines(bare, parse_listing(bare))
    moved = source_lines(bare, parse_listing(bare), lines_from=TEXT)
    assert sorted(map(str, moved.values())) == ["k.py:7", "k.py:7", "other.py:9"]
    with pytest.raises(DecodeError, match="another kernel"):
        source_lines(bare, parse_listing(bare), lines_from=TEXT.replace("s_nop 1", "s_nop 5"))
    with pytest.raises(DecodeError, match="6 instructions instead of 5"):
        source_lines(bare, parse_listing(bare), lines_from=TEXT.replace("s_endpgm", "s_endpgm\n\ts_endpgm"))


def test_arrays_of_files(tmp_path: Path) -> None:
    array = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    np.save(tmp_path / "x.npy", array)
    read = parse_argument(f"in:{tmp_path / 'x.npy'}").buffer
    both = parse_argument(f"y=inout:{tmp_path / 'x.npy'}:{tmp_path / 'y.npy'}").buffer
    assert read is not None and both is not None
    assert (read == array).all() and (read.flags.writeable, both.flags.writeable) == (False, True)
    assert read.strides == array.strides


ESCAPES = "\x1b[2J"


def test_no_escapes_of_a_text_reach_the_terminal(
    context: ViewContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text of a release may be a stranger's: its lines, file names and labels in output, errors, stops
    and traces."""
    (text := tmp_path / "k.s").write_text(TEXT.replace("s_nop 1", f"{ESCAPES}"))
    assert main(["show", str(text)]) != 0
    line = Line(number=1, name="s_nop", encoding="", operands=(), text=f"s_nop {ESCAPES}")
    step = SimpleNamespace(wave=SimpleNamespace(number=0, s=[0] * 128, scc=0), line=line)
    with _tracer("-", 0) as trace:
        assert trace
        trace(step)  # type: ignore[arg-type]
    wave = SimpleNamespace(number=0)
    event = SimpleNamespace(wave=wave, waves=(wave,), group=(0, 0, 0))
    info = SimpleNamespace(source_of=lambda _: f"{ESCAPES}.py:1")
    stop = Stop(reason="breakpoint 1", event=event, line=line)  # type: ignore[arg-type]
    for prompts in (False, True):
        shell = Shell(context, prompts=prompts, stdin=io.StringIO(""), stdout=sys.stdout)
        shell.session = SimpleNamespace(info=info)  # type: ignore[assignment]
        with pytest.raises(Quit) if prompts else nullcontext():
            shell.on_stop(stop)
    shown = "".join(capsys.readouterr())
    assert "\x1b" not in shown and shown.count(r"\x1b[2J") == 6
