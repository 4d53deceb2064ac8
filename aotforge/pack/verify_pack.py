"""Comparison of a pack with its plan in both directions, every image included."""

from collections.abc import Iterable, Mapping
from typing import Any

from aotforge.compile.model import KernelImage
from aotforge.errors import PackError
from aotforge.pack.model import DispatchChoice, DispatchKernel
from aotforge.pack.reader import OpenPack
from aotforge.plan.model import Plan, PlannedKernel


def verify_pack(opened: OpenPack, plan: Plan, images: Iterable[KernelImage] | None = None) -> None:
    """Decodes every image and compares the pack with its plan in both directions. Raises PackError at the
    first difference.

    With `images`, every choice must also hold exactly the bytes that its compile job made.
    """
    signature = opened.signature
    names = ("pack", "archs", "profile", "complete", "source", "settings")
    packed = {name: getattr(signature, name) for name in names} | {"triton": signature.triton.digest}
    planned = {
        "pack": plan.pack,
        "archs": tuple(sorted(plan.archs)),
        "profile": plan.profile,
        "complete": plan.complete,
        "source": plan.source_digest,
        "settings": plan.settings_digest,
        "triton": plan.toolchain.triton_digest,
    }
    _compare(opened, packed, planned)
    compare_dispatch(opened, plan, images)
    opened.check_images()


def compare_dispatch(opened: OpenPack, plan: Plan, images: Iterable[KernelImage] | None = None) -> None:
    """Compares all by which calls are dispatched and, with `images`, to which bytes. Raises PackError."""
    made = None if images is None else {image.key: image.digest for image in images}
    packed: dict[str, object] = {f"operator {n}": digest for n, digest in opened.signature.operators.items()}
    planned: dict[str, object] = {f"operator {o.name}": o.interface_hash() for o in plan.operators}
    packed["gates"], planned["gates"] = opened.dispatch.gates, plan.gates
    for held in opened.dispatch.kernels:
        digests = {i: entry.digest.hex() for i, entry in enumerate(opened.indexes[held.container].images)}
        packed |= _facts(held, held.name, held.parameters, digests if made is not None else None)
    for kernel in plan.kernels:
        parameters = tuple((parameter.type, parameter.value) for parameter in kernel.parameters)
        planned |= _facts(kernel, f"{kernel.family}.{kernel.name}", parameters, made)
    _compare(opened, packed, planned)


def _facts(
    kernel: DispatchKernel | PlannedKernel, name: str, parameters: object, images: Mapping[Any, str] | None
) -> dict[str, object]:
    """What must agree of a kernel, by its name in errors; grids are filled up to three axes."""
    facts: dict[str, object] = {
        f"step {kernel.step} of {kernel.operator}": name,
        f"keys of {name}": kernel.keys,
        f"ladder of {name}": kernel.ladder,
        f"parameters of {name}": parameters,
    }
    for functional in kernel.functionals:
        values = (f"{key} = {value}" for key, value in zip(kernel.keys, functional.key, strict=False))
        call = f"{name} for {', '.join((functional.arch, *values))}"
        facts[call] = [(choice.predicates, (*choice.grid, (), (), ())[:3]) for choice in functional.choices]
        if images is not None:
            chosen = (c.image if isinstance(c, DispatchChoice) else c.job for c in functional.choices)
            facts[f"images of {call}"] = list(map(images.get, chosen))
    return facts


def _compare(opened: OpenPack, packed: Mapping[str, object], planned: Mapping[str, object]) -> None:
    for what in dict.fromkeys((*planned, *packed)):
        if what not in packed:
            reason = f"{what} is missing from the pack"
        elif what not in planned:
            reason = f"{what} is in the pack and not planned"
        elif packed[what] != planned[what]:
            reason = f"{what}: the pack has {packed[what]!r}, the plan {planned[what]!r}"
        else:
            continue
        raise PackError(
            f"{opened.name}: {reason}",
            cause="the pack was made from another plan, or not completely",
            hint="build the image pack again",
        )
