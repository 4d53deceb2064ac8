"""Checks that calls of served PyTorch releases compile and run, and that others' do not compile.

In the programs, from `compat/pytorch_calls.yaml`, every use has a line, so that a compiler error names it.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.html import render
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.compilers import STANDARDS, WANTED, Compilation, Compiler
from aotforge.conformance.findings import Finding, failed, finding_from, not_run, passed
from aotforge.conformance.matrix_models import Calls, Row
from aotforge.errors import ReleaseError, ToolchainError
from aotforge.formats.library_alias import library_alias
from aotforge.pack.reader import OpenPack, open_pack
from aotforge.plan.model import ServedGate

NO_COMPILER = "no C++ compiler of the wanted versions"
_LISTED = 4
_VALUES = {
    "T4": "t4", "T2": "t2", "T1": "t1", "T0": "t0", "float": "1.0f", "bool": "true", "Stream": "stream",
    "int32_t": "static_cast<int32_t>(1)", "int64_t": "static_cast<int64_t>(0)",
        "uint64_t": "static_cast<uint64_t>(0)",
}  # fmt: skip
_BYTES = {
    "kUnknown": 0, "kUInt8": 1, "kInt8": 1, "kUInt16": 2, "kInt16": 2, "kFloat16": 2, "kBFloat16": 2,
        "kUInt32": 4,
    "kInt32": 4, "kFloat32": 4, "kUInt64": 8, "kInt64": 8,
}  # fmt: skip
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_UNDEFINED = re.compile(r"undefined reference to [`'](?P<symbol>.+?)'(?:$|\n)")


@dataclass(frozen=True, kw_only=True)
class Program:
    """C++ source, and the use on each line (from 1) that has one."""

    name: str
    source: str
    uses: Mapping[int, str]

    def use_at(self, line: int) -> str:
        """The use that a line belongs to: of lines without one, the last before it."""
        lines = [number for number in self.uses if number <= line]
        return self.uses[max(lines)] if lines else "the program's frame"


def make_program(calls: Calls, name: str) -> Program:
    """The program of one set; it returns 0 when `check_gpu` and the calls of inference succeed."""
    text = render("pytorch_calls.cpp.jinja", calls=calls, used=calls.sets[name], values=_VALUES, bytes=_BYTES)
    lines = [line.partition(" //@ ") for line in text.splitlines()]
    return Program(
        name=name,
        source="".join(f"{source}\n" for source, _, _ in lines),
        uses={number: use for number, (_, _, use) in enumerate(lines, 1) if use},
    )


def violations(program: Program, output: str) -> tuple[str, ...]:
    """Uses in the program itself that the compiler refuses, with its message."""
    refused = (
        f"{program.use_at(int(match['line']))}: {match['text']}"
        for match in _DIAGNOSTIC.finditer(output)
        if match["file"].endswith("program.cpp") and any(n <= int(match["line"]) for n in program.uses)
    )
    return tuple(dict.fromkeys(refused))


def explain_failure(program: Program, output: str) -> tuple[str, ...]:
    """The errors of a compiler or linker, each with the use that it concerns; at least one line."""
    missing = (f"{match['symbol']}: not in the library" for match in _UNDEFINED.finditer(output))
    explained = (*violations(program, output), *dict.fromkeys(missing))
    if explained:
        return explained
    errors = [match["text"] for match in _DIAGNOSTIC.finditer(output)]
    return tuple(
        dict.fromkeys(errors or [line for line in output.splitlines() if line][-1:] or ["no message"])
    )


def rows_with_calls(context: CheckContext, *, served: bool = True) -> list[Row]:
    """Rows whose calls must compile and link, or those not served: theirs must not compile."""
    compat = context.compat
    return [
        row
        for row in compat.rows
        if row.calls
        and compat.service(row).build == served
        # calls of commits that take our level: a branch may move to another
        and (not served or compat.level in compat.calls.sets[row.calls].levels)
    ]


def _by_program(context: CheckContext, rows: list[Row]) -> Iterator[tuple[Program, list[Row]]]:
    """Each set of calls with the rows that have it."""
    for name in dict.fromkeys(row.calls or "" for row in rows):
        yield make_program(context.compat.calls, name), [row for row in rows if row.calls == name]


def compile_calls(context: CheckContext, program: Program, compiler: Compiler, standard: str) -> Compilation:
    """A program of calls, linked with the release's library."""
    return context.compile(compiler, program.source, flags=[compiler.standard(standard)], hip=context.hip)


