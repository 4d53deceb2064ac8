"""Complete kernels: spills, atomics, loops, calls of functions; the check of the text; the command line."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aotforge.compile.model import KernelImage
from aotforge.errors import DecodeError, ExecutionError, ToolchainError, UnsupportedError
from tests.integration.compile.builds import build
from tests.integration.vgpu.emulator.handwritten import assembly_text, caught, kernel, run
from tests.support.families import SPILLING, plan_of, write_family
from tests.support.runtime import CACHE
from tests.support.triton_kernels import compile_kernel, launch
from vgpu.cli import main
from vgpu.code_object import read_elf
from vgpu.emulator.arguments import read_descriptor
from vgpu.emulator.assembly import assemble, link
from vgpu.emulator.listing import parse_listing
from vgpu.emulator.program import Emulator, LaunchRequest, Program
from vgpu.emulator.targets import emulated_target
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler
Make = Callable[..., KernelImage]

KERNELS = {
    "spill": (
        SPILLING,
        {"blocks": (1024,), "waves": 10, "spills": "report"},
    ),
    "count": (
        """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(x + i % 7, 1.0, mask=i < n)
""",
        {"blocks": (128,), "warps": 2},
    ),
    "product": (
        """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    a = tl.load(x + at)
    b = tl.load(x + at + n)
    tl.store(x + at + 2 * n, tl.dot(a, b, input_precision="ieee"))
""",
        {"blocks": (32,), "warps": 4},
    ),
    "forever": (
        """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    while tl.load(x, volatile=True) < 1:
        tl.store(x, tl.load(x) * n)
