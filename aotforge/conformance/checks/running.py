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

from aotforge.conformance.checks.calls import compile_calls, served_rows
from aotforge.conformance.checks.context import CheckContext, Group, single
from aotforge.conformance.compilers import Compiler, tree_digest
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.conformance.matrix_models import Row
from aotforge.conformance.programs import make_program
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.pack.dispatch import encode_dispatch
from aotforge.pack.model import FORMAT, DispatchTable
from aotforge.pack.reader import OpenPack, open_pack
from aotforge.rules import Operator, Value

_SECONDS = 60
_FORMAT_AT = 8
_OTHER_FORMAT, _OTHER_INTERFACE = 218, 300
"""hipErrorInvalidKernelFile and hipErrorInvalidSource: docs/runtime.md."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Exit status and both outputs."""

    status: int
    text: str


def hip_double(context: CheckContext, compiler: Compiler) -> Path:
    """A folder with a libamdhip64.so.7 that plays devices, compiled from the checkout. Raises ToolchainError."""
    sources = context.checkout / "runtime" / "hip_double"
    texts = [(path.name, path.read_text()) for path in sorted(sources.glob("*.h"))]
    unity = "".join(f'#include "{path.name}"\n' for path in sorted(sources.glob("*.cpp")))
    texts += [(path.name, path.read_text()) for path in sorted(sources.glob("*.cpp"))]
    done = context.compilations.compile(
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
    folder = Path(tempfile.mkdtemp(prefix="hip-", dir=context.work))
    shutil.copy2(done.program, folder / "libamdhip64.so.7")
    return folder


def run(
    context: CheckContext,
    program: Path,
    library: Path,
    images: Path | None,
    *,
    arch: str,
    words: tuple[str, ...] = (),
) -> RunResult:
    """`program` with the folder `library` on the loader's path and devices of one chip."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AOTRITON", "HIP_DOUBLE", "LD_"))
    }
    double = _double(context)
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
        return RunResult(status=-1, text=f"ran for more than {_SECONDS} s")
    return RunResult(status=done.returncode, text=(done.stdout + done.stderr).strip())


def _double(context: CheckContext) -> Path:
    """Once per run of the checks."""
    marker = context.work / "hip-double"
    with context.lock:
        if not marker.exists():
            marker.symlink_to(hip_double(context, context.compilers[-1]))
    return marker


def dropin_group(context: CheckContext) -> Group:
    """Programs that need the library by each older name start with the release dropped in, and find images beside the link."""
    if not context.compilers or not context.candidate.packs():
        what = "programs built with an older point release run with this one"
        return single("drop-in", lambda: [not_run("drop-in", what, "no C++ compiler, or no image pack")])
    parts: list[Callable[[], list[Finding]]] = [
        partial(_dropin, context, row, name)
        for row in served_rows(context)
        for name in context.compat.service(row).links
    ]
    return Group(
        name="drop-in",
        parts=parts,
        finish=lambda results: [finding for found in results for finding in found],
    )


def _dropin(context: CheckContext, row: Row, name: str) -> list[Finding]:
    what = f"a program that needs {name} runs with the release in its place"
    compiler = context.compilers[-1]
    if not row.calls:
        return []
    program = make_program(context.compat.calls, row.calls)
    built = compile_calls(context, program, compiler, "17")
    if built.program is None:
        return [failed("drop-in", what, "its calls do not compile", row=row.name)]
    folder = Path(tempfile.mkdtemp(prefix="dropin-", dir=context.work))
    linked = folder / "program"
    data = built.program.read_bytes()
    soname = context.compat.names[0].encode()
    # what the linker wrote is the SONAME of the library that it met; an older PyTorch has the older name there
    if soname not in data or len(name) != len(soname):
        return [failed("drop-in", what, f"the program does not need {context.compat.names[0]}", row=row.name)]
    linked.write_bytes(data.replace(soname, name.encode()))
    linked.chmod(0o755)
    lib = folder / "lib"
    lib.mkdir()
    # as in torch/lib: a link of that name only, images beside it
    (lib / name).symlink_to(context.library)
    pack, images = next(iter(context.candidate.packs().items()))
    (lib / "aotriton.images").mkdir()
    (lib / "aotriton.images" / pack).symlink_to(images)
    arch = open_pack(images).signature.archs[0]
    ran = run(context, linked, lib, None, arch=arch)
    wrong = [] if ran.status == 0 else [f"it ends with {ran.status}: {ran.text[-200:]}"]
    return [
        finding_from("drop-in", what, wrong, f"check_gpu on {arch}, {pack} beside the link", row=row.name)
    ]


ASK = """#include <aotriton/flash.h>
#include <array>
#include <cstdio>
#include <cstdlib>
using namespace aotriton;
int main(int, char** words) {
  const DType dtype = static_cast<DType>(std::atoi(words[1]));
  const uint64_t dim = static_cast<uint64_t>(std::atoi(words[2]));
  const Stream stream(nullptr);
  std::printf("check_gpu %d\\n", static_cast<int>(v2::flash::check_gpu(stream)));
  const std::array<uint64_t, 4> sizes{1, 2, 64, dim}, strides{128 * dim, 64 * dim, dim, 1};
  const TensorView<4> t(static_cast<intptr_t>(65536), sizes, strides, dtype);
  v3::flash::attn_fwd_params p;
  p.Q = p.K = p.V = p.Out = t;
  p.L = TensorView<2>(static_cast<intptr_t>(65536), {2, 64}, {64, 1}, DType::kFloat32);
  p.Sm_scale = 0.125f;
  std::printf("attn_fwd %d\\n", static_cast<int>(v3::flash::attn_fwd(p, p.kVersion, stream)));
  std::printf("version %d\\n", static_cast<int>(v3::flash::attn_fwd(p, p.kVersion + 1, stream)));
}
"""
"""Asks for a GPU, for attention without a mask (words: DType, head_dim), and with params of another version."""


def refusal_group(context: CheckContext) -> Group:
    """Per image pack: as it is it serves; of another format or operator interface it is refused, and both are named."""
    packs = context.candidate.packs()
    if not context.compilers or not packs:
        what = "images of another format or operator interface are refused"
        return single("refusal", lambda: [not_run("refusal", what, "no C++ compiler, or no image pack")])
    parts: list[Callable[[], list[Finding]]] = [
        partial(_refusals, context, pack, folder) for pack, folder in packs.items()
    ]
    return Group(
        name="refusal",
        parts=parts,
        finish=lambda results: [finding for found in results for finding in found],
    )


@dataclass(frozen=True, kw_only=True)
class PackProbe:
    """A pack, and the program that asks the library for attention with it."""

    context: CheckContext
    program: Path
    pack: str
    folder: Path
    opened: OpenPack

    def ask(self, arch: str, alter: Callable[[bytes], bytes] | None = None) -> RunResult:
        """With the pack as it is, or with other dispatch data."""
        images = Path(tempfile.mkdtemp(prefix="images-", dir=self.context.work))
        shutil.copytree(self.folder, images / self.pack)
        if alter:
            path = images / self.pack / "dispatch.aotd"
            path.write_bytes(alter(path.read_bytes()))
        call = _plain_call(self.opened.dispatch, arch)
        library = self.context.prefix / "lib"
        return run(self.context, self.program, library, images, arch=arch, words=call)


def _plain_call(table: DispatchTable, arch: str) -> tuple[str, str]:
    """DType and head_dim of a forward pass without mask that the pack serves."""
    for kernel in table.kernels:
        if (kernel.operator, kernel.step) == ("attn_fwd", 0):
            calls = [
                dict(zip(kernel.keys, found.key, strict=True))
                for found in kernel.functionals
                if found.arch == arch
            ]
            plain = [call for call in calls if not any(call.get(key) for key in _EXTRAS)]
            if plain:
                return str(plain[0].get("dtype", 2)), str(plain[0].get("head_dim", 64))
    raise ReleaseError(f"the pack serves no forward pass without a mask on {arch}")


_EXTRAS = ("causal", "bias_type", "dropout", "varlen_type")


def _refusals(context: CheckContext, pack: str, folder: Path) -> list[Finding]:
    standin = [context.standin.include] if context.standin.include else []
    built = context.compilations.compile(
        context.compilers[-1],
        ASK,
        includes=[context.prefix / "include", *standin],
        inputs=[context.headers, context.standin.digest],
        flags=["-std=c++17"],
        objects=[context.library],
    )
    if built.program is None:
        what = f"{pack} is asked for attention"
        return [failed("refusal", what, f"the program does not compile: {built.output[-200:]}")]
    opened = open_pack(folder)
    asked = PackProbe(context=context, program=built.program, pack=pack, folder=folder, opened=opened)
    arch = opened.signature.archs[0]
    return [
        *(_serves(asked, one) for one in opened.signature.archs),
        _other_format(asked, arch),
        _another_interface(asked, arch),
    ]


def _serves(asked: PackProbe, arch: str) -> Finding:
    bad_version = asked.context.compat.interface.errors["bad_version"]
    ran = asked.ask(arch)
    lines = ran.text.splitlines()
    wanted = ("check_gpu 0", "attn_fwd 0", f"version {bad_version}")
    wrong = [f"{text!r} is not said: {ran.text[:300]}" for text in wanted if text not in lines]
    what = f"{asked.pack} serves {arch}; params of another version are refused"
    dtype, head_dim = _plain_call(asked.opened.dispatch, arch)
    return finding_from("refusal", what, wrong, f"check_gpu, attn_fwd of DType {dtype}, head_dim {head_dim}")


def _other_format(asked: PackProbe, arch: str) -> Finding:
    def alter(data: bytes) -> bytes:
        return data[:_FORMAT_AT] + (FORMAT + 1).to_bytes(4, "little") + data[_FORMAT_AT + 4 :]

    ran = asked.ask(arch, alter)
    wrong = _unsaid(ran, _OTHER_FORMAT, (f"format {FORMAT + 1}", f"format {FORMAT}"))
    what = f"{asked.pack} in format {FORMAT + 1} is refused, both formats named"
    return finding_from("refusal", what, wrong, _logged(ran))


def _another_interface(asked: PackProbe, arch: str) -> Finding:
    ours = asked.opened.dispatch
    table = _other_interface(ours)
    ran = asked.ask(arch, lambda _: encode_dispatch(table, file="dispatch.aotd"))
    names = (_served(table).interface_hash(), _served(ours).interface_hash())
    what = f"{asked.pack} of another operator interface is refused, both named"
    return finding_from("refusal", what, _unsaid(ran, _OTHER_INTERFACE, names), _logged(ran))


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


def _unsaid(ran: RunResult, code: int, names: tuple[str, ...]) -> list[str]:
    wrong = (
        []
        if f"attn_fwd {code}" in ran.text.splitlines()
        else [f"attn_fwd does not return {code}: {ran.text[:200]}"]
    )
    return wrong + [f"{name} is not named: {_logged(ran)}" for name in names if name not in ran.text]


def _logged(ran: RunResult) -> str:
    lines = [line for line in ran.text.splitlines() if line.startswith("aotriton:")]
    return lines[0].rpartition("/")[2] if lines else "nothing is logged"
