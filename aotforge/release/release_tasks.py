"""Images of a release as tasks of the verifier, with the checks that no execution could replace."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from aotforge.compile.model import KernelImage
from aotforge.errors import PackError, ReleaseError, RulesError, UnknownNameError, UnsupportedError
from aotforge.pack.contract import check_arguments
from aotforge.pack.model import DispatchKernel
from aotforge.pack.reader import OpenPack
from aotforge.pack.verify_pack import compare_dispatch
from aotforge.plan.checkout import Checkout
from aotforge.plan.model import PlannedChoice, PlannedKernel, PlannedParameter
from aotforge.plan.planner import plan_project
from aotforge.plan.selection import ONLY_SUFFIX, Only
from aotforge.release.release import ReleasedPack
from aotforge.rules import GENERAL_SUFFIX
from aotforge.targets.backends import backend_of_arch, is_native
from aotforge.toolchain.triton import Toolchain
from aotforge.verify.interpreter.dispatch import Use, rungs_below
from aotforge.verify.verdict import ImageTask
from aotforge.verify.verifier_digest import family_verifier_digest
from vgpu.code_object import CodeObjectError

T = TypeVar("T")


def release_tasks(
    released: ReleasedPack,
    opened: OpenPack,
    archs: Sequence[str],
    checkout: Checkout,
    selected: frozenset[tuple[str, str]] | None = None,
) -> list[ImageTask]:
    """One task per image of the `selected` kernels (None: all), with the calls dispatched to it.

    Raises ReleaseError for images that MANIFEST.json does not list, and ReleaseError or PackError for those
    that dispatch data do not fit.
    """
    held = {entry.digest.hex() for index in opened.indexes.values() for entry in index.images}
    if odd := sorted(held ^ released.labels.keys()):
        raise ReleaseError(
            f"MANIFEST.json and {opened.name} hold different images: {odd[0]} is in one of them only",
            cause="they are of different builds",
            hint="fetch both again",
        )
    folders = {loaded.family.name: loaded.folder for loaded in checkout.families}
    uses: dict[str, list[Use]] = {}
    arch_of: dict[str, str] = {}
    for digest, arch, use in _uses(opened, archs, folders):
        if selected is not None and (use.kernel.family, use.kernel.name) not in selected:
            continue
        uses.setdefault(digest, []).append(use)
        if arch_of.setdefault(digest, arch) != arch or uses[digest][0].kernel.family != use.kernel.family:
            # it is executed as an image of one: its verdict would be the other's, too
            raise ReleaseError(
                f"{opened.name} has the image {digest[:16]} for {arch_of[digest]} and {arch}, "
                f"for kernels of {uses[digest][0].kernel.family} and {use.kernel.family}",
                cause="an image is of one arch and one family; the dispatch data are altered",
                hint="fetch the release again, or build it again",
            )
    binaries = {digest.hex(): data for box in opened.indexes for digest, data in opened.images(box).items()}
    natively = any(map(is_native, archs))
    verifier = {
        family: family_verifier_digest(checkout.kernels / folders[family], natively=natively)
        for family in {use.kernel.family for image_uses in uses.values() for use in image_uses}
    }
    tasks = [
        ImageTask(
            key=digest,
            label=" = ".join(released.labels[digest]) or digest,
            arch=arch_of[digest],
            digest=digest,
            binary=binaries[digest],
            asm=_of(released.assembly, released, digest, "assembly text"),
            resources=_of(released.resources, released, digest, "resources"),
            folder=folders[image_uses[-1].kernel.family],
            verifier_digest=verifier[image_uses[-1].kernel.family],
            uses=tuple(image_uses),
        )
        for digest, image_uses in uses.items()
    ]
    _check_launches(opened, tasks)
    return tasks


def check_dispatch(opened: OpenPack, checkout: Checkout) -> None:
    """Checks that calls are dispatched as planned, without compiling. Raises ReleaseError, RulesError."""
    signature = opened.signature
    profile = signature.profile.removesuffix(ONLY_SUFFIX)
    # a pack of `--only` has these kernels, and shows in its profile's name that it has not all
    names = [kernel.name for kernel in opened.dispatch.kernels] if profile != signature.profile else []
    try:
        plan = plan_project(
            checkout, archs=signature.archs, profile=profile, only=Only(names), toolchain=_any_toolchain
        )
        compare_dispatch(opened, plan)
    except (PackError, UnknownNameError, UnsupportedError) as error:
        raise ReleaseError(
            f"dispatch data of {opened.name} are not those that this checkout plans: {error.what}",
            cause="the release is of other rules, settings or profiles, or it was altered",
            hint="verify it with the checkout that it was built from",
        ) from error


def _any_toolchain(pinned: str) -> Toolchain:
    """A stand-in: dispatch data do not depend on the compiler."""
    return Toolchain(triton_version=pinned, triton_digest="", llvm_revision="", environment=())


def _uses(
    opened: OpenPack, archs: Sequence[str], folders: Mapping[str, str]
) -> Iterator[tuple[str, str, Use]]:
    """Image digest, arch and use of every choice of the pack for `archs`. Raises RulesError."""
    for kernel in opened.dispatch.kernels:
        planned = _planned(kernel)
        if planned.family not in folders:
            raise RulesError(
                f"{kernel.name} of {opened.name} is of a family that kernels/ does not have",
                cause="the release is of another version of this project",
                hint="verify it with the checkout that it was built from",
            )
        images = opened.indexes[kernel.container].images
        below = rungs_below(kernel.ladder, [(f.arch, f.key) for f in kernel.functionals])
        for functional in kernel.functionals:
            digests = [images[choice.image].digest.hex() for choice in functional.choices]
            choices = tuple(
                PlannedChoice(job=digest, predicates=choice.predicates, grid=choice.grid)
                for digest, choice in zip(digests, functional.choices, strict=True)
            )
            for index, digest in enumerate(digests if functional.arch in archs else ()):
                use = Use(
                    kernel=planned,
                    key=functional.key,
                    below=below[functional.arch, functional.key],
                    choices=choices,
                    index=index,
                    general=functional.choices[index].symbol.endswith(GENERAL_SUFFIX),
                )
                yield digest, functional.arch, use


def _check_launches(opened: OpenPack, tasks: Sequence[ImageTask]) -> None:
    """Checks launch properties that no execution shows: they are those each image was compiled for."""
    made = {task.digest: image for task in tasks if (image := _image(task))}
    for kernel in opened.dispatch.kernels:
        planned, entries = _planned(kernel), opened.indexes[kernel.container].images
        for choice in (choice for functional in kernel.functionals for choice in functional.choices):
            image = made.get(entries[choice.image].digest.hex())
            if image is None:
                continue
            properties: list[tuple[str, object, object]] = [
                ("symbol", choice.symbol, image.symbol),
                ("threads", choice.threads, image.resources.threads),
                ("dynamic shared memory", choice.dynamic_shared_bytes, image.resources.dynamic_shared_bytes),
                ("scratch pointers", kernel.null_pointers, check_arguments(planned, image)),
            ]
            for name, passed, wanted in properties:
                if passed != wanted:
                    raise ReleaseError(
                        f"{opened.name} launches {kernel.name}'s image {image.digest[:16]} with "
                        f"{name} = {passed}, it was compiled for {wanted}",
                        cause="dispatch data, images and texts are of different builds, or one was altered",
                        hint="fetch the release again, or build it again",
                    )


def _image(task: ImageTask) -> KernelImage | None:
    """The image with its own metadata; None when that cannot be read, which the verifier reports."""
    try:
        facts = backend_of_arch(task.arch).read(task.binary)
        return KernelImage(
            key=task.key,
            digest=task.digest,
            symbol=facts.symbol,
            binary=task.binary,
            asm=task.asm,
            resources=replace(task.resources, threads=facts.threads),
            arguments=facts.arguments,
        )
    except (CodeObjectError, KeyError, TypeError, ValueError):
        return None


def operator_kernels(opened: OpenPack) -> Iterator[tuple[str, str, str]]:
    """Family, name and operator of every kernel of a pack."""
    for kernel in map(_planned, opened.dispatch.kernels):
        yield kernel.family, kernel.name, kernel.operator


def _planned(kernel: DispatchKernel) -> PlannedKernel:
    """Dispatch data in the plan's terms, where kernels are named family.kernel."""
    family, _, name = kernel.name.partition(".")
    return PlannedKernel(
        family=family,
        name=name,
        operator=kernel.operator,
        step=kernel.step,
        keys=kernel.keys,
        ladder=kernel.ladder,
        parameters=tuple(PlannedParameter(name=v, type=t, value=v) for t, v in kernel.parameters),
        functionals=(),
    )


def _of(values: Mapping[str, T], released: ReleasedPack, digest: str, what: str) -> T:
    if digest not in values:
        raise ReleaseError(
            f"the asm archive of {released.pack.name} has no {what} of the image {digest}",
            cause="the archives of images and of texts are of different builds",
            hint="fetch both again",
        )
    return values[digest]