def check_calls(context: CheckContext) -> Iterator[Finding]:
    """Every served set with every compiler and standard, against HIP's headers where they are installed."""
    served = rows_with_calls(context)
    for program, rows in _by_program(context, served):
        outcomes = {
            f"{compiler.name} C++{standard}": compile_calls(context, program, compiler, standard)
            for compiler in context.compilers
            for standard in STANDARDS
        }
        for row in rows:
            what = f"the calls of PyTorch {row.pytorch} compile and link"
            evidence = f"{', '.join(outcomes)}; {context.hip.name}"
            evidence += f"; calls of {row.calls_of}" if row.calls_of else ""
            if outcomes:
                yield finding_from("calls", what, _failures(program, outcomes), evidence, row=row.name)
            else:
                yield not_run("calls", what, NO_COMPILER, row=row.name)
    for name in WANTED:
        if all(compiler.family != name for compiler in context.compilers):
            yield not_run("calls", f"with {name}", NO_COMPILER)
    for row in context.compat.rows:
        unknown = row.calls is None or (context.compat.service(row).build and row not in served)
        if row.status == "supported" and unknown:
            yield not_run("calls", "refused or served", "its sources were not read", row=row.name)


def _failures(program: Program, outcomes: Mapping[str, Compilation]) -> list[str]:
    """Each failure once, with the compilers that report it."""
    compilers: dict[str, list[str]] = {}
    for how, outcome in outcomes.items():
        if not outcome.ok:
            uses: dict[str, str] = {}
            for text in explain_failure(program, outcome.output):
                # compilers word the same error differently, so errors are grouped by the use
                uses.setdefault(text.split(": ", 1)[0], text)
            for text in list(uses.values())[:_LISTED]:
                compilers.setdefault(text, []).append(how)
    return [f"{text} [{', '.join(how)}]" for text, how in compilers.items()]


def check_refused(context: CheckContext) -> Iterator[Finding]:
    """Rows that the matrix lists as not served: their calls do not compile."""
    for program, rows in _by_program(context, rows_with_calls(context, served=False)):
        outcome = None
        if context.compilers:
            flags = ["-std=c++17", "-fsyntax-only"]
            outcome = context.compile(context.compilers[-1], program.source, flags=flags, link=False)
        for row in rows:
            yield _refused_finding(row, program, outcome)


def _refused_finding(row: Row, program: Program, outcome: Compilation | None) -> Finding:
    what = f"PyTorch {row.pytorch} cannot be built with it, as the matrix states"
    if outcome is None:
        return not_run("refused", what, NO_COMPILER, row=row.name)
    if outcome.ok:
        return failed("refused", what, "its calls compile: the matrix is wrong", row=row.name)
    if refused := violations(program, outcome.output):
        return passed("refused", what, refused[0], row=row.name)
    reason = explain_failure(program, outcome.output)[0]
    return not_run("refused", what, f"the compiler fails for another reason: {reason}", row=row.name)


_SECONDS = 60
_HIP_FLAGS = (
    "-std=c++17 -O1 -fPIC -shared -fvisibility=hidden -DHIP_DOUBLE_MAJOR=7 -static-libstdc++ -static-libgcc "
    "-pthread -Wl,-soname,libamdhip64.so.7"
)
_NOTHING_TO_RUN = "no C++ compiler, or no image pack for AMD GPUs"


