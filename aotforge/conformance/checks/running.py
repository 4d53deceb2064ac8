"""Checks that run the release's library on a stand-in for HIP: drop-in and refusal of packs."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aotforge.base.html import render
from aotforge.conformance.checks.calls import compile_calls, make_program, rows_with_calls
from aotforge.conformance.checks.context import CheckContext, Group
from aotforge.conformance.compilers import tree_digest
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.conformance.matrix_models import Row
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.pack.dispatch import encode_dispatch
from aotforge.pack.model import FORMAT
from aotforge.pack.reader import OpenPack, open_pack
from aotforge.plan.model import ServedGate
from aotforge.rules import Value

_SECONDS = 60
_FORMAT_AT = 8
_OTHER_FORMAT, _OTHER_INTERFACE = 218, 300
"""hipErrorInvalidKernelFile and hipErrorInvalidSource: docs/runtime.md."""

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

    @property
    def logged(self) -> str:
        """The library's first log line, without the path in it."""
        lines = [line for line in self.text.splitlines() if line.startswith("aotriton:")]
        return lines[0].rpartition("/")[2] if lines else "nothing is logged"


def _hip_double(context: CheckContext) -> Path:
    """A folder with a libamdhip64.so.7 of simulated devices, compiled from the checkout. Raises ToolchainError."""
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


def dropin_group(context: CheckContext) -> Group:
    """Programs that need the library by each older name start with the release, and find images next to the link."""
    if not context.compilers or not _hip_packs(context):
        what = "programs built with an older point release run with this one"
        return Group("drop-in", [lambda: [not_run("drop-in", what, _NOTHING_TO_RUN)]])
    links = [(row, name) for row in rows_with_calls(context) for name in context.compat.service(row).links]
    return Group("drop-in", [partial(_dropin, context, row, name) for row, name in links])


def _dropin(context: CheckContext, row: Row, name: str) -> list[Finding]:
    what = f"a program that needs {name} runs with the release instead"
    if not row.calls:
        return []
    program = make_program(context.compat.calls, row.calls)
    built = compile_calls(context, program, context.compilers[-1], "17")
    if built.program is None:
        return [failed("drop-in", what, "its calls do not compile", row=row.name)]
    data, soname = built.program.read_bytes(), context.compat.names[0].encode()
    # the linker wrote this release's SONAME; an older PyTorch contains the older name there
    if soname not in data or len(name) != len(soname):
        return [failed("drop-in", what, f"the program does not need {context.compat.names[0]}", row=row.name)]
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
    return [
        finding_from(
            "drop-in", what, violations, f"check_gpu on {arch}, {pack} next to the link", row=row.name
        )
    ]


def refusal_group(context: CheckContext) -> Group:
    """Per image pack: it is served; with another format or operator interface it is refused, and the log names both."""
    packs = _hip_packs(context)
    if not context.compilers or not packs:
        what = "images of another format or operator interface are refused"
        return Group("refusal", [lambda: [not_run("refusal", what, _NOTHING_TO_RUN)]])
    return Group("refusal", [partial(_refusals, context, folder) for folder in packs.values()])


