"""Writer of image packs: a function of the plan and its images."""

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import zstandard

from aotforge.compile.model import KernelImage
from aotforge.errors import PackError
from aotforge.pack.binary import FILE_NAME, Source
from aotforge.pack.container import encode_container, read_index
from aotforge.pack.contract import check_arguments, check_plan
from aotforge.pack.dispatch import encode_dispatch
from aotforge.pack.model import (
    CONTAINER_SUFFIX,
    DISPATCH_FILE,
    SIGNATURE_FILE,
    Compressor,
    ContainerIndex,
    DispatchChoice,
    DispatchContainer,
    DispatchFunctional,
    DispatchKernel,
    DispatchTable,
    ImagePack,
)
from aotforge.pack.reader import open_files
from aotforge.pack.signature import ContainerRecord, Signature, TritonBuild, encode_signature
from aotforge.plan.model import JobKey, Plan, PlannedChoice, PlannedKernel


def write_pack(
    plan: Plan, images: Iterable[KernelImage], *, release: str, compressor: Compressor | None = None
) -> ImagePack:
    """The plan's image pack, read back and verified before it is returned.

    The plan is the contract: PackError when an image is missing, when an operator lacks a
    step, when a code object takes other arguments than the plan passes, or when a bound of the format is
    exceeded. `release` is recorded in `__signature__`. Equal input gives equal bytes in any order of
    `images`.
    """
    compressor = compressor or Compressor()
    by_key = _by_key(plan, images)
    check_plan(plan)
    kernels = sorted(plan.kernels, key=lambda kernel: (kernel.operator, kernel.step))
    files: dict[str, bytes] = {}
    indexes: dict[str, ContainerIndex] = {}
    for kernel in kernels:
        file = container_file(kernel)
        images_of = (by_key[choice.job].binary for f in kernel.functionals for choice in f.choices)
        files[file] = encode_container(images_of, compressor, file=file)
        indexes[file] = read_index(Source(file, files[file]))
    table = DispatchTable(
        archs=tuple(sorted(plan.archs)),
        containers=tuple(
            DispatchContainer(file=file, identity=indexes[file].identity) for file in sorted(indexes)
        ),
        operators=tuple(sorted(plan.operators, key=lambda operator: operator.name)),
        kernels=tuple(_kernel(kernel, indexes[container_file(kernel)], by_key) for kernel in kernels),
        gates=plan.gates,
    )
    files[DISPATCH_FILE] = encode_dispatch(table, file=DISPATCH_FILE)
    files[SIGNATURE_FILE] = encode_signature(
        _signature(plan, table, indexes, files[DISPATCH_FILE], release=release, compressor=compressor)
    )
    pack = ImagePack(name=plan.pack, files=MappingProxyType(dict(sorted(files.items()))))
    open_files(pack).check_images()
    return pack


def container_file(kernel: PlannedKernel) -> str:
    """File name of a kernel's container. Raises PackError when the names do not make one."""
    name = f"{kernel.family}.{kernel.name}{CONTAINER_SUFFIX}"
    if not FILE_NAME.fullmatch(name):
        raise PackError(
            f"{name!r} cannot be a container's file name",
            cause="families and kernels have names of ASCII letters, digits, '_', '.', '-', 64 in all",
            hint="rename the kernel family or the kernel",
        )
    return name


def _by_key(plan: Plan, images: Iterable[KernelImage]) -> Mapping[JobKey, KernelImage]:
    by_key = {image.key: image for image in images}
    for image in by_key.values():
        if hashlib.sha256(image.binary).hexdigest() != image.digest:
            raise PackError(f"the image of compile job {image.key} does not match its SHA-256 {image.digest}")
    planned = {job.key: job.label for job in plan.jobs}
    missing = [f"{label} ({key})" for key, label in planned.items() if key not in by_key]
    if missing:
        raise PackError(
            f"{len(missing)} of {len(planned)} images are missing, first {missing[0]}",
            cause="not every compile job of the plan has finished",
            hint="compile the complete plan before packing it",
        )
    return by_key


def _kernel(
    kernel: PlannedKernel, index: ContainerIndex, by_key: Mapping[JobKey, KernelImage]
) -> DispatchKernel:
    numbers = {entry.digest.hex(): number for number, entry in enumerate(index.images)}
    null_pointers = {check_arguments(kernel, by_key[c.job]) for f in kernel.functionals for c in f.choices}
    if len(null_pointers) != 1:
        raise PackError(
            f"images of {kernel.family}.{kernel.name} differ in scratch pointers: {sorted(null_pointers)}"
        )

    def dispatch_choice(choice: PlannedChoice) -> DispatchChoice:
        image = by_key[choice.job]
        return DispatchChoice(
            image=numbers[image.digest],
            symbol=image.symbol,
            dynamic_shared_bytes=image.resources.dynamic_shared_bytes,
            threads=image.resources.threads,
            predicates=choice.predicates,
            grid=choice.grid,
        )

    return DispatchKernel(
        name=f"{kernel.family}.{kernel.name}",
        operator=kernel.operator,
        step=kernel.step,
        container=container_file(kernel),
        keys=kernel.keys,
        ladder=kernel.ladder,
        parameters=tuple((parameter.type, parameter.value) for parameter in kernel.parameters),
        null_pointers=null_pointers.pop(),
        functionals=tuple(
            DispatchFunctional(arch=f.arch, key=f.key, choices=tuple(map(dispatch_choice, f.choices)))
            for f in sorted(kernel.functionals, key=lambda f: (f.arch, f.key))
        ),
    )


def _signature(
    plan: Plan,
    table: DispatchTable,
    indexes: Mapping[str, ContainerIndex],
    dispatch: bytes,
    *,
    release: str,
    compressor: Compressor,
) -> Signature:
    return Signature(
        format=1,
        pack=plan.pack,
        archs=table.archs,
        profile=plan.profile,
        complete=plan.complete,
        release=release,
        operators={operator.name: operator.interface_hash() for operator in table.operators},
        triton=TritonBuild(
            version=plan.toolchain.triton_version,
            digest=plan.toolchain.triton_digest,
            llvm=plan.toolchain.llvm_revision,
        ),
        source=plan.source_digest,
        settings=plan.settings_digest,
        compressor=_describe(compressor),
        containers={
            file: ContainerRecord(images=len(index.images), id=index.identity.hex())
            for file, index in indexes.items()
        },
        images=sum(len(index.images) for index in indexes.values()),
        dispatch=hashlib.sha256(dispatch).hexdigest(),
    )


def _describe(compressor: Compressor) -> str:
    """The compressor as `__signature__` has it: version and settings, which together fix the bytes."""
    version = ".".join(str(part) for part in zstandard.ZSTD_VERSION)
    return f"zstd {version}, level {compressor.level}, dictionary {compressor.dictionary_bytes}"