def _hip_double(context: CheckContext) -> Path:
    """A folder with a libamdhip64.so.7 of simulated devices. Raises ToolchainError."""
    folder = context.checkout / "runtime" / "hip_double"
    sources = sorted(folder.glob("*.cpp"))
    library = context.work / "hip-double" / "libamdhip64.so.7"
    with context.lock:
        if not library.exists():  # once per run of the checks
            source = "".join(f'#include "{path.name}"\n' for path in sources)
            files = {path.name: path.read_text() for path in (*folder.glob("*.h"), *sources)}
            done = context.compile(context.compilers[-1], source, flags=_HIP_FLAGS.split(), files=files)
            if done.program is None:
                raise ToolchainError("the stand-in for HIP does not compile", cause=done.output[-400:])
            library.parent.mkdir(exist_ok=True)
            shutil.copy2(done.program, library)
    return library.parent


def run(
    context: CheckContext, program: Path, library: Path, *words: str, arch: str, images: Path | None = None
) -> tuple[int, str]:
    """Exit status and output of `program`, with `library` on the loader's path and devices of one arch."""
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
        return -1, f"it ran for more than {_SECONDS} s"
    return done.status, (done.stdout + done.stderr).strip()


def _hip_packs(context: CheckContext) -> dict[str, Path]:
    """Packs that AOTriton's interface serves: its streams are HIP's."""
    return {name: folder for name, folder in context.candidate.packs().items() if name.startswith("amd-")}


def check_dropin(context: CheckContext) -> Iterator[Finding]:
    """Programs that need the library by each older name start with the release, and find its images."""
    if not context.compilers or not _hip_packs(context):
        yield not_run(
            "drop-in", "programs built with an older point release run with this one", _NOTHING_TO_RUN
        )
        return
    for row in rows_with_calls(context):
        for name in context.compat.service(row).links:
            yield _dropin(context, row, name)


def _dropin(context: CheckContext, row: Row, name: str) -> Finding:
    what = f"a program that needs {name} runs with the release instead"
    program = make_program(context.compat.calls, row.calls or "")
    built = compile_calls(context, program, context.compilers[-1], "17")
    if built.program is None:
        return failed("drop-in", what, "its calls do not compile", row=row.name)
    soname = context.compat.names[0]
    if soname.encode() not in built.program.read_bytes():
        return failed("drop-in", what, f"the program does not need {soname}", row=row.name)
    lib = Path(tempfile.mkdtemp(prefix="dropin-", dir=context.work))
    # as in torch/lib: a link of that name only, images next to it
    pack, images = next(iter(_hip_packs(context).items()))
    (lib / "aotriton.images").mkdir(parents=True)
    (lib / name).symlink_to(context.library)
    if name != soname:  # which the linker wrote: a library of that name needs the older one, as PyTorch does
        (lib / soname).write_bytes(library_alias(soname, name))
    (lib / "aotriton.images" / pack).symlink_to(images)
    arch = open_pack(images).signature.archs[0]
    status, text = run(context, built.program, lib, arch=arch)
    violations = [] if status == 0 else [f"it exits with {status}: {text[-200:]}"]
    evidence = f"check_gpu on {arch}, {pack} next to the link"
    return finding_from("drop-in", what, violations, evidence, row=row.name)


def check_serving(context: CheckContext) -> Iterator[Finding]:
    """Each pack serves attention on its archs; params of another version are refused."""
    packs = _hip_packs(context)
    if not context.compilers or not packs:
        yield not_run("serving", "every image pack is used for attention", _NOTHING_TO_RUN)
        return
    source, compiler = render("attention_probe.cpp.jinja"), context.compilers[-1]
    built = context.compile(compiler, source, flags=["-std=c++17"])
    if built.program is None:
        yield failed("serving", "the program that calls attention compiles", built.output[-200:])
        return
    for pack in map(open_pack, packs.values()):
        for arch in pack.signature.archs:
            yield _serves(context, built.program, pack, arch)


def _serves(context: CheckContext, program: Path, pack: OpenPack, arch: str) -> Finding:
    dtype, head_dim = plain_call(pack, arch)
    images = context.candidate.packs()[pack.name].parent
    _, output = run(context, program, context.prefix / "lib", dtype, head_dim, arch=arch, images=images)
    wanted = ("check_gpu 0", "attn_fwd 0", f"version {context.compat.interface.errors['bad_version']}")
    lines, level = output.splitlines(), context.compat.level
    violations = [f"{text!r} is not printed: {output[:300]}" for text in wanted if text not in lines]
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
