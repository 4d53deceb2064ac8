"""Comparison of a pack with its plan in both directions, every image included."""

from collections.abc import Iterable

from aotforge.compile.model import KernelImage
from aotforge.errors import PackError
from aotforge.pack.listing import listing
from aotforge.pack.model import DispatchFunctional, DispatchKernel
from aotforge.pack.reader import OpenPack
from aotforge.plan.model import Plan, PlannedFunctional, PlannedKernel


def verify_pack(opened: OpenPack, plan: Plan, images: Iterable[KernelImage] | None = None) -> None:
    """Decodes every image and compares the pack with its plan in both directions. Raises PackError at the
    first difference.

    With `images`, every choice must also hold exactly the bytes that its compile job made.
    """
    signature = opened.signature
    for what, packed, planned in (
        ("pack", signature.pack, plan.pack),
        ("archs", signature.archs, tuple(sorted(plan.archs))),
        ("profile", signature.profile, plan.profile),
        ("complete", signature.complete, plan.complete),
        ("source", signature.source, plan.source_digest),
        ("settings", signature.settings, plan.settings_digest),
        ("triton", signature.triton.digest, plan.toolchain.triton_digest),
    ):
        _check_equal(opened, what, packed, planned)
    compare_dispatch(opened, plan)
    opened.check_images()
    if images is not None:
        _compare_images(opened, plan, images)


def compare_dispatch(opened: OpenPack, plan: Plan) -> None:
    """Compares all by which calls are dispatched, whatever the images. Raises PackError."""
    operators = {o.name: o.interface_hash() for o in plan.operators}
    packed = opened.signature.operators
    for name in sorted(packed.keys() | operators.keys()):
        _check_equal(opened, f"operator {name}", packed.get(name), operators.get(name))
    _check_equal(opened, "gates", opened.dispatch.gates, plan.gates)
    kernels = {(kernel.operator, kernel.step): kernel for kernel in opened.dispatch.kernels}
    wanted = {(kernel.operator, kernel.step): kernel for kernel in plan.kernels}
    for operator, step in sorted(kernels.keys() ^ wanted.keys()):
        state = "missing from the pack" if (operator, step) in wanted else "in the pack and not planned"
        raise _differs(opened, f"step {step} of {operator} is {state}")
    for key, kernel in wanted.items():
        _compare(opened, kernels[key], kernel)


def _compare(opened: OpenPack, packed: DispatchKernel, planned: PlannedKernel) -> None:
    name = f"{planned.family}.{planned.name}"
    parameters = tuple((parameter.type, parameter.value) for parameter in planned.parameters)
    _check_equal(opened, f"kernel of step {planned.step} of {planned.operator}", packed.name, name)
    _check_equal(opened, f"keys of {name}", packed.keys, planned.keys)
    _check_equal(opened, f"ladder of {name}", packed.ladder, planned.ladder)
    _check_equal(opened, f"parameters of {name}", packed.parameters, parameters)
    here, there = _choices(packed.functionals), _choices(planned.functionals)
    for arch, key in sorted(here.keys() | there.keys()):
        values = ", ".join(f"{k} = {v}" for k, v in zip(planned.keys, key, strict=False))
        call = f"{name} for {arch}, {values}"
        if ((arch, key) in here) != ((arch, key) in there):
            raise _differs(opened, f"{call} is {'missing' if (arch, key) in there else 'not planned'}")
        _check_equal(opened, f"choices of {call}", here[arch, key], there[arch, key])


def _choices(
    functionals: tuple[DispatchFunctional, ...] | tuple[PlannedFunctional, ...],
) -> dict[tuple[str, tuple[int, ...]], list[object]]:
    """Predicates and grids, filled up to three axes, by arch and key."""
    return {
        (f.arch, f.key): [(choice.predicates, (*choice.grid, (), (), ())[:3]) for choice in f.choices]
        for f in functionals
    }


def _compare_images(opened: OpenPack, plan: Plan, images: Iterable[KernelImage]) -> None:
    digests = {image.key: image.digest for image in images}
    rows = {
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


def _check_equal(opened: OpenPack, what: str, packed: object, planned: object) -> None:
    if packed != planned:
        raise _differs(opened, f"{what}: the pack has {packed!r}, the plan {planned!r}")


def _differs(opened: OpenPack, reason: str) -> PackError:
    return PackError(
        f"{opened.name}: {reason}",
        cause="the pack was made from another plan, or not completely",
        hint="build the image pack again",
    )
