"""Verification of a profile's images, or of a release folder: its bytes, dispatch data and texts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TypeVar

from aotforge.compile.cache import Cache
from aotforge.compile.model import KernelImage
from aotforge.errors import PackError, ReleaseError, RulesError, UnknownNameError, UnsupportedError
from aotforge.pack.contract import check_arguments
from aotforge.pack.model import DispatchKernel
from aotforge.pack.reader import OpenPack, open_files
from aotforge.pack.verify_pack import compare_dispatch
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.image_texts import check_texts
from aotforge.pipeline.images import ImageBuilder, make_plans
from aotforge.pipeline.requests import VerifyRequest
from aotforge.pipeline.shared_cache import cluster_of, shared_objects
from aotforge.plan.checkout import Checkout
from aotforge.plan.families import LoadedFamily, load_families
from aotforge.plan.model import PlannedChoice, PlannedKernel, PlannedParameter
from aotforge.plan.planner import plan_project
from aotforge.plan.selection import ONLY_SUFFIX, Only
from aotforge.release.release import Release, ReleasedPack
from aotforge.rules import GENERAL_SUFFIX
from aotforge.targets.backends import backend_of_arch, is_native
from aotforge.toolchain.triton import Toolchain
from aotforge.verify.interpreter.dispatch import Use, rungs_below
from aotforge.verify.report import VerifyReport, joined_report
from aotforge.verify.verdict import ImageTask, OnEvent
from aotforge.verify.verifier_digest import family_verifier_digest
from aotforge.verify.verify_plan import verify_tasks
from vgpu.code_object import CodeObjectError

T = TypeVar("T")


def verify(request: VerifyRequest, *, observer: BuildObserver) -> VerifyReport:
    """Verdicts on the images that the request selects; missing images of a profile are compiled.

    Raises what `ImageBuilder` and `verify_release` raise; UnsupportedError when neither archs nor a release is given.
    """
    if request.release:
        if request.profile:
            raise UnsupportedError(
                "--profile does not fit --release",
                cause="a release has the profile that it was built with",
                hint="./dev verify --release FOLDER",
            )
        return verify_release(
            request.release,
            kernels_root=request.kernels,
            cache=request.cache,
            archs=request.archs,
            only=Only(request.only),
            jobs=request.jobs,
            on_event=observer.verdict,
            on_stage=observer.stage,
            device=request.device,
        )
    if not request.archs:
        raise UnsupportedError(
            "--arch or --release is missing",
            hint="./dev verify --arch gfx908, or --release releases/dist/...",
        )
    plans = make_plans(request, only=Only(request.only))
    with (
        shared_objects(request, observer.note) as shared,
        cluster_of(request, observer.note) as cluster,
    ):
        builder = ImageBuilder(
            request=request, observer=observer, device=request.device, shared=shared, cluster=cluster
        )
        with Cache(request.cache, shared) as cache:
            images = [builder.compile(plan, cache) for plan in plans]
        return joined_report([builder.verify(plan, made) for plan, made in zip(plans, images, strict=True)])


def verify_release(
    folder: Path,
    *,
    kernels_root: Path,
    cache: Path,
    archs: Iterable[str] = (),
    only: Only | None = None,
    jobs: int | None = None,
    on_event: OnEvent | None = None,
    on_stage: Callable[[str], None] | None = None,
    device: bool = False,
) -> VerifyReport:
    """Verdicts on every image of the release in `folder`, once each; only those of `archs` when some are named, and of `only`.

    Raises ReleaseError
    for an archive that is missing, altered or damaged and for an arch that no pack has, PackError, RulesError for a kernel family that
    this checkout does not have, and what `verify_tasks` raises.
    """
    wanted = frozenset(archs)
    packs = [(released, open_files(released.pack)) for released in Release.open(folder).packs()]
    if lacking := wanted - {arch for _, opened in packs for arch in opened.signature.archs}:
        raise ReleaseError(
            f"{folder} has no images for {', '.join(sorted(lacking))}",
            hint=f"./dev verify --release {quote(str(folder))} without --arch",
        )
    selected = (only or Only()).kernels(row for _, opened in packs for row in operator_kernels(opened))
    reports = []
    for released, opened in packs:
        chosen = tuple(arch for arch in opened.signature.archs if not wanted or arch in wanted)
        if chosen:
            check_listed(released, opened)
            name, profile = released.pack.name, opened.signature.profile
            if on_stage:
                on_stage(f"comparing images of {name} with their assembly texts")
            tasks = release_tasks(released, opened, chosen, kernels_root, selected)
            check_dispatch(opened, kernels_root.parent)
            check_texts(tasks, jobs=jobs)
            reports.append(
                verify_tasks(
                    tasks,
                    name,
                    chosen,
                    profile,
                    kernels_root=kernels_root,
                    cache=cache,
                    jobs=jobs,
                    on_event=on_event,
                    on_stage=on_stage,
                    device=device,
                )
            )
    return joined_report(reports)


def check_listed(released: ReleasedPack, opened: OpenPack) -> None:
    """Checks that MANIFEST.json lists exactly the pack's images. Raises ReleaseError."""
    held = {entry.digest.hex() for index in opened.indexes.values() for entry in index.images}
    if odd := sorted(held ^ released.listed):
        raise ReleaseError(
            f"MANIFEST.json and {opened.name} hold different images: {odd[0]} is in one of them only",
            cause="they are of different builds",
            hint="fetch both again",
        )


