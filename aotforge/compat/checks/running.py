"""The release's library really run, on a stand-in for HIP: served under every older name, and refusing images that it cannot read."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aotforge.compat.checks.calls import compile_calls, served_rows
from aotforge.compat.checks.values import Group, Setting, single
from aotforge.compat.compilers import Compiler, tree_digest
from aotforge.compat.findings import Finding, failed, judged, not_run
from aotforge.compat.models import Row
from aotforge.compat.programs import make_program
from aotforge.errors import ToolchainError
from aotforge.pack import open_pack
from aotforge.pack.dispatch import encode_dispatch
from aotforge.pack.values import DispatchTable
from aotforge.rules import Operator, Value

_SECONDS = 60
_FORMAT_AT = 8
_OTHER_FORMAT, _OTHER_INTERFACE = 218, 300
"""hipErrorInvalidKernelFile and hipErrorInvalidSource: docs/runtime.md."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """Exit status and both outputs."""

    status: int
    text: str


def hip_double(setting: Setting, compiler: Compiler) -> Path:
    """A folder with a libamdhip64.so.7 that plays devices, compiled from the checkout. Raises ToolchainError."""
    sources = setting.checkout / "runtime" / "hip_double"
    texts = [(path.name, path.read_text()) for path in sorted(sources.glob("*.h"))]
    unity = "".join(f'#include "{path.name}"\n' for path in sorted(sources.glob("*.cpp")))
    texts += [(path.name, path.read_text()) for path in sorted(sources.glob("*.cpp"))]
    done = setting.workshop.compile(
        compiler,
        unity,
        inputs=[tree_digest(sources)],
        files=texts,
        flags=[
            "-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-DHIP_DOUBLE_MAJOR=7",
            "-static-libstdc++", "-static-libgcc", "-pthread", "-Wl,-soname,libamdhip64.so.7",
        ],
    )  # fmt: skip
    if done.program is None:
        raise ToolchainError("the stand-in for HIP does not compile", cause=done.output[-400:])
    folder = Path(tempfile.mkdtemp(prefix="hip-", dir=setting.work))
    shutil.copy2(done.program, folder / "libamdhip64.so.7")
    return folder


def run(
    setting: Setting,
    program: Path,
    library: Path,
    images: Path | None,
    *,
    arch: str,
    words: tuple[str, ...] = (),
) -> Ran:
    """`program` with the folder `library` on the loader's path and devices of one chip."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AOTRITON", "HIP_DOUBLE", "LD_"))
    }
    double = _double(setting)
    environment |= {
        "LD_LIBRARY_PATH": f"{library}:{double}",
        "HIP_DOUBLE_DEVICES": f"{arch}@120",
        "AOTRITON_LOG": "error",
    }
    if images is not None:
        environment["AOTRITON_IMAGES_DIR"] = str(images)
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        return Ran(status=-1, text=f"ran for more than {_SECONDS} s")
    return Ran(status=done.returncode, text=(done.stdout + done.stderr).strip())


def _double(setting: Setting) -> Path:
    """Once per run of the checks."""
    marker = setting.work / "hip-double"
    with setting.lock:
        if not marker.exists():
            marker.symlink_to(hip_double(setting, setting.compilers[-1]))
    return marker


def dropin_group(setting: Setting) -> Group:
    """Programs that need the library by each older name start with the release dropped in, and find images beside the link."""
    if not setting.compilers or not setting.candidate.packs():
        what = "programs built with an older point release run with this one"
        return single("drop-in", lambda: [not_run("drop-in", what, "no C++ compiler, or no image pack")])
    parts: list[Callable[[], list[Finding]]] = [
        partial(_dropin, setting, row, name)
        for row in served_rows(setting)
        for name in setting.compat.service(row).links
    ]
    return Group(
        name="drop-in",
        parts=parts,
        finish=lambda results: [finding for found in results for finding in found],
    )


def _dropin(setting: Setting, row: Row, name: str) -> list[Finding]:
    what = f"a program that needs {name} runs with the release in its place"
    compiler = setting.compilers[-1]
    if not row.calls:
        return []
    program = make_program(setting.compat.calls, row.calls)
    built = compile_calls(setting, program, compiler, "17")
    if built.program is None:
        return [failed("drop-in", what, "its calls do not compile", row=row.name)]
    folder = Path(tempfile.mkdtemp(prefix="dropin-", dir=setting.work))
    linked = folder / "program"
    data = built.program.read_bytes()
    soname = setting.compat.names[0].encode()
    # what the linker wrote is the SONAME of the library that it met; an older PyTorch has the older name there
    if soname not in data or len(name) != len(soname):
        return [failed("drop-in", what, f"the program does not need {setting.compat.names[0]}", row=row.name)]
    linked.write_bytes(data.replace(soname, name.encode()))
    linked.chmod(0o755)
    lib = folder / "lib"
    lib.mkdir()
    # as in torch/lib: a link of that name only, images beside it
    (lib / name).symlink_to(setting.library)
    pack, images = next(iter(setting.candidate.packs().items()))
    (lib / "aotriton.images").mkdir()
    (lib / "aotriton.images" / pack).symlink_to(images)
    arch = open_pack(images).signature.archs[0]
    ran = run(setting, linked, lib, None, arch=arch)
    wrong = [] if ran.status == 0 else [f"it ends with {ran.status}: {ran.text[-200:]}"]
    return [judged("drop-in", what, wrong, f"check_gpu on {arch}, {pack} beside the link", row=row.name)]


