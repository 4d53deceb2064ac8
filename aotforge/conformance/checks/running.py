"""Checks that run the release's library on a stand-in for HIP: drop-in, and attention with each pack."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.html import render
from aotforge.conformance.checks.calls import compile_calls, make_program, rows_with_calls
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.compilers import tree_digest
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.conformance.matrix_models import Row
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.pack.reader import OpenPack, open_pack
from aotforge.plan.model import ServedGate

_SECONDS = 60
_HIP_FLAGS = (
    "-std=c++17 -O1 -fPIC -shared -fvisibility=hidden -DHIP_DOUBLE_MAJOR=7 -static-libstdc++ -static-libgcc "
    "-pthread -Wl,-soname,libamdhip64.so.7"
)
_NOTHING_TO_RUN = "no C++ compiler, or no image pack for AMD GPUs"


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Exit status and both outputs of a program."""

    status: int
    text: str


def _hip_double(context: CheckContext) -> Path:
    """A folder with a libamdhip64.so.7 of simulated devices. Raises ToolchainError."""
    folder = context.checkout / "runtime" / "hip_double"
    sources = sorted(folder.glob("*.cpp"))
    library = context.work / "hip-double" / "libamdhip64.so.7"
    with context.lock:
        if not library.exists():  # once per run of the checks
            done = context.compilations.compile(
                context.compilers[-1],
                "".join(f'#include "{path.name}"\n' for path in sources),
                inputs=[tree_digest(folder)],
                files=[(path.name, path.read_text()) for path in (*sorted(folder.glob("*.h")), *sources)],
                flags=_HIP_FLAGS.split(),
            )
            if done.program is None:
                raise ToolchainError("the stand-in for HIP does not compile", cause=done.output[-400:])
            library.parent.mkdir(exist_ok=True)
            shutil.copy2(done.program, library)
    return library.parent


def run(
    context: CheckContext, program: Path, library: Path, *words: str, arch: str, images: Path | None = None
) -> RunResult:
    """Runs `program` with the folder `library` on the loader's path and simulated devices of one arch."""
    environment = {
        "LD_LIBRARY_PATH": f"{library}:{_hip_double(context)}",
        "HIP_DOUBLE_DEVICES": f"{arch}@120",
        "AOTRITON_LOG": "error",
        "AOTFORGE_PARTIAL_PACK": "1",
    }
    if images is not None:
        environment["AOTRITON_IMAGES_DIR"] = str(images)
    folders = [context.work, program.parent]
    done = context.programs.run(
        [str(program), *words], environment=environment, readable=folders, seconds=_SECONDS
    )
    if done.status is None:
        return RunResult(status=-1, text=f"it ran for more than {_SECONDS} s")
    return RunResult(status=done.status, text=(done.stdout + done.stderr).strip())


def _hip_packs(context: CheckContext) -> dict[str, Path]:
    """Packs that AOTriton's interface serves: its streams are HIP's."""
    return {name: folder for name, folder in context.candidate.packs().items() if name.startswith("amd-")}


def check_dropin(context: CheckContext) -> list[Finding]:
    """Programs that need the library by each older name start with the release, and find its images."""
    if not context.compilers or not _hip_packs(context):
        what = "programs built with an older point release run with this one"
        return [not_run("drop-in", what, _NOTHING_TO_RUN)]
    links = [(row, name) for row in rows_with_calls(context) for name in context.compat.service(row).links]
    return [_dropin(context, row, name) for row, name in links]


def _dropin(context: CheckContext, row: Row, name: str) -> Finding:
    what = f"a program that needs {name} runs with the release instead"
    program = make_program(context.compat.calls, row.calls or "")
    built = compile_calls(context, program, context.compilers[-1], "17")
    if built.program is None:
        return failed("drop-in", what, "its calls do not compile", row=row.name)
    data, soname = built.program.read_bytes(), context.compat.names[0].encode()
    # the linker wrote this release's SONAME; an older PyTorch contains the older name there
    if soname not in data or len(name) != len(soname):
        return failed("drop-in", what, f"the program does not need {context.compat.names[0]}", row=row.name)
    folder = Path(tempfile.mkdtemp(prefix="dropin-", dir=context.work))
    linked, lib = folder / "program", folder / "lib"
    linked.write_bytes(data.replace(soname, name.encode()))
    linked.chmod(0o755)
    # as in torch/lib: a link of that name only, images next to it
    pack, images = next(iter(_hip_packs(context).items()))
    (lib / "aotriton.images").mkdir(parents=True)
    (lib / name).symlink_to(context.library)
    (lib / "aotriton.images" / pack).symlink_to(images)
    arch = open_pack(images).signature.archs[0]
    result = run(context, linked, lib, arch=arch)
    violations = [] if result.status == 0 else [f"it exits with {result.status}: {result.text[-200:]}"]
    evidence = f"check_gpu on {arch}, {pack} next to the link"
    return finding_from("drop-in", what, violations, evidence, row=row.name)


def check_serving(context: CheckContext) -> list[Finding]:
    """Each pack serves attention on its archs; params of another version are refused."""
    packs = _hip_packs(context)
    if not context.compilers or not packs:
        return [not_run("serving", "every image pack is used for attention", _NOTHING_TO_RUN)]
    source, compiler = render("attention_probe.cpp.jinja"), context.compilers[-1]
    built = context.compile(compiler, source, flags=["-std=c++17"])
    if built.program is None:
        return [failed("serving", "the program that calls attention compiles", built.output[-200:])]
    opened = map(open_pack, packs.values())
    return [_serves(context, built.program, pack, arch) for pack in opened for arch in pack.signature.archs]


def _serves(context: CheckContext, program: Path, pack: OpenPack, arch: str) -> Finding:
    dtype, head_dim = plain_call(pack, arch)
    images = context.candidate.packs()[pack.name].parent
    result = run(context, program, context.prefix / "lib", dtype, head_dim, arch=arch, images=images)
    wanted = ("check_gpu 0", "attn_fwd 0", f"version {context.compat.interface.errors['bad_version']}")
    lines, level = result.text.splitlines(), context.compat.level
    violations = [f"{text!r} is not printed: {result.text[:300]}" for text in wanted if text not in lines]
    complete = ServedGate(gate=level, arch=arch) in pack.dispatch.gates
    gate = f"{'serves' if complete else 'does not serve'} all of PyTorch's gate of {level}"
    evidence = f"check_gpu, attn_fwd of DType {dtype}, head_dim {head_dim}; {gate}"
    what = f"{pack.name} serves {arch}; params of another version are refused"
    return finding_from("serving", what, violations, evidence)


def plain_call(pack: OpenPack, arch: str) -> tuple[str, str]:
    """DType and head_dim of a forward pass without mask that the pack serves. Raises ReleaseError."""
    for kernel in pack.dispatch.kernels:
        if (kernel.operator, kernel.step) == ("attn_fwd", 0):
            for functional in kernel.functionals:
                call = dict(zip(kernel.keys, functional.key, strict=True))
                if functional.arch == arch and not (call.get("mask") or call.get("dropout")):
                    return str(call.get("dtype", 2)), str(call.get("width", 64))
    raise ReleaseError(f"the pack serves no forward pass without a mask on {arch}")
