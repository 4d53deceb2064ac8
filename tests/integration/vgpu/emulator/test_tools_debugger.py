"""The command line as a kernel writer uses it: breakpoints, dumps, the prompt through a pipe, listings."""

from __future__ import annotations

import io
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aotforge.devtools.cost.cost_report import LaunchCost
from tests.support.families import PROJECT
from tests.support.triton_kernels import CompiledKernel, compile_text
from vgpu.cli import main
from vgpu.emulator.assembly import assemble, link

pytestmark = pytest.mark.compiler

PRODUCT = """
@triton.jit
def kernel(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = i[:, None] * BLOCK + i[None, :]
    a = tl.load(x + at)
    b = tl.load(y + at)
    c = tl.dot(a, b, input_precision="ieee")
    tl.store(out + at + tl.program_id(0) * BLOCK * BLOCK, c)
"""
STORE = "source.py:12"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=["gfx908", "gfx1100"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CompiledKernel:
    types = dict.fromkeys(("x", "y", "out"), "*fp32")
    folder = tmp_path_factory.mktemp("source")
    return compile_text(folder, PRODUCT, types, constants={"BLOCK": 32}, arch=request.param)


@pytest.fixture
def run(
    made: CompiledKernel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    image, text = made.write(tmp_path)
    rng = np.random.default_rng(1)
    for name in ("x", "y"):
        np.save(tmp_path / f"{name}.npy", rng.integers(-4, 5, 1024).astype(np.float32))

    def call(*flags: str, typed: str = "", debug: bool = False) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        command = ["debug" if debug else "run", str(image), "--asm", str(text)]
        command += ["--grid", "2", "--lds", str(made.lds)]
        command += ["--arg", f"x=in:{tmp_path / 'x.npy'}", "--arg", f"in:{tmp_path / 'y.npy'}"]
        command += ["--arg", f"out=out:fp32:2048:{tmp_path / 'out.npy'}", *flags]
        code = main(command, costs=LaunchCost)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def right(folder: Path) -> bool:
    x, y = (np.load(folder / f"{name}.npy").reshape(32, 32) for name in ("x", "y"))
    return np.array_equal(np.load(folder / "out.npy").reshape(2, 32, 32), np.stack([x @ y] * 2))


def test_a_breakpoint_shows_and_the_kernel_continues(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("--break", STORE, "--dump", "exec,v0,s[0:1],arg0[0:16]:f32")
    assert code == 0
    assert right(tmp_path)
    assert "breakpoint 1, hit 1: workgroup (0, 0, 0), wave 0" in out
    assert re.search(r"=> 0x[0-9a-f]{5} +\d+ +\S.*source\.py:12$", out, re.MULTILINE)
    assert re.search(r"^exec = f{8,16}$", out, re.MULTILINE)
    x = np.load(tmp_path / "x.npy")
    assert [float(n) for n in re.findall(r"0x0000: (.*)", out)[0].split()] == x[:4].tolist()
    assert out.count("breakpoint 1") == 1  # --break-count is 1


def test_conditions_of_a_breakpoint(run: Run) -> None:
    _, out, _ = run("--break", STORE, "--break-wave", "2", "--break-group", "1")
    assert re.findall(r"workgroup .*, wave \d+", out) == ["workgroup (1, 0, 0), wave 2"]
    _, out, _ = run("--break", f"{STORE} wave 1", "--break-count", "0")
    assert set(re.findall(r"(workgroup \(\d, 0, 0\)), wave 1", out)) == {
        "workgroup (0, 0, 0)",
        "workgroup (1, 0, 0)",
    }
    hits = len(re.findall("breakpoint 1", out))
    _, out, _ = run("--break", f"{STORE} wave 1 hit {hits} count 0")
    assert re.findall(r"hit (\d+)", out) == [str(hits)]


def test_what_is_stored_is_in_the_registers_that_the_store_names(run: Run, tmp_path: Path) -> None:
    listing = _show(tmp_path)
    store = next(line for line in listing if re.search(r"(global|buffer)_store", line))
    address = store.split()[0]
    data = re.findall(r"v\[?\d+(?::\d+\])?", store.split(None, 4)[4])[0 if "buffer" in store else 1]
    code, out, _ = run("--break", address, "--dump", f"{data}:f32", "--lanes", "0-3")
    assert code == 0 and right(tmp_path)
    values = {float(n) for row in re.findall(r"lane +0: (.*)", out) for n in row.split()}
    assert values
    x, y = (np.load(tmp_path / f"{name}.npy").reshape(32, 32) for name in ("x", "y"))
    assert values <= set((x @ y).ravel().tolist())


def _show(folder: Path) -> list[str]:
    from vgpu.cli import listing_lines

    return listing_lines((folder / "kernel.s").read_text())


def test_the_prompt_steps_shows_and_continues(run: Run, made: CompiledKernel, tmp_path: Path) -> None:
    typed = f"""
wave 2
print v0:i32
step
next 3
line
where 2
waves
break {STORE} wave 3
continue
wave 1
waves
print s[0:1]
print lds[0:16]:f32
print out[0:8]
arguments
registers
delete 1
continue
"""
    code, out, _ = run(typed=typed, debug=True)
    assert code == 0
    assert right(tmp_path)
    assert out.startswith("start: workgroup (0, 0, 0), wave 0\n=> 0x00000")
    assert out.count("\nstep: ") == 2
    assert "\nline: " in out
    assert "* wave 0: running" in out
    assert "breakpoint 1, hit 1: workgroup (0, 0, 0), wave 3" in out
    assert "* wave 1: " in out and "  wave 3: running" in out
    first = 128 if "gfx908" in made.asm else 64  # work-item ids of wave 2
    assert re.search(rf"lane +0: {first} {first + 1} ", out)
    assert "out[0:8]" in out
    assert re.search(r"arg3|out = 0x[0-9a-f]+, 8192 bytes", out)
    assert "wave-instructions in 2 workgroups" in out


def test_steps_stay_with_their_wave_across_a_barrier(run: Run, tmp_path: Path) -> None:
    barriers = [line for line in _show(tmp_path) if "s_barrier" in line]
    assert barriers
    code, out, _ = run(typed=f"b {barriers[0].split()[0]} wave 1\nc\ns\nwaves\nc\nq\n", debug=True)
    assert code == 0
    waves = [int(n) for n in re.findall(r"^(?:start|step|break)\S*.*wave (\d+)$", out, re.MULTILINE)]
    assert waves[:3] == [0, 1, 1]


def test_quitting_and_the_end_of_input_leave_without_results(run: Run, tmp_path: Path) -> None:
    for typed in ("step 5\nquit\n", "step 5\n", ""):
        code, out, _ = run(typed=typed, debug=True)
        assert code == 0
        assert "wave-instructions" not in out
        assert not (tmp_path / "out.npy").exists()


def test_mistakes_at_the_prompt_are_reported_and_the_prompt_stays(run: Run, tmp_path: Path) -> None:
    mistakes = {
        "frobnicate": "unknown command: frobnicate",
        "print v255": "the kernel has no v255",
        "print s[0": "not a register",
        "print v0:f99": "unknown format",
        "print lds[0:999999999]": "not a valid range of at most",
        "print lds[65532:65600]": "beyond the",
        "print memory[0:16]": "outside of the buffers",
        "print missing[0:16]": "no argument missing",
        "wave 99": "waves 0 to",
        "lanes 4-99": "lanes 0 to",
        "lanes x": "not a valid range of lanes",
        "break 0x3": "no instruction begins",
        "break nowhere": "unknown location",
        "break source.py:99": "no instruction comes from",
        "break 0x0 wave": "not a valid condition",
        "delete 5": "breakpoint 5 does not exist",
        "delete x": "not understood",
        "step 0": "not a valid count",
        "format x9": "unknown format",
    }
    code, out, _ = run(typed="\n".join(mistakes) + "\nc\n", debug=True)
    assert code == 0
    assert right(tmp_path)
    errors = re.findall(r"^error: .*", out, re.MULTILINE)
    assert len(errors) == len(mistakes), errors
    for error, (typed, message) in zip(errors, mistakes.items(), strict=True):
        assert message in error, (typed, error)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--break", "source.py:999"], 2, "nearest lines with code"),
        (["--break", "other.py:3"], 2, "the kernel comes from source.py"),
        (["--break", "999999"], 2, "no instruction on line"),
        (["--break", "0x2"], 2, "no instruction begins at byte 0x2"),
        (["--break", "0x0", "--dump", "q7"], 2, "not a register"),
        (["--break", "0x0", "--dump", "v254"], 2, "the kernel has no v254"),
        (["--break", "0x0", "--break-group", "a"], 2, "not a valid workgroup"),
        (["--break", "0x0 often"], 2, "not a valid condition"),
        (["--dump", "v0"], 2, "at a breakpoint"),
        (["--break", "0x0", "--lanes", "70-80"], 2, "a wave has lanes"),
        (["--grid", "many"], 2, "not a valid grid"),
        (["--arg", "x=3"], 2, "the same name"),
        (["--checks", "rases"], 2, "perhaps you meant races"),
        (["--checks", "--cost"], 2, "checked and measured at once"),
    ],
)
def test_mistakes_on_the_command_line(run: Run, flags: list[str], code: int, message: str) -> None:
    actual, _, err = run(*flags)
    assert (actual, message in err) == (code, True), err


def test_a_fault_is_still_reported_from_the_prompt(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(100, dtype=np.float32))
    code, _, err = run(typed="c\n", debug=True)
    assert code == 1
    assert "from the start of x, which has 400 bytes" in err
    assert re.search(r"\(byte 0x[0-9a-f]+, source\.py:9\)", err)


def test_a_text_without_line_numbers_takes_them_from_another(
    run: Run, made: CompiledKernel, tmp_path: Path
) -> None:
    with_lines = tmp_path / "lines.s"
    with_lines.write_text(made.asm)
    bare = [line for line in made.asm.splitlines() if not re.match(r"\s*\.(loc|cfi_\w+)\b", line)]
    (tmp_path / "kernel.s").write_text("\n".join(bare) + "\n")
    code, _, err = run("--break", STORE)
    assert (code, "no line numbers" in err) == (2, True)
    code, out, _ = run("--break", STORE, "--lines", str(with_lines))
    assert code == 0
    assert "source.py:12" in out
    with_lines.write_text(made.asm.replace("s_endpgm", "s_nop 0\n\ts_endpgm", 1))
    code, _, err = run("--break", STORE, "--lines", str(with_lines))
    assert (code, "another kernel" in err) == (4, True)


def test_listing_and_archs(made: CompiledKernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text = made.write(tmp_path)
    assert main(["show", str(text)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("kernel for gfx")
    assert "  ; source.py:12" in out
    assert re.search(r"0x[0-9a-f]{5} +\d+ +control +s_endpgm", out)
    assert "NOT KNOWN" not in out
    assert main(["list"]) == 0
    assert re.search(r"gfx908 +64", capsys.readouterr().out)
    assert main(["show", str(tmp_path / "none.s")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_the_prompt_works_with_checks_and_costs(run: Run, tmp_path: Path) -> None:
    for flag in ("--checks", "--cost"):
        code, out, err = run(flag, typed=f"step 3\nbreak {STORE} wave 1 count 1\nc\nc\n", debug=True)
        assert (code, right(tmp_path)) == (0, True), err
        assert "breakpoint 1, hit 1: workgroup (0, 0, 0), wave 1" in out
    assert "decided by" in out


def test_checks_find_a_missing_wait(run: Run, made: CompiledKernel, tmp_path: Path) -> None:
    code, out, err = run("--checks")
    assert (code, right(tmp_path)) == (0, True), err
    assert "wave-instructions in 2 workgroups" in out
    waits = re.compile(r"\ts_waitcnt vmcnt\(\d\)[^\n]*\n")
    assert waits.search(made.asm)
    altered, arch = waits.sub("", made.asm), "gfx908" if "gfx908" in made.asm else "gfx1100"
    (tmp_path / "kernel.s").write_text(altered)
    (tmp_path / "kernel.hsaco").write_bytes(link(assemble(altered, arch)))
    assert run()[0] == 0  # loads complete at once here, so nothing shows
    assert run("--checks", "barriers")[0] == 0
    code, _, err = run("--checks", "waits,races")
    assert code == 1
    assert re.search(r"waited for.*source\.py:9", err, re.DOTALL), err


def test_the_example_of_the_documentation_works_as_it_is(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "virtual-gpu-tools.md").read_text()
    script = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "example.py").write_text(script)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_DISABLE_LINE_INFO"}
    (tmp_path / "dev").symlink_to(PROJECT / "dev")
    done = subprocess.run(
        ["/bin/sh", "-ec", commands],
        cwd=tmp_path,
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "dynamic LDS: 16" in done.stdout
    assert "breakpoint 1, hit 1: workgroup (1, 0, 0), wave 0" in done.stdout
    assert "example.py:13" in done.stdout
    assert done.stdout.count("step: workgroup (0, 0, 0), wave 0") == 1
    assert "error:" not in done.stdout + done.stderr
    assert re.search(r"\[ *65408\. +184342\. *\]", done.stdout), done.stdout[-200:]
