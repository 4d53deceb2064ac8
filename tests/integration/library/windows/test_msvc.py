"""Programs as MSVC builds them: names, layouts and arguments. Microsoft's own compiler and linker are not
available."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aotforge.formats.pe import exports, imports
from aotforge.library.build_windows import ALLOWED_IMPORTS, exported_names, exports_file
from kernels.flash.operators import ATTN_BWD, ATTN_FWD
from tests.support import abi
from tests.support.attention import FP16, FP32, Problem, Tensor, decode, spy_pack
from tests.support.runtime import ROOT, build_objects
from tests.support.small_pack import write
from tests.support.windows import (
    MSVC,
    WindowsObjects,
    compile_msvc,
    events,
    linux_run,
    missing_mingw,
    missing_msvc_tools,
    msvc_client,
    run,
)
from tests.support.windows_exports import exports_def
from tests.support.wine import Wine

pytestmark = pytest.mark.skipif(
    bool(missing_mingw() or missing_msvc_tools()), reason=missing_mingw() or missing_msvc_tools()
)
LEVEL = "0.11"


@pytest.mark.parametrize("level", ["0.11", "0.12", "0.13", "0.14"])
def test_the_export_table_matches_the_compiler(level: str) -> None:
    """Drift between the interface's facts, the headers and the committed table."""
    assert (ROOT / exports_file(level)).read_text() == exports_def(ROOT, level)


def test_exports_and_imports(windows: WindowsObjects) -> None:
    data = windows.library.read_bytes()
    found = [entry.name or "" for entry in exports(data)]
    assert set(imports(data)) <= ALLOWED_IMPORTS
    assert set(found) == exported_names(ROOT, LEVEL) and len(found) == len(set(found))
    assert not any(entry.data or entry.forward for entry in exports(data))
    plain = {name for name in found if not name.startswith("?")}
    assert demangled(plain) == demangled(abi.defined_symbols(build_objects().library))
    aliases = set(found) - plain
    functions = [name for space in abi.facts()["levels"][LEVEL]["functions"].values() for name in space]
    assert len(aliases) == len(functions) + 2
    assert not any(
        name.startswith(("??0?$TensorView", "??B?$TensorView"))
        or name.partition("@")[2].startswith("?$TensorView@")
        for name in aliases
    )


CL = ("clang-19", "--driver-mode=cl", "--target=x86_64-pc-windows-msvc", "/X", "/W4", "/WX", "/GR-", "/Zs")
"""Its compiler's command line, without a search for headers of Microsoft's."""
LEVELS = {"0.11": "0.11.2", "0.12": "0.12.1", "0.13": "0.13.0", "0.14": "0.14.2"}
HEADERS = sorted(
    str(path.relative_to(ROOT / "runtime" / "include")).removesuffix(".in")
    for path in (ROOT / "runtime" / "include").rglob("*.h*")
    if path.name != "tensor.h"  # not installed
)


