"""An image on a device: launches compared bit by bit with the virtual GPU's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aotforge.errors import AotforgeError
from aotforge.verify.executors import DeviceImage, EmulatedImage
from aotforge.verify.interpreter.number_formats import Array
from aotforge.verify.invocation import Case, Invocation, LaunchCall
from aotforge.verify.tensors import Guarded


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Elements of outputs that a device and the virtual GPU computed, and how many have the same bits.

    `first`: one that has not.
    """

    elements: int = 0
    same: int = 0
    first: str = ""

    def __add__(self, other: Bits) -> Bits:
        return Bits(
            elements=self.elements + other.elements,
            same=self.same + other.same,
            first=self.first or other.first,
        )


class ComparedImage:
    """An image on a device; the first launch of each case is repeated on the virtual GPU where there is one
    for the arch.

    `launching` is called with the case's name before the device gets it, and with '' when the device has
    finished.
    """

    runs = DeviceImage.runs

    def __init__(
        self, image: DeviceImage, virtual: EmulatedImage | None, launching: Callable[[str], None]
    ) -> None:
        self._image, self._virtual, self._launching = image, virtual, launching
        self.cuts_sums_off = image.cuts_sums_off
        self.device, self.bits, self.virtual_failure, self._case = image.device, Bits(), "", ""

    def noted(self, cases: Sequence[Case]) -> list[Case]:
        """The same cases; making the data of one notes its name for `launching`."""

        def make(case: Case) -> Invocation:
            self._case = case.name
            return case.make()

        return [replace(case, make=lambda case=case: make(case)) for case in cases]  # type: ignore[misc]

    def findings(self) -> list[str]:
        """Hazards of the arch in the machine code."""
        return self._virtual.findings() if self._virtual else []

    def run(self, call: LaunchCall) -> Counter[str]:
        """Wave-instructions by name, counted on the virtual GPU. Raises AotforgeError for a fault of the
        device."""
        outputs = call.invocation.outputs
        before = {name: tensor.storage.copy() for name, tensor in outputs.items()}
        self._launching(self._case)
        self._image.run(call)
        self._launching("")
        if call.number or self._virtual is None or self.virtual_failure:
            return Counter()
        found = {name: tensor.storage.copy() for name, tensor in outputs.items()}
        _restore(outputs, before)
        try:
            counts = self._virtual.run(replace(call, on_print=None))
        except AotforgeError as error:
            self.virtual_failure = f"{self._case}: {error}"
            return Counter()
        finally:
            virtual = {name: tensor.storage.copy() for name, tensor in outputs.items()}
            _restore(outputs, found)
        for name, tensor in outputs.items():
            self.bits += _same_bits(f"{self._case}: {name}", tensor, virtual[name])
        return counts


def _restore(outputs: Mapping[str, Guarded], storages: Mapping[str, Array]) -> None:
    for name, tensor in outputs.items():
        tensor.storage[...] = storages[name]


def _same_bits(name: str, tensor: Guarded, virtual: Array) -> Bits:
    """The device's elements, in `tensor`, beside the virtual GPU's storage of it. All NaN are the same."""
    found, numbers = tensor.bits().copy(), tensor.values()
    kept = tensor.storage.copy()
    tensor.storage[...] = virtual
    wanted, others = tensor.bits().copy(), tensor.values()
    tensor.storage[...] = kept
    same = found == wanted
    if numbers.dtype.kind == "f":
        same |= np.isnan(numbers) & np.isnan(others)
    first = ""
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        first = f"{name} at {at} is {numbers[at]!s} (0x{int(found[at]):x}) on the device, "
        first += f"{others[at]!s} (0x{int(wanted[at]):x}) on the virtual GPU"
    return Bits(elements=int(same.size), same=int(same.sum()), first=first)
