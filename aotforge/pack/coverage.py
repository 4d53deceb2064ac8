"""Calls that an image pack serves, and the bytes that the first of each costs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from aotforge.pack.container import ENTRY_SIZE, HEADER_SIZE
from aotforge.pack.model import (
    DISPATCH_FILE,
    SIGNATURE_FILE,
    DispatchChoice,
    DispatchFunctional,
    DispatchKernel,
)
from aotforge.pack.reader import OpenPack
from aotforge.rules import DTYPE_NUMBERS, GENERAL_SUFFIX

MASKS = {"full": 0, "window": 1, "bias": 2}
"""Numbers of the key `mask`."""
_NAMES = {
    "dtype": {number: name for name, number in DTYPE_NUMBERS.items()},
    "mask": {number: name for name, number in MASKS.items()},
    "dropout": {0: "off", 1: "on"},
}


@dataclass(frozen=True, kw_only=True)
class FirstCall:
    """The largest first call of a kernel on an arch, in bytes: files `read` (container's index, dictionary,
    image), and what is `decoded` of them (dictionary, image); `image` alone is what the driver loads."""

    read: int
    decoded: int
    image: int


@dataclass(frozen=True, kw_only=True)
class KernelCoverage:
    """What a kernel serves on an arch: numbers of each key, and how many combinations of them have an image
    of their own.

    `general`: numbers of the keys whose combinations have a general image, which serves what the others do
    not.
    """

    kernel: str
    arch: str
    keys: tuple[tuple[str, tuple[int, ...]], ...]
    served: int
    first_call: FirstCall
    general: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def combinations(self) -> int:
        """All that the numbers of the keys make."""
        return prod(len(numbers) for _, numbers in self.keys)

    def text(self) -> str:
        """Numbers of the keys by their names, and the combinations that lack an image."""
        words = _words(self.keys) or "every call"
        if self.served != self.combinations:
            words += f" ({self.served} of {self.combinations})"
        if not self.general:
            return words
        # a ladder's numbers below the last one are calls, too
        general = _words((key, numbers[-1:] if key == "width" else numbers) for key, numbers in self.general)
        general = general.replace("width ", "width to ")
        return f"{words}; general images: {general}" if self.served else f"general images: {general}"


def _words(keys: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    return "; ".join(
        f"{key} {' '.join(_NAMES.get(key, {}).get(number, str(number)) for number in numbers)}"
        for key, numbers in keys
    )


@dataclass(frozen=True, kw_only=True)
class PackCoverage:
    """What a pack serves. `first_bytes` are read once per process, by the first call."""

    pack: str
    archs: tuple[str, ...]
    bytes: int
    first_bytes: int
    images: int
    gates: tuple[str, ...]
    kernels: tuple[KernelCoverage, ...]


def pack_coverage(pack: OpenPack) -> PackCoverage:
    """The table of one pack."""
    return PackCoverage(
        pack=pack.name,
        archs=pack.dispatch.archs,
        bytes=sum(len(source.data) for source in pack.sources.values()),
        first_bytes=sum(len(pack.sources[name].data) for name in (SIGNATURE_FILE, DISPATCH_FILE)),
        images=pack.signature.images,
        gates=tuple(f"{gate.gate} {gate.arch}" for gate in pack.dispatch.gates),
        kernels=tuple(_kernels(pack)),
    )


def _kernels(pack: OpenPack) -> Iterator[KernelCoverage]:
    for kernel in pack.dispatch.kernels:
        for arch in pack.dispatch.archs:
            functionals = [functional for functional in kernel.functionals if functional.arch == arch]
            if functionals:
                special = [f for f in functionals if not all(map(is_general, f.choices))]
                general = [f for f in functionals if any(map(is_general, f.choices))]
                yield KernelCoverage(
                    kernel=kernel.name,
                    arch=arch,
                    keys=_numbers(kernel, special),
                    served=len(special),
                    first_call=_first_call(pack, kernel, functionals),
                    general=_numbers(kernel, general) if general else (),
                )


def is_general(choice: DispatchChoice) -> bool:
    """Whether the image is compiled from a general function (`rules.GeneralSetting`)."""
    return choice.symbol.endswith(GENERAL_SUFFIX)


def _numbers(
    kernel: DispatchKernel, functionals: Sequence[DispatchFunctional]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Numbers of each key."""
    return tuple(
        (name, tuple(sorted({functional.key[at] for functional in functionals})))
        for at, name in enumerate(kernel.keys)
    )


def _first_call(pack: OpenPack, kernel: DispatchKernel, functionals: list[DispatchFunctional]) -> FirstCall:
    index = pack.indexes[kernel.container]
    images = [index.images[choice.image] for functional in functionals for choice in functional.choices]
    head = HEADER_SIZE + ENTRY_SIZE * len(index.images) + index.dictionary_stored
    size = max(image.size for image in images)
    return FirstCall(
        read=head + max(image.stored for image in images), decoded=index.dictionary_size + size, image=size
    )