@pytest.mark.parametrize("standard", ["c++17", "c++20", "c++latest"])
@pytest.mark.parametrize("level", LEVELS)
def test_every_header_compiles_alone_as_msvc_compiles(level: str, standard: str, tmp_path: Path) -> None:
    """With the stand-ins for Microsoft's headers and HIP's, of which a header must include what it needs
    itself."""
    config = (ROOT / "runtime" / "include" / "aotriton" / "config.h.in").read_text()
    for part, number in zip(("MAJOR", "MINOR", "PATCH"), LEVELS[level].split("."), strict=True):
        config = config.replace(f"@AOTRITON_VERSION_{part}@", number)
    (tmp_path / "aotriton").mkdir()
    (tmp_path / "aotriton" / "config.h").write_text(config)
    folders = [tmp_path, ROOT / "runtime" / "include", MSVC / "include", ROOT / "runtime" / "src" / "standin"]
    words = [*CL, f"/std:{standard}", *(f"/I{folder}" for folder in folders)]
    headers = [one for one in HEADERS if level in ("0.11", "0.12") or "/v2/" not in one]
    for header in headers:
        source = tmp_path / f"{header.replace('/', '_')}.cpp"
        source.write_text(f"#include <{header}>\n#include <{header}>\n")
        done = subprocess.run([*words, str(source)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), header
    assert {"aotriton/flash.h", "aotriton/config.h", "aotforge/launch.h"} <= set(headers)


def demangled(names: Iterable[str]) -> list[str]:
    """Declarations, with 64-bit integers spelt as on Linux: there they are long, on Windows long long."""
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return sorted(line.replace("long long", "long").replace("ull", "ul") for line in done.stdout.splitlines())


def test_layouts_are_linux_layouts(windows: WindowsObjects, tmp_path: Path) -> None:
    """Every size and offset that a Linux program sees, asserted by a compiler for MSVC."""
    (tmp_path / "hip").mkdir()
    (tmp_path / "hip" / "hip_runtime.h").write_text(abi.HIP)
    program = abi.layout(abi.interface(), LEVEL, "<aotriton/flash.h>")
    includes = [windows.runtime.prefix / "include", tmp_path]
    done = abi.compile_program(program, tmp_path, includes, flags=["-c", "-o", "layout.o"])
    assert done.returncode == 0, done.stderr
    subprocess.run(["g++", "layout.o", "-o", "layout"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout
    checks = []
    for line in printed.splitlines():
        name, *numbers = line.rsplit(" ", 2) if "." in line else line.rsplit(" ", 1)
        if "." in name:
            struct, field = name.rsplit(".", 1)
            checks += [f"static_assert(offsetof({struct}, {field}) == {numbers[0]});"]
            checks += [f"static_assert(sizeof({struct}::{field}) == {numbers[1]});"]
        elif "<" in name or name.endswith(("params", "options")):
            checks += [f"static_assert(sizeof({name}) == {numbers[0]});"]
        else:
            checks += [f"static_assert({name} == {numbers[0]});"]
    assert len(checks) > 100
    source = "#include <aotriton/flash.h>\n#include <cstddef>\nusing namespace aotriton;\n" + "\n".join(
        checks
    )
    compile_msvc(windows, source, tmp_path, name="layouts")


PHILOX = {"dropout_p": 0.25, "philox_seed": 0x1B0000, "philox_offset1": 0x1C0000, "philox_offset2": 77}
WINDOW = {"causal_type": 3, "window_left": 48, "window_right": -3}
DELTA = Tensor(0x190000, (8, 48), FP32)
ACCUMULATOR = Tensor(0x1A0000, (2, 4, 48, 64), FP32)


def packed(base: int, heads: int) -> Tensor:
    return Tensor(base, (1, heads, 48, 64), FP16)


LENGTHS = Tensor(0x1D0000, (4,), 12)
VARLEN: dict[str, Any] = {
    "Q": packed(0x100000, 4),
    "K": packed(0x110000, 2),
    "V": packed(0x120000, 2),
    "Out": packed(0x130000, 4),
}
VARLEN |= {"L": Tensor(0x140000, (12, 20), FP32), "max_seqlen_q": 20, "max_seqlen_k": 30}
VARLEN |= {"cu_seqlens_q": LENGTHS, "cu_seqlens_k": LENGTHS}
BACKWARD: dict[str, Any] = {
    "DO": packed(0x150000, 4),
    "DQ": packed(0x160000, 4),
    "DK": packed(0x170000, 2),
    "DV": packed(0x180000, 2),
}
BACKWARD |= {"D": Tensor(0x190000, (12, 20), FP32), "DQ_ACC": None}
CAUSAL = {"is_causal": 1}
# what the client calls, as lines for the driver
CALLS = (
    ("fwd", {**PHILOX, **WINDOW}),
    ("bwd", {**PHILOX, **WINDOW, "D": DELTA, "DQ_ACC": ACCUMULATOR}),
    ("v2fwd", {**PHILOX, **CAUSAL}),
    ("v2bwd", {**PHILOX, **CAUSAL, "D": DELTA, "DQ_ACC": None}),
    ("v2varfwd", VARLEN),
    ("v2varbwd", {**VARLEN, **BACKWARD}),
)
RESULTS = """\
check 0
arch 2312
experimental 0
cus 120
launch 801
v3 fwd 0
v3 version 13
v3 bwd 0
v3 aiter 801
v2 fwd 0
v2 bwd 0
v2 fused 801
v2 var fwd 0
v2 var bwd 0
softmax 801
"""


@pytest.mark.parametrize("accumulates", [False, True])
def test_every_entry_point_gets_its_arguments(
    wine: Wine, windows: WindowsObjects, tmp_path: Path, accumulates: bool
) -> None:
    """80-byte tensors by value, structs by reference, callbacks that return tensors: the values of the Linux
    library, to the bit.

    Kernels that want an accumulator show the second callback; version 2 cannot give them one.
    """
    folder = windows.place(tmp_path / "client")
    shutil.copy(msvc_client(windows, tmp_path), folder)
    options = {"dropout": (0, 1), "varlen_type": (0, 1)}
    pack = spy_pack(options=options, backward_without=()) if accumulates else spy_pack(options=options)
    write(pack, folder / "aotriton.images" / "amd-gfx908")
    done = run(wine, folder / "client.exe", hip=windows.hip(7))
    assert done.returncode == 0, (done.stdout, done.stderr)
    printed = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    lazy = [line for line in printed if line.split()[0] in ("acquire", "dispose")]
    wanted_lazy = ["D", "DQ_ACC"] if accumulates else ["D"]
    assert sorted(lazy) == sorted(f"{verb} {name}" for verb in ("acquire", "dispose") for name in wanted_lazy)
    results = (
        RESULTS.replace("bwd 0", "bwd 801").replace("v3 bwd 801", "v3 bwd 0") if accumulates else RESULTS
    )
    assert [line for line in printed if line not in lazy] == results.splitlines()
    calls = [call for call in CALLS if not (accumulates and call[0] in ("v2bwd", "v2varbwd"))]
    lines = [Problem(extra=fields).line(verb) for verb, fields in calls]
    linux = build_objects()
    images = {"AOTRITON_IMAGES_DIR": str(folder / "aotriton.images")}
    theirs = launches(linux_run(linux.program("driver"), linux.hip(7), [*lines, "record"], images))
    ours = launches(done.stdout)
    assert len(ours) == len(theirs) == len(calls)
    for (verb, _), got, wanted in zip(calls, ours, theirs, strict=True):
        op, without = (ATTN_BWD if "bwd" in verb else ATTN_FWD), (("nothing",) if accumulates else ())
        expected, values = decode(wanted, op, without), decode(got, op, without)
        if verb.startswith("v2"):
            expected["philox_offset2"] = 77  # the driver always passes 0
        assert values == expected, {
            key: (values[key], expected[key]) for key in values if values[key] != expected[key]
        }
        for field in ("kernel", "image", "grid", "block", "dynamic_lds"):
            assert got[field] == wanted[field]


def launches(text: str) -> list[dict[str, Any]]:
    return [event for event in events(text) if event["event"] == "launch"]