ASK = """#include <aotriton/flash.h>
#include <array>
#include <cstdio>
using namespace aotriton;
int main() {
  const Stream stream(nullptr);
  std::printf("check_gpu %d\\n", static_cast<int>(v2::flash::check_gpu(stream)));
  const std::array<uint64_t, 4> sizes{1, 2, 64, 64}, strides{8192, 4096, 64, 1};
  const TensorView<4> t(static_cast<intptr_t>(65536), sizes, strides, DType::kFloat16);
  v3::flash::attn_fwd_params p;
  p.Q = p.K = p.V = p.Out = t;
  p.L = TensorView<2>(static_cast<intptr_t>(65536), {2, 64}, {64, 1}, DType::kFloat32);
  p.Sm_scale = 0.125f;
  std::printf("attn_fwd %d\\n", static_cast<int>(v3::flash::attn_fwd(p, p.kVersion, stream)));
  std::printf("version %d\\n", static_cast<int>(v3::flash::attn_fwd(p, p.kVersion + 1, stream)));
}
"""
"""Asks for a GPU, for attention (fp16, head_dim 64), and with params of another version."""


def refusal_group(setting: Setting) -> Group:
    """Per image pack: as it is it serves; of another format or operator interface it is refused, and both are named."""
    packs = setting.candidate.packs()
    if not setting.compilers or not packs:
        what = "images of another format or operator interface are refused"
        return single("refusal", lambda: [not_run("refusal", what, "no C++ compiler, or no image pack")])
    parts: list[Callable[[], list[Finding]]] = [
        partial(_refusals, setting, pack, folder) for pack, folder in packs.items()
    ]
    return Group(
        name="refusal",
        parts=parts,
        finish=lambda results: [finding for found in results for finding in found],
    )


def _refusals(setting: Setting, pack: str, folder: Path) -> list[Finding]:
    standin = [setting.standin.include] if setting.standin.include else []
    asked = setting.workshop.compile(
        setting.compilers[-1],
        ASK,
        includes=[setting.prefix / "include", *standin],
        inputs=[setting.headers, setting.standin.digest],
        flags=["-std=c++17"],
        objects=[setting.library],
    )
    if asked.program is None:
        return [
            failed(
                "refusal",
                f"{pack} is asked for attention",
                f"the program does not compile: {asked.output[-200:]}",
            )
        ]
    opened = open_pack(folder)
    arch = opened.signature.archs[0]
    bad_version = setting.compat.interface.errors["bad_version"]

    def ask(alter: Callable[[bytes], bytes] | None) -> Ran:
        images = Path(tempfile.mkdtemp(prefix="images-", dir=setting.work))
        shutil.copytree(folder, images / pack)
        if alter:
            path = images / pack / "dispatch.aotd"
            path.write_bytes(alter(path.read_bytes()))
        return (
            run(setting, asked.program, setting.prefix / "lib", images, arch=arch)
            if asked.program
            else Ran(status=-1, text="")
        )

    findings = []
    whole = ask(None)
    wanted = ["check_gpu 0", "attn_fwd 0", f"version {bad_version}"]
    wrong = [
        f"{text!r} is not said: {whole.text[:300]}" for text in wanted if text not in whole.text.splitlines()
    ]
    findings.append(
        judged(
            "refusal",
            f"{pack} serves {arch}; params of another version are refused",
            wrong,
            "check_gpu and attn_fwd, fp16, head_dim 64",
        )
    )
    other = 2
    ran = ask(lambda data: data[:_FORMAT_AT] + other.to_bytes(4, "little") + data[_FORMAT_AT + 4 :])
    wrong = _unsaid(ran, _OTHER_FORMAT, ("format 2", "format 1"))
    findings.append(
        judged("refusal", f"{pack} in format {other} is refused, both formats named", wrong, _logged(ran))
    )
    table = _other_interface(opened.dispatch)
    ran = ask(lambda _: encode_dispatch(table, file="dispatch.aotd"))
    theirs = _served(table).interface_hash()
    wrong = _unsaid(ran, _OTHER_INTERFACE, (theirs, _served(opened.dispatch).interface_hash()))
    findings.append(
        judged("refusal", f"{pack} of another operator interface is refused, both named", wrong, _logged(ran))
    )
    return findings


def _served(table: DispatchTable) -> Operator:
    return next(operator for operator in table.operators if operator.name == "attn_fwd")


def _other_interface(table: DispatchTable) -> DispatchTable:
    """attn_fwd with one more value."""
    operators = tuple(
        replace(operator, values=(*operator.values, Value(name="aotforge_check", type="i32")))
        if operator.name == "attn_fwd"
        else operator
        for operator in table.operators
    )
    return replace(table, operators=operators)


def _unsaid(ran: Ran, code: int, names: tuple[str, ...]) -> list[str]:
    wrong = (
        []
        if f"attn_fwd {code}" in ran.text.splitlines()
        else [f"attn_fwd does not return {code}: {ran.text[:200]}"]
    )
    return wrong + [f"{name} is not named: {_logged(ran)}" for name in names if name not in ran.text]


def _logged(ran: Ran) -> str:
    lines = [line for line in ran.text.splitlines() if line.startswith("aotriton:")]
    return lines[0].rpartition("/")[2] if lines else "nothing is logged"