def release_tasks(
    released: ReleasedPack,
    opened: OpenPack,
    archs: Sequence[str],
    kernels_root: Path,
    selected: frozenset[tuple[str, str]] | None = None,
) -> list[ImageTask]:
    """One task per image of the `selected` kernels (None: all): calls that the pack dispatches to it, bytes, and text.

    Raises ReleaseError and PackError for images that dispatch data do not fit.
    """
    families = load_families(kernels_root)
    folders = {loaded.family.name: loaded.folder for loaded in families}
    _check_steps(opened, families)
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
        family: family_verifier_digest(kernels_root / folders[family], natively=natively)
        for family in {use.kernel.family for found in uses.values() for use in found}
    }
    tasks = [
        ImageTask(
            key=digest,
            label=" = ".join(released.labels.get(digest, ())) or digest,
            arch=arch_of[digest],
            digest=digest,
            binary=binaries[digest],
            asm=_of(released.assembly, released, digest, "assembly text"),
            resources=_of(released.resources, released, digest, "resources"),
            folder=folders[found[-1].kernel.family],
            verifier_digest=verifier[found[-1].kernel.family],
            uses=tuple(found),
        )
        for digest, found in uses.items()
    ]
    _check_launches(opened, tasks)
    return tasks


def check_dispatch(opened: OpenPack, root: Path) -> None:
    """Checks that the pack dispatches all calls as the checkout in `root` plans it: a verdict is about the calls of the cases.

    Without compiling, and without a compiler. Raises ReleaseError, ManifestError, RulesError.
    """
    signature = opened.signature
    profile = signature.profile.removesuffix(ONLY_SUFFIX)
    # a pack of `--only` has these kernels, and shows in its profile's name that it has not all
    names = [kernel.name for kernel in opened.dispatch.kernels] if profile != signature.profile else []
    try:
        plan = plan_project(
            Checkout(root), archs=signature.archs, profile=profile, only=Only(names), toolchain=_any_toolchain
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


def _check_steps(opened: OpenPack, families: Iterable[LoadedFamily]) -> None:
    """Checks that each operator's kernels are launched in the order of their family's rules: no image shows it. Raises ReleaseError."""
    steps: dict[str, set[tuple[int, str]]] = {}
    for loaded in families:
        for kernel in loaded.family.kernels:
            steps.setdefault(kernel.operator, set()).add((kernel.step, f"{loaded.family.name}.{kernel.name}"))
    found: dict[str, set[tuple[int, str]]] = {}
    for one in opened.dispatch.kernels:
        found.setdefault(one.operator, set()).add((one.step, one.name))
    for operator, launched in found.items():
        wanted = steps.get(operator, launched)  # a family that this checkout lacks is named later
        if not launched <= wanted or {step for step, _ in launched} != {step for step, _ in wanted}:
            listed = ", ".join(f"{step}: {name}" for step, name in sorted(launched))
            raise ReleaseError(
                f"{opened.name} executes {operator} in other steps than kernels/: {listed}",
                cause="the release has a part of the operator's kernels, or its dispatch data are altered",
                hint="fetch the release again, or build it again with every kernel of the operator",
            )


def _uses(
    opened: OpenPack, archs: Sequence[str], folders: Mapping[str, str]
) -> Iterator[tuple[str, str, Use]]:
    """Image digest, arch and use of every choice of the pack for `archs`. Raises RulesError for a family that `folders` lacks."""
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
    """Checks that the pack's launch properties are those that each image was compiled for.

    The virtual GPU takes these from image and texts, so no execution could show a difference. Raises ReleaseError, PackError.
    """
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
                        f"{opened.name} launches {kernel.name}'s image {image.digest[:16]} with {name} = {passed}, "
                        f"it was compiled for {wanted}",
                        cause="dispatch data, images and texts are of different builds, or one was altered",
                        hint="fetch the release again, or build it again",
                    )


def _image(task: ImageTask) -> KernelImage | None:
    """The image with its own metadata; None when that cannot be read, which the verifier reports."""
    try:
        found = backend_of_arch(task.arch).read(task.binary)
        return KernelImage(
            key=task.key,
            digest=task.digest,
            symbol=found.symbol,
            binary=task.binary,
            asm=task.asm,
            resources=replace(task.resources, threads=found.threads),
            arguments=found.arguments,
        )
    except (CodeObjectError, KeyError, TypeError, ValueError):
        return None


def operator_kernels(opened: OpenPack) -> Iterator[tuple[str, str, str]]:
    """Family, name and operator of every kernel of a pack."""
    return ((*_names(kernel), kernel.operator) for kernel in opened.dispatch.kernels)


def _names(kernel: DispatchKernel) -> tuple[str, str]:
    family, _, name = kernel.name.partition(".")
    return family, name


def _planned(kernel: DispatchKernel) -> PlannedKernel:
    """Dispatch data in the plan's terms, where kernels are named family.kernel."""
    family, name = _names(kernel)
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


def _of(found: Mapping[str, T], released: ReleasedPack, digest: str, what: str) -> T:
    if digest not in found:
        raise ReleaseError(
            f"the asm archive of {released.pack.name} has no {what} of the image {digest}",
            cause="the archives of images and of texts are of different builds",
            hint="fetch both again",
        )
    return found[digest]
