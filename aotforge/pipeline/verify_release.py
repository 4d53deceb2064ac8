"""`invoke verify`: the images of a profile, or what lies in a release folder: its bytes, its dispatch data, its texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from aotforge.base.architectures import load_architectures
from aotforge.compile.code_object_check import read_arguments
from aotforge.compile.model import KernelImage
from aotforge.errors import ReleaseError, RulesError, UnsupportedError
from aotforge.formats.code_object import CodeObjectError, kernel_metadata
from aotforge.pack.contract import check_arguments
from aotforge.pack.model import DispatchKernel
from aotforge.pack.reader import OpenPack, open_files
from aotforge.pipeline.build_release import by_pack, compiled_images
from aotforge.pipeline.display import BuildObserver
from aotforge.plan.families import load_families
from aotforge.plan.model import PlannedChoice, PlannedKernel, PlannedParameter
from aotforge.release.reader import ReleasedPack, read_release
from aotforge.verify.report import VerifyReport, joined_report
from aotforge.verify.verdict import ImageTask, OnEvent
from aotforge.verify.verifier_digest import family_verifier_digest
from aotforge.verify.verify_plan import verify_images, verify_tasks
from aotforge.virtual_gpu.interpreter.dispatch import Use

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """Whose images: those of `archs` and `profile`, or those in the folder `release`, where `archs` chooses among its
    chips. `root` is the checkout, `cache` has compiled images and verdicts; `jobs` bounds processes.
    """

    root: Path
    archs: tuple[str, ...]
    profile: str | None
    release: Path | None
    cache: Path
    jobs: int | None


def verify(request: VerifyRequest, *, observer: BuildObserver) -> VerifyReport:
    """Verdicts on all of them; what is missing is compiled, but nothing of a release. Raises what `compiled_images`, `verify_images` and
    `verify_release` raise; UnsupportedError when nothing says whose images.
    """
    kernels = request.root / "kernels"
    if request.release:
        if request.profile:
            raise UnsupportedError(
                "--profile and --release together: a release has the profile that it was built with",
                hint="leave one of them out",
            )
        return verify_release(
            request.release, kernels_root=kernels, cache=request.cache, archs=request.archs, jobs=request.jobs, on_event=observer.verdict
        )  # fmt: skip
    if not request.archs:
        raise UnsupportedError(
            "nothing says which images to verify",
            hint="name chips (--arch gfx908) or a release folder (--release releases/dist/...)",
        )
    packs = [
        compiled_images(
            request.root, archs, profile=request.profile, cache=request.cache, jobs=request.jobs, observer=observer
        )
        for archs in by_pack(request.root, request.archs)
    ]  # fmt: skip
    architectures = load_architectures(request.root / "manifests")
    return joined_report(
        [
            verify_images(
                plan, images, kernels_root=kernels, cache=request.cache, architectures=architectures, jobs=request.jobs,
                on_event=observer.verdict,
            )
            for plan, images in packs
        ]
    )  # fmt: skip


def verify_release(
    folder: Path,
    *,
    kernels_root: Path,
    cache: Path,
    archs: Iterable[str] = (),
    jobs: int | None = None,
    on_event: OnEvent | None = None,
) -> VerifyReport:
    """Verdicts on every image pack of the release in `folder`, only for `archs` when some are named. Every image once, by its digest.

    Raises ReleaseError for an archive that is missing, altered or damaged and for a chip that no pack serves, PackError, RulesError
    for a kernel family that this checkout does not have, and what `verify_images` raises.
    """
    wanted = frozenset(archs)
    packs = [(released, open_files(released.pack)) for released in read_release(folder)]
    if lacking := wanted - {arch for _, opened in packs for arch in opened.signature.archs}:
        raise ReleaseError(
            f"{folder} holds no images for {', '.join(sorted(lacking))}",
            hint="leave the chip, or --arch, out",
        )
    reports = []
    for released, opened in packs:
        chosen = tuple(arch for arch in opened.signature.archs if not wanted or arch in wanted)
        if not chosen:
            continue
        _check_listed(released, opened)
        tasks = release_tasks(released, opened, chosen, kernels_root)
        reports.append(
            verify_tasks(
                tasks, released.pack.name, chosen, opened.signature.profile,
                kernels_root=kernels_root, cache=cache, jobs=jobs, on_event=on_event,
            )
        )  # fmt: skip
    return joined_report(reports)


def _check_listed(released: ReleasedPack, opened: OpenPack) -> None:
    """What MANIFEST.json says of a pack is about the images that it holds. Raises ReleaseError."""
    held = {entry.digest.hex() for index in opened.indexes.values() for entry in index.images}
    if released.listed is not None and (odd := sorted(held ^ released.listed)):
        raise ReleaseError(
            f"MANIFEST.json and {opened.name} hold different images: {odd[0]} is in one of them only",
            cause="they are of different builds",
            hint="fetch both again",
        )


def release_tasks(
    released: ReleasedPack, opened: OpenPack, archs: Sequence[str], kernels_root: Path
) -> list[ImageTask]:
    """One task per image: how the pack dispatches to it, its bytes from the pack, its text from the archive of texts."""
    folders = {loaded.family.name: loaded.folder for loaded in load_families(kernels_root)}
    uses: dict[str, list[Use]] = {}
    family_of: dict[str, tuple[str, str]] = {}
    for kernel in opened.dispatch.kernels:
        planned = _planned(kernel)
        if planned.family not in folders:
            raise RulesError(
                f"{kernel.name} of {opened.name} is of a family that kernels/ does not have",
                cause="the release is of another version of this project",
                hint="verify it with the checkout that it was built from",
            )
        images = opened.indexes[kernel.container].images
        for functional in kernel.functionals:
            if functional.arch not in archs:
                continue
            digests = [images[choice.image].digest.hex() for choice in functional.choices]
            choices = tuple(
                PlannedChoice(job=digest, predicates=choice.predicates, grid=choice.grid)
                for digest, choice in zip(digests, functional.choices, strict=True)
            )
            for index, digest in enumerate(digests):
                use = Use(kernel=planned, key=functional.key, choices=choices, index=index)
                uses.setdefault(digest, []).append(use)
                family_of[digest] = (functional.arch, planned.family)
    bytes_of = {
        digest.hex(): data
        for container in opened.indexes
        for digest, data in opened.images(container).items()
    }
    tools = {
        family: family_verifier_digest(kernels_root / folders[family]) for _, family in family_of.values()
    }
    tasks = [
        ImageTask(
            key=digest,
            label=_label(released, digest),
            arch=family_of[digest][0],
            digest=digest,
            hsaco=bytes_of[digest],
            asm=_of(released.assembly, released, digest, "assembly text"),
            resources=_of(released.resources, released, digest, "figures"),
            folder=folders[family_of[digest][1]],
            verifier_digest=tools[family_of[digest][1]],
            uses=tuple(found),
        )
        for digest, found in uses.items()
    ]
    _check_launches(opened, tasks)
    return tasks


def _check_launches(opened: OpenPack, tasks: Sequence[ImageTask]) -> None:
    """How the library would launch each image, by the pack, is how it was compiled and how it will be judged.

    The virtual GPU takes these figures from image and texts, so no execution could tell. Raises ReleaseError, PackError.
    """
    made = {task.digest: image for task in tasks if (image := _image(task))}
    for kernel in opened.dispatch.kernels:
        planned = _planned(kernel)
        entries = opened.indexes[kernel.container].images
        for choice in (choice for functional in kernel.functionals for choice in functional.choices):
            image = made.get(entries[choice.image].digest.hex())
            if image is None:
                continue
            passed = {
                "symbol": choice.symbol, "threads": choice.threads, "dynamic LDS bytes": choice.dynamic_lds_bytes,
                "scratch pointers": kernel.null_pointers,
            }  # fmt: skip
            wanted = {
                "symbol": image.symbol, "threads": image.resources.threads, "dynamic LDS bytes": image.resources.dynamic_lds_bytes,
                "scratch pointers": check_arguments(planned, image),
            }  # fmt: skip
            for name in (name for name in passed if passed[name] != wanted[name]):
                raise ReleaseError(
                    f"{opened.name} launches {kernel.name}'s image {image.digest[:16]} with {name} = {passed[name]}, "
                    f"it was compiled for {wanted[name]}",
                    cause="dispatch data, images and texts are of different builds, or one was altered",
                    hint="fetch the release again, or build it again",
                )


def _image(task: ImageTask) -> KernelImage | None:
    """The image with what its own metadata says of it; None when that cannot be read, which the judge will say."""
    try:
        kernel = kernel_metadata(task.hsaco)
        return KernelImage(
            key=task.key,
            digest=task.digest,
            symbol=str(kernel[".name"]),
            hsaco=task.hsaco,
            asm=task.asm,
            resources=replace(task.resources, threads=int(kernel[".max_flat_workgroup_size"])),
            arguments=read_arguments(kernel),
        )
    except (CodeObjectError, KeyError, TypeError, ValueError):
        return None


def _planned(kernel: DispatchKernel) -> PlannedKernel:
    """Dispatch data in the plan's terms: kernels are named family.kernel there."""
    family, _, name = kernel.name.partition(".")
    return PlannedKernel(
        family=family,
        name=name,
        operator=kernel.operator,
        step=kernel.step,
        keys=kernel.keys,
        parameters=tuple(PlannedParameter(name=v, type=t, value=v) for t, v in kernel.parameters),
        functionals=(),
    )


def _label(released: ReleasedPack, digest: str) -> str:
    return " = ".join(released.labels.get(digest, ())) or digest


def _of(found: Mapping[str, T], released: ReleasedPack, digest: str, what: str) -> T:
    if digest not in found:
        raise ReleaseError(
            f"the asm archive of {released.pack.name} has no {what} of the image {digest}",
            cause="the archives of images and of texts are of different builds",
            hint="fetch both again",
        )
    return found[digest]
