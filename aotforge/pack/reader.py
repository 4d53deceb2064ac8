"""Strict reader of untrusted packs, from a directory or from bytes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import PackError
from aotforge.formats.untrusted_file import UNPACKED_LIMIT, read_regular
from aotforge.pack.binary import Source, damaged
from aotforge.pack.container import check_decoded_size, read_images, read_index
from aotforge.pack.dispatch import SIZE_LIMIT as DISPATCH_LIMIT
from aotforge.pack.dispatch import decode_dispatch
from aotforge.pack.model import DISPATCH_FILE, SIGNATURE_FILE, ContainerIndex, DispatchTable, ImagePack
from aotforge.pack.signature import SIZE_LIMIT as SIGNATURE_LIMIT
from aotforge.pack.signature import Signature, decode_signature


@dataclass(frozen=True, kw_only=True)
class OpenPack:
    """A pack whose signature, dispatch data and container indexes agree; its images are not read yet."""

    name: str
    signature: Signature
    dispatch: DispatchTable
    indexes: Mapping[str, ContainerIndex]
    sources: Mapping[str, Source]

    def images(self, container: str) -> dict[bytes, bytes]:
        """Every image of a container by digest, verified. Raises PackError."""
        return read_images(self.sources[container], self.indexes[container])

    def check_images(self) -> None:
        """Decodes and verifies every image. Raises PackError."""
        for container in self.indexes:
            self.images(container)


def open_pack(path: Path) -> OpenPack:
    """Opens the pack in a directory; images are decoded later. Raises PackError with file and reason."""
    try:
        files = {file.name: read_regular(file, limit=UNPACKED_LIMIT) for file in path.iterdir()}
    except OSError as error:
        raise PackError(
            f"{error.filename or path}: {error.strerror}",
            cause="the path is not an image pack",
            hint="name a folder that has a __signature__, a release folder, or its tarball of images",
        ) from error
    return open_files(ImagePack(name=path.name, files=files), str(path))


def read_pack(path: Path) -> ImagePack:
    """The pack in a directory, every image of it decoded and compared with its digest. Raises PackError."""
    opened = open_pack(path)
    opened.check_images()
    files = {name: source.data for name, source in sorted(opened.sources.items())}
    return ImagePack(name=opened.name, files=files)


def open_files(pack: ImagePack, where: str = "") -> OpenPack:
    """Opens a pack in memory, with the same checks; `where` replaces its name in errors."""
    where = where or pack.name

    def source(name: str, limit: int = UNPACKED_LIMIT) -> Source:
        if name not in pack.files:
            raise damaged(f"{where}/{name}", "is missing, __signature__ names it")
        if (size := len(pack.files[name])) > limit:
            raise damaged(f"{where}/{name}", f"has {size} bytes, {limit} are allowed")
        return Source(f"{where}/{name}", pack.files[name])

    file = source(SIGNATURE_FILE, SIGNATURE_LIMIT)
    signature = decode_signature(file.data, file=file.name)
    expected = {SIGNATURE_FILE, DISPATCH_FILE, *signature.containers}
    if unexpected := sorted(pack.files.keys() - expected):
        raise damaged(f"{where}/{unexpected[0]}", "is not part of the pack by its __signature__")
    sources = {name: source(name) for name in sorted(expected)}
    file = source(DISPATCH_FILE, DISPATCH_LIMIT)
    dispatch = decode_dispatch(file.data, file=file.name)
    if hashlib.sha256(file.data).hexdigest() != signature.dispatch:
        raise damaged(file.name, "is not the dispatch data that __signature__ names")
    indexes = {file: read_index(sources[file]) for file in sorted(signature.containers)}
    check_decoded_size(where, [(sources[file], index) for file, index in indexes.items()])
    opened = OpenPack(
        name=pack.name, signature=signature, dispatch=dispatch, indexes=indexes, sources=sources
    )
    _check_agreement(opened, where)
    _check_images_exist(opened, where)
    return opened


def _check_agreement(opened: OpenPack, where: str) -> None:
    """Signature, dispatch data and containers agree with each other."""
    signature, dispatch = opened.signature, opened.dispatch
    operators = {operator.name: operator.interface_hash() for operator in dispatch.operators}
    if (signature.archs, signature.operators) != (dispatch.archs, operators):
        raise damaged(f"{where}/{SIGNATURE_FILE}", "names other archs or operators than the dispatch data")
    if {container.file for container in dispatch.containers} != set(signature.containers):
        raise damaged(f"{where}/{DISPATCH_FILE}", "names other containers than __signature__")
    for container in dispatch.containers:
        index, record = opened.indexes[container.file], signature.containers[container.file]
        if index.identity != container.identity:
            raise damaged(f"{where}/{container.file}", "is not the container that the dispatch data names")
        if index.identity.hex() != record.id:
            raise damaged(
                f"{where}/{SIGNATURE_FILE}", f"names another {container.file} than the dispatch data"
            )
        if len(index.images) != record.images:
            raise damaged(f"{where}/{SIGNATURE_FILE}", f"counts the images of {container.file} differently")
    if sum(len(index.images) for index in opened.indexes.values()) != signature.images:
        raise damaged(f"{where}/{SIGNATURE_FILE}", "does not add up its images")


def _check_images_exist(opened: OpenPack, where: str) -> None:
    """Every choice has its image, every image a choice."""
    used: dict[str, set[int]] = {file: set() for file in opened.indexes}
    for kernel in opened.dispatch.kernels:
        for functional in kernel.functionals:
            used[kernel.container].update(choice.image for choice in functional.choices)
    for file, numbers in used.items():
        count = len(opened.indexes[file].images)
        if numbers != set(range(count)):
            stray = sorted(numbers ^ set(range(count)))[0]
            raise damaged(
                f"{where}/{file}",
                f"image {stray} of {count} is called for and missing, or there and never called for",
            )