""",
        {"blocks": (64,)},
    ),
    "sort": (
        """
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(x + i, tl.cumsum(v, 0), mask=i < n)
""",
        {"blocks": (256,), "warps": 4},
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KernelImage]:
    root = tmp_path_factory.mktemp("kernels")
    for name, (text, options) in KERNELS.items():
        write_family(root, name, text, **options)  # type: ignore[arg-type]
    images, _ = build(root, CACHE)
    return {job.family: images[job.key] for job in plan_of(root).jobs}


def launch_image(image: KernelImage, x: np.ndarray, n: int, grid: int = 1, **options: Any) -> dict[str, int]:
    program = Emulator("gfx908").load(image.binary, image.asm)
    report = program.launch(
        LaunchRequest(
            grid=(grid, 1, 1),
            arguments=[x.ctypes.data, n],
            memory=Memory({"x": x}),
            lds_bytes=image.resources.dynamic_shared_bytes,
            **options,
        )
    )
    return report.counts


@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_spilled_registers_come_back(made: dict[str, KernelImage], schedule: int | None) -> None:
    x = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    a, b, c, d = x.astype(np.float64).reshape(4, 1024)
    counts = launch_image(made["spill"], x, 1024, schedule=schedule)
    assert counts["buffer_store_dword"] + counts["buffer_store_dwordx4"] > 0
    assert np.allclose(x[:1024], a * b + c * d, atol=1e-5)
    assert np.allclose(x[1024:2048], a + b * c - d, atol=1e-5)


def test_atomics_of_workgroups_on_several_threads_add_up(made: dict[str, KernelImage]) -> None:
    x = np.zeros(7, dtype=np.float32)
    launch_image(made["count"], x, 5000, grid=40, jobs=4)
    assert np.array_equal(x, np.bincount(np.arange(5000) % 7))


def test_float32_products(made: dict[str, KernelImage]) -> None:
    x = np.random.default_rng(2).standard_normal(3072).astype(np.float32)
    launch_image(made["product"], x, 1024)
    a, b, c = x.astype(np.float64).reshape(3, 32, 32)
    assert np.allclose(c, a @ b, atol=1e-4)


def test_running_sums(made: dict[str, KernelImage]) -> None:
    x = np.random.default_rng(3).standard_normal(256).astype(np.float32)
    expected = np.cumsum(x[:200].astype(np.float64))
    launch_image(made["sort"], x, 200)
    assert np.allclose(x[:200], expected, atol=1e-4)


def test_a_kernel_that_does_not_end_is_stopped(made: dict[str, KernelImage]) -> None:
    with pytest.raises(ExecutionError, match="without ending"):
        launch_image(made["forever"], np.zeros(64, dtype=np.float32), 1, limit=10_000)


# ---- the check of the text ----


def test_addresses_cover_the_machine_code(made: dict[str, KernelImage]) -> None:
    image = made["product"]
    lines = Emulator("gfx908").load(image.binary, image.asm).listing.lines
    assert lines[0].address == 0
    assert all(line.next_address - line.address in {4, 8} for line in lines[:-1])
    elf = read_elf(image.binary)
    assert lines[-1].text == "s_endpgm"
    assert lines[-1].next_address == elf.symbol("kernel").size
    assert read_descriptor(elf, "kernel").entry == elf.symbol("kernel").value


@pytest.mark.parametrize("change", ["operand", "instruction", "removed", "other kernel", "image"])
def test_a_text_that_is_not_the_image_is_refused(made: dict[str, KernelImage], change: str) -> None:
    image = made["product"]
    asm, hsaco = image.asm, image.binary
    if change == "operand":
        asm = asm.replace("s_load_dwordx2 s[", "s_load_dwordx2 s[", 1).replace("offset:", "offset:1", 1)
    elif change == "instruction":
        asm = asm.replace("v_add_u32_e32", "v_sub_u32_e32", 1)
        assert asm != image.asm
    elif change == "removed":
        asm = asm.replace("\ts_barrier\n", "", 1)
    elif change == "other kernel":
        asm = made["count"].asm
    else:
        section = read_elf(hsaco).section(".text")
        altered = bytearray(hsaco)
        altered[section.offset + section.size // 2] ^= 4
        hsaco = bytes(altered)
    with pytest.raises(DecodeError, match=r"is not the image|refuses the text"):
        Emulator("gfx908").load(hsaco, asm)


class EveryAddress:
    """A line table that has one line."""

    def at(self, address: int) -> str | None:
        return f"kernel.py:{address}"


def test_a_report_names_the_source_line(made: dict[str, KernelImage]) -> None:
    image = made["count"]
    x = np.zeros(3, dtype=np.float32)
    program = Emulator("gfx908").load(image.binary, image.asm)
    with pytest.raises(ExecutionError) as caught:
        program.launch(
            LaunchRequest(
                grid=(1, 1, 1), arguments=[x.ctypes.data, 64], memory=Memory({"x": x}), source=EveryAddress()
            )
        )
    found = re.search(r"\(byte (0x[0-9a-f]+), kernel.py:(\d+)\)", caught.value.cause)
    assert found is not None
    assert int(found[1], 16) == int(found[2])


def test_a_text_for_another_arch_is_refused(made: dict[str, KernelImage]) -> None:
    with pytest.raises(DecodeError, match="gfx908, not for gfx90a"):
        Emulator("gfx90a").load(made["count"].binary, made["count"].asm)


def test_a_missing_compiler_is_an_error(
    made: dict[str, KernelImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    program = Emulator("gfx908", cache=tmp_path).load(made["count"].binary, made["count"].asm)
    x = np.zeros(7, dtype=np.int32)
    with pytest.raises(ToolchainError, match="no C compiler: no-such-compiler"):
        program.launch(LaunchRequest(grid=(1, 1, 1), arguments=[x.ctypes.data, 7], memory=Memory({"x": x})))


# ---- the command line ----


@pytest.fixture
def files(made: dict[str, KernelImage], tmp_path: Path) -> Path:
    image = made["product"]
    (tmp_path / "k.hsaco").write_bytes(image.binary)
    (tmp_path / "k.s").write_text(image.asm)
    np.save(tmp_path / "x.npy", np.random.default_rng(5).standard_normal(3072).astype(np.float32))
    return tmp_path


def test_the_command_runs_a_kernel(
    files: Path, made: dict[str, KernelImage], capsys: pytest.CaptureFixture[str]
) -> None:
    lds = made["product"].resources.dynamic_shared_bytes
    x, y, trace_file = (files / name for name in ("x.npy", "y.npy", "trace.txt"))
    command = ["run", str(files / "k.hsaco"), "--asm", str(files / "k.s"), "--lds", str(lds)]
    command += f"--grid 1 --schedule 4 --arg inout:{x}:{y} --arg 1024 --trace {trace_file}".split()
    assert main(command) == 0
    a, b, c = np.load(y).astype(np.float64).reshape(3, 32, 32)
    assert np.allclose(c, a @ b, atol=1e-4)
    printed = capsys.readouterr().out
    assert "wave-instructions in 1 workgroups" in printed
    assert "v_mfma_f32" in printed
    trace = trace_file.read_text().splitlines()
    assert len(trace) == int(printed.split()[0])
    assert trace[0].startswith("wave ")
    assert {line.split()[1] for line in trace} == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--arg", "in:{x}", "--arg", "1024", "--lds", "65536"], 1, "read-only"),
        (["--arg", "nonsense", "--arg", "1024"], 2, "is not a valid argument"),
        (["--arg", "inout:{x}:{x}"], 1, "arguments"),
        (["--arg", "inout:{x}:{x}", "--arg", "1024", "--arch", "gfx1"], 2, "unknown arch gfx1"),
    ],
)
def test_the_commands_errors_have_their_codes(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    given = [argument.format(x=files / "x.npy") for argument in arguments]
    assert main(["run", str(files / "k.hsaco"), "--asm", str(files / "k.s"), *given]) == code
    assert message in capsys.readouterr().err


_SHORT = "s_mov_b32 s20, 1\n\tv_mov_b32_e32 v1, s20"


def _loaded(text: str, image: bytes | None = None) -> Program:
    return Emulator("gfx908").load(link(assemble(text, "gfx908")) if image is None else image, text)


def test_a_descriptor_that_the_text_does_not_have_is_refused() -> None:
    text = assembly_text(_SHORT, "gfx908", threads=64)
    other = text.replace("next_free_vgpr 32", "next_free_vgpr 64")
    with pytest.raises(DecodeError, match="is not the image's"):
        _loaded(text, link(assemble(other, "gfx908")))


@pytest.mark.parametrize("entry", [-256, 4, 256])
def test_a_descriptor_that_enters_elsewhere_is_refused(entry: int) -> None:
    text = assembly_text(_SHORT, "gfx908", threads=64)
    image = bytearray(link(assemble(text, "gfx908")))
    elf = read_elf(bytes(image))
    constants = elf.section(".rodata")
    at = constants.offset + elf.symbol("kernel.kd").value - constants.address + 16
    struct.pack_into("<q", image, at, struct.unpack_from("<q", image, at)[0] + entry)
    with pytest.raises(DecodeError, match="is not the image's"):
        _loaded(text, bytes(image))
    with pytest.raises(DecodeError, match="where the kernel does not begin"):
        Program(emulated_target("gfx908"), parse_listing(text), bytes(image), None)


@pytest.mark.parametrize("threads", [0, -64, 1025, 1 << 40])
def test_a_workgroup_has_at_most_1024_threads(threads: int) -> None:
    """The interpreter takes memory for all of a workgroup's waves, and its checks number 32 of them."""
    assert _loaded(assembly_text(_SHORT, "gfx908", threads=1024)).threads == 1024
    with pytest.raises(UnsupportedError, match=f"{threads} threads"):
        _loaded(assembly_text(_SHORT, "gfx908", threads=threads))


