"""The plan against a pack: nothing missing, nothing unexpected, every image as its digest says."""

from __future__ import annotations

from collections.abc import Iterable

from aotforge.compile.model import KernelImage
from aotforge.errors import PackError
from aotforge.pack.inspect import listing
from aotforge.pack.model import DispatchKernel, PackedImage
from aotforge.pack.reader import OpenPack
from aotforge.plan.model import Plan, PlannedKernel


def verify_pack(opened: OpenPack, plan: Plan, images: Iterable[KernelImage] | None = None) -> None:
    """Decodes every image and compares the pack with its plan in both directions; raises PackError at the
    first difference.

    With `images`, every choice must also hold exactly the bytes that its compile job made.
    """
    signature = opened.signature
    _equal(opened, "pack", signature.pack, plan.pack)
    _equal(opened, "archs", signature.archs, tuple(sorted(plan.archs)))
    _equal(opened, "profile", signature.profile, plan.profile)
    _equal(opened, "complete", signature.complete, plan.complete)
    _equal(opened, "source", signature.source, plan.source_digest)
    _equal(opened, "settings", signature.settings, plan.settings_digest)
    _equal(opened, "triton", signature.triton.digest, plan.toolchain.triton_digest)
    interfaces = {operator.name: operator.interface_hash() for operator in plan.operators}
    _equal(opened, "operators", signature.operators, interfaces)
    packed = {(kernel.operator, kernel.step): kernel for kernel in opened.dispatch.kernels}
    planned = {(kernel.operator, kernel.step): kernel for kernel in plan.kernels}
    for operator, step in sorted(packed.keys() ^ planned.keys()):
        state = "missing from the pack" if (operator, step) in planned else "in the pack and not planned"
        raise _differs(opened, f"step {step} of {operator} is {state}")
    for place, kernel in planned.items():
        _compare(opened, packed[place], kernel)
    for container in opened.indexes:
        opened.images(container)
    if images is not None:
        _same_images(opened, plan, images)


def _compare(opened: OpenPack, packed: DispatchKernel, planned: PlannedKernel) -> None:
    name = f"{planned.family}.{planned.name}"
    parameters = tuple((parameter.type, parameter.value) for parameter in planned.parameters)
    _equal(opened, f"kernel of step {planned.step} of {planned.operator}", packed.name, name)
    _equal(opened, f"keys of {name}", packed.keys, planned.keys)
    _equal(opened, f"parameters of {name}", packed.parameters, parameters)
    here = {(f.arch, f.key): [(c.predicates, _axes(c.grid)) for c in f.choices] for f in packed.functionals}
    there = {(f.arch, f.key): [(c.predicates, _axes(c.grid)) for c in f.choices] for f in planned.functionals}
    for arch, key in sorted(here.keys() | there.keys()):
        call = (
            f"{name} for {arch}, {', '.join(f'{k} = {v}' for k, v in zip(planned.keys, key, strict=False))}"
        )
        if (arch, key) not in here:
            raise _differs(opened, f"{call} is missing")
        if (arch, key) not in there:
            raise _differs(opened, f"{call} is not planned")
        _equal(opened, f"choices of {call}", here[arch, key], there[arch, key])


def _axes(grid: tuple[tuple[object, ...], ...]) -> tuple[tuple[object, ...], ...]:
    return (*grid, (), (), ())[:3]


def _same_images(opened: OpenPack, plan: Plan, images: Iterable[KernelImage]) -> None:
    digests = {image.key: image.digest for image in images}
    rows: dict[tuple[str, int, str, tuple[int, ...], int], PackedImage] = {
        (row.operator, row.step, row.arch, tuple(number for _, number in row.key), row.tried): row
        for row in listing(opened)
    }
    for kernel in plan.kernels:
        for functional in kernel.functionals:
            for tried, choice in enumerate(functional.choices):
                row = rows[kernel.operator, kernel.step, functional.arch, functional.key, tried]
                if row.digest != digests.get(choice.job):
                    raise _differs(
                        opened,
                        f"choice {tried} of {row.kernel} for {row.key} is not the image of {choice.job}",
                    )


def _equal(opened: OpenPack, what: str, packed: object, planned: object) -> None:
    if packed != planned:
        raise _differs(opened, f"{what}: the pack has {packed!r}, the plan {planned!r}")


def _differs(opened: OpenPack, reason: str) -> PackError:
    return PackError(
        f"{opened.name}: {reason}",
        cause="the pack was made from another plan, or not completely",
        hint="build the image pack again",
    )