@dataclass(frozen=True, kw_only=True)
class PackProbe:
    """An image pack, and the program that calls the library's attention with it."""

    context: CheckContext
    program: Path
    folder: Path
    opened: OpenPack

    def run(self, arch: str, alter: Callable[[bytes], bytes] | None = None) -> RunResult:
        """Runs with the pack, or with a copy whose dispatch data are altered."""
        call = partial(
            run, self.context, self.program, self.context.prefix / "lib", *self.plain_call(arch), arch=arch
        )
        if not alter:
            return call(images=self.folder.parent)
        with tempfile.TemporaryDirectory(prefix="images-", dir=self.context.work) as images:
            copy = shutil.copytree(self.folder, Path(images, self.opened.name))
            path = copy / "dispatch.aotd"
            path.write_bytes(alter(path.read_bytes()))
            return call(images=Path(images))

    def plain_call(self, arch: str) -> tuple[str, str]:
        """DType and head_dim of a forward pass without mask that the pack serves. Raises ReleaseError."""
        options = ("mask", "dropout")
        for kernel in self.opened.dispatch.kernels:
            if (kernel.operator, kernel.step) == ("attn_fwd", 0):
                for functional in kernel.functionals:
                    call = dict(zip(kernel.keys, functional.key, strict=True))
                    if functional.arch == arch and not any(call.get(key) for key in options):
                        return str(call.get("dtype", 2)), str(call.get("width", 64))
        raise ReleaseError(f"the pack serves no forward pass without a mask on {arch}")

    def refusal(
        self, what: str, code: int, names: tuple[str, ...], alter: Callable[[bytes], bytes]
    ) -> Finding:
        """The altered pack makes attn_fwd return `code`, and the log has the `names`."""
        result = self.run(self.opened.signature.archs[0], alter)
        returned = f"attn_fwd {code}" in result.text.splitlines()
        violations = [] if returned else [f"attn_fwd does not return {code}: {result.text[:200]}"]
        violations += [f"{name} is not named: {result.logged}" for name in names if name not in result.text]
        return finding_from("refusal", f"{self.opened.name} {what}", violations, result.logged)


def _refusals(context: CheckContext, folder: Path) -> list[Finding]:
    built = context.compile(context.compilers[-1], render("attention_probe.cpp.jinja"), flags=["-std=c++17"])
    if built.program is None:
        what = f"{folder.name} is used for attention"
        return [failed("refusal", what, f"the program does not compile: {built.output[-200:]}")]
    opened = open_pack(folder)
    probe = PackProbe(context=context, program=built.program, folder=folder, opened=opened)
    return [
        *(_serves(probe, arch) for arch in opened.signature.archs),
        _other_format(probe),
        _other_interface(probe),
    ]


def _serves(probe: PackProbe, arch: str) -> Finding:
    bad_version = probe.context.compat.interface.errors["bad_version"]
    result = probe.run(arch)
    wanted = ("check_gpu 0", "attn_fwd 0", f"version {bad_version}")
    lines = result.text.splitlines()
    violations = [f"{text!r} is not printed: {result.text[:300]}" for text in wanted if text not in lines]
    what = f"{probe.opened.name} serves {arch}; params of another version are refused"
    dtype, head_dim = probe.plain_call(arch)
    level = probe.context.compat.level
    complete = ServedGate(gate=level, arch=arch) in probe.opened.dispatch.gates
    gate = "serves" if complete else "does not serve"
    evidence = (
        f"check_gpu, attn_fwd of DType {dtype}, head_dim {head_dim}; {gate} all of PyTorch's gate of {level}"
    )
    return finding_from("refusal", what, violations, evidence)


def _other_format(probe: PackProbe) -> Finding:
    def alter(data: bytes) -> bytes:
        return data[:_FORMAT_AT] + (FORMAT + 1).to_bytes(4, "little") + data[_FORMAT_AT + 4 :]

    names = (f"format {FORMAT + 1}", f"format {FORMAT}")
    return probe.refusal(
        f"in format {FORMAT + 1} is refused, both formats named", _OTHER_FORMAT, names, alter
    )


def _other_interface(probe: PackProbe) -> Finding:
    ours = probe.opened.dispatch
    operators = {operator.name: operator for operator in ours.operators}
    before = operators["attn_fwd"]
    after = replace(before, values=(*before.values, Value(name="aotforge_check", type="i32")))
    table = replace(ours, operators=tuple((operators | {"attn_fwd": after}).values()))
    return probe.refusal(
        "of another operator interface is refused, both named",
        _OTHER_INTERFACE,
        (after.interface_hash(), before.interface_hash()),
        lambda _: encode_dispatch(table, file="dispatch.aotd"),
    )