def test_a_kernel_has_the_sgprs_that_it_names() -> None:
    text = assembly_text(_SHORT, "gfx908", threads=64)
    _loaded(text.replace("next_free_sgpr 32", "next_free_sgpr 21"))
    with pytest.raises(DecodeError, match="s20 is beyond the 16 SGPRs"):
        _loaded(text.replace("next_free_sgpr 32", "next_free_sgpr 8"))


def test_a_text_with_the_section_of_addresses_is_refused() -> None:
    text = assembly_text(_SHORT, "gfx908", threads=64)
    with pytest.raises(DecodeError, match="has a section"):
        _loaded(
            text.replace(
                "\t.amdgpu_metadata",
                '\t.section .aotforge_addresses,"",@progbits\n\t.long 0\n\t.text\n\t.amdgpu_metadata',
            )
        )


@pytest.mark.parametrize(
    "padding",
    ["\t.p2align\t8, 0x7e", "\t.p2align\t6, 1", "\t.fill 48, 4, 3214868480", "\t.p2alignl 6, 3214868480"],
)
def test_padding_that_a_gpu_would_execute_is_refused(padding: str) -> None:
    """`\\t.p2align\\t8, 0x7e` between instructions is vector instructions; the emulator executes those of the
    text alone."""
    with pytest.raises(DecodeError, match=r"unknown directive|are no instruction of the text"):
        _loaded(assembly_text(f"s_nop 0\n{padding}\ns_nop 0", "gfx908", threads=64))
    _loaded(assembly_text("s_nop 0\n\t.p2align\t6\ns_nop 0", "gfx908", threads=64))


