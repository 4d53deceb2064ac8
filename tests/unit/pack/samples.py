"""A small plan with made-up code objects: two operators, three kernels, two archs."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from aotforge.compile.model import KernelImage, Resources
from aotforge.plan.model import (
    CompileJob,
    GridTerm,
    Plan,
    PlannedChoice,
    PlannedFunctional,
    PlannedKernel,
    PlannedParameter,
    Predicate,
)
from aotforge.rules import Operator, Target, Value
from aotforge.targets.backend import KernelArgument
from aotforge.toolchain.triton import Toolchain

TOOLCHAIN = Toolchain(
    triton_version="3.9.0", triton_digest="a" * 64, llvm_revision="b" * 40, environment=(("TRITON_X", "1"),)
)
BLEND = Operator(
    name="blend",
    values=(
        Value(name="X", type="ptr"),
        Value(name="Y", type="ptr"),
        Value(name="n", type="i64"),
        Value(name="scale", type="f32"),
        Value(name="dtype", type="i32"),
        Value(name="mode", type="i32"),
    ),
)
COPY = Operator(name="copy", values=(Value(name="X", type="ptr"), Value(name="n", type="u64")))
PARAMETERS = (
    PlannedParameter(name="x", type="ptr", value="X"),
    PlannedParameter(name="n", type="i32", value="n"),
    PlannedParameter(name="scale", type="f32", value="scale"),
    PlannedParameter(name="y", type="ptr", value="Y"),
)
SIZES = {"ptr": 8, "i32": 4, "i64": 8, "u64": 8, "f32": 4}


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def code(name: str) -> bytes:
    """Bytes that look like a code object: alike for one kernel, different for each image, compressible."""
    common = random.Random(name.split("/", maxsplit=1)[0]).randbytes(2500)
    own = random.Random(name).randbytes(300)
    return b"\x7fELF" + common[:1500] + own + common[1500:] + bytes(500) + name.encode()


def job(kernel: str, label: str, arch: str) -> CompileJob:
    return CompileJob(
        key=sha(label), family="demo", kernel=kernel, label=label, source="demo.py", function=kernel,
        source_digest=sha(kernel), target=Target(arch=arch, vendor="amd", warp_size=64, matrix="MFMA",
            shared_bytes=65536),
        signature=(), constants=(), hints=(), options=(), toolchain=TOOLCHAIN, spills="reject",
    )  # fmt: skip


def arguments(parameters: Sequence[PlannedParameter], null_pointers: int = 2) -> tuple[KernelArgument, ...]:
    """The arguments of a code object with these parameters: natural alignment, then scratch pointers."""
    found, at = [], 0
    for type_ in [parameter.type for parameter in parameters] + ["ptr"] * null_pointers:
        size = SIZES[type_]
        at = (at + size - 1) // size * size
        found.append(
            KernelArgument(offset=at, size=size, kind="global_buffer" if type_ == "ptr" else "by_value")
        )
        at += size
    return tuple(found)


def image(of: CompileJob, parameters: Sequence[PlannedParameter], binary: bytes | None = None) -> KernelImage:
    data = code(of.label) if binary is None else binary
    return KernelImage(
        key=of.key, digest=hashlib.sha256(data).hexdigest(), symbol=f"{of.kernel}_kernel", binary=data,
        asm=f"; {of.label}\n",
        resources=Resources(
            registers=64, accumulation_registers=0, scalar_registers=32, spilled_registers=0,
                spilled_scalar_registers=0, scratch_bytes=0,
            shared_bytes=2048,
            dynamic_shared_bytes=1024, warp_size=64, num_warps=4, threads=256, occupancy=4,
        ),
        arguments=arguments(parameters),
    )  # fmt: skip


def kernel(
    name: str, operator: Operator, step: int, keys: Sequence[tuple[int, ...]]
) -> tuple[PlannedKernel, list[CompileJob]]:
    """A kernel with two choices per functional on two archs; the first requires aligned tensors and few
    elements.
    """
    blend = operator is BLEND
    jobs, functionals = [], []
    for arch in ("gfx906", "gfx908"):
        for key in keys:
            pair = [job(name, f"{name}/{arch}/{key}/{n}", arch) for n in range(2)]
            jobs += pair
            aligned = (
                Predicate(values=("X",), kind="multiple", low=16),
                Predicate(values=("n",), kind="range", low=-5, high=2**40),
                Predicate(values=("n", "n", "n"), kind="range", low=-(2**63), high=9),
                Predicate(values=("n", "n"), kind="multiple", low=2**32 - 1),
            )
            grid = (
                (GridTerm(value="n", divisor=64), GridTerm(value="n", divisor=1)),
                (),
                (GridTerm(value="n", divisor=3),),
            )
            choices = (
                PlannedChoice(job=pair[0].key, predicates=aligned, grid=grid),
                PlannedChoice(job=pair[1].key, predicates=(), grid=((GridTerm(value="n", divisor=128),),)),
            )
            functionals.append(PlannedFunctional(arch=arch, key=key, choices=choices))
    planned = PlannedKernel(
        family="demo", name=name, operator=operator.name, step=step, keys=("dtype", "mode") if blend else (),
        parameters=PARAMETERS if blend else PARAMETERS[:1], functionals=tuple(functionals),
    )  # fmt: skip
    return planned, jobs


def sample() -> tuple[Plan, list[KernelImage]]:
    """The plan and its images."""
    keys = [(-1, 0), (-1, 1), (3, 0)]
    made = [kernel("first", BLEND, 0, keys), kernel("second", BLEND, 1, keys), kernel("copy", COPY, 0, [()])]
    plan = Plan(
        pack="amd-test", archs=("gfx906", "gfx908"), profile="core", complete=True, operators=(BLEND, COPY),
        jobs=tuple(one for _, jobs in made for one in jobs), kernels=tuple(planned for planned, _ in made),
        source_digest=sha("source"), settings_digest=sha("settings"), toolchain=TOOLCHAIN,
    )  # fmt: skip
    images = [image(one, planned.parameters) for planned, jobs in made for one in jobs]
    return plan, images