def test_a_branch_goes_to_the_address_of_its_label() -> None:
    """A label behind a function is in front of padding, not of the next function of the text."""
    other = (
        '\t.section\t.text.other,"ax",@progbits\n\t.p2align\t8\n\t.type\tother,@function\n'
        "other:\n\ts_nop 0\n\ts_setpc_b64 s[30:31]\n"
    )
    text = assembly_text("s_cbranch_scc0 behind\ns_endpgm\n\nbehind:", "gfx908", threads=64)
    first, end = text.split("\ts_endpgm\n\t.section", 1)
    text = f"{first}{other}\t.section{end}".replace("next_free_sgpr 32", "next_free_sgpr 48")
    with pytest.raises(DecodeError, match="behind"):
        _loaded(text)


ARCHS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
NESTED = """
@triton.jit(noinline=True)
def square(a):
    return a * a

@triton.jit(noinline=True)
def polynomial(a, b):
    return square(a) + square(b) * 2 + 1

@triton.jit
def kernel(x, factor):
    p = tl.program_id(0)
    v = tl.load(x + p)
    tl.store(x + p, polynomial(v, factor) - square(v + 1))
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_functions_that_call_functions(arch: str) -> None:
    made = compile_kernel(NESTED, arch, {"x": "*fp32", "factor": "fp32"}, num_warps=1)
    assert "s_swappc_b64" in made.asm
    x = np.arange(5, dtype=np.float32)
    expected = x * x + 2 * 9 + 1 - (x + 1) ** 2
    launch(made.load(arch), [x, 3.0], grid=(5, 1, 1), lds=made.lds)
    assert np.array_equal(x, expected)


def test_a_call_is_verified_against_the_image() -> None:
    made = compile_kernel(NESTED, "gfx942", {"x": "*fp32", "factor": "fp32"}, num_warps=1)
    altered = made.asm.replace("@rel32@lo+4", "@rel32@lo+8", 1)
    assert altered != made.asm
    with pytest.raises(DecodeError, match="is not the image"):
        Emulator("gfx942").load(made.binary, altered)


@pytest.mark.parametrize(
    "line", ["v_add3_u32 v0, v1, v2, kernel@rel32@lo+4", "v_and_or_b32 v0, kernel@rel32@lo+4, v1, v2"]
)
def test_constants_of_the_linker_are_where_compilers_have_them(line: str) -> None:
    """Encodings of two words have them behind the second one."""
    with pytest.raises(DecodeError, match="have constants of the linker"):
        kernel(f"{line}\n", "gfx1100", threads=32)


def test_a_call_returns_behind_itself_and_a_jump_has_to_meet_an_instruction() -> None:
    body = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_call_b64 s[8:9], target
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[6:7]
    s_endpgm
    target:
    v_mov_b32_e32 v2, 7
    {adjust}
    s_setpc_b64 s[8:9]
    """
    assert (run(body.format(adjust=""))[:128] == 7).all()
    fault = caught(body.format(adjust="s_add_u32 s8, s8, 2"))
    assert "where no instruction begins" in fault.what and "s_setpc_b64" in fault.cause


@pytest.mark.compiler
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_texts_of_older_compilers_name_no_halves_of_registers(arch: str) -> None:
    """Such as those of Triton 3.7; the bytes are the same."""

    def code(line: str) -> bytes:
        text = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\n\t.text\n{line}\n'
        return read_elf(assemble(text, arch)).section(".text").data

    assert code("\tv_cvt_f16_f32_e32 v1, v2") == code("\tv_cvt_f16_f32_e32 v1.l, v2")
    assert code("\tv_cvt_f32_f16_e32 v1, v2") == code("\tv_cvt_f32_f16_e32 v1, v2.l")
