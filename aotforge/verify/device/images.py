"""An image on a device: launches compared bit by bit with the virtual GPU's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from multiprocessing.connection import Connection

import numpy as np

from aotforge.errors import AotforgeError
from aotforge.verify.device.messages import Bits
from aotforge.verify.executors import DeviceImage, EmulatedImage
from aotforge.verify.interpreter.number_formats import Array
from aotforge.verify.invocation import ImageRunner, LaunchCall
from aotforge.verify.tensors import Guarded


class ComparedImage(ImageRunner):
    """An image on a device, with the first launch of each case repeated on the virtual GPU, if any.

    The connection receives a `Progress` before and after each launch on the device.
    """

    runs = DeviceImage.runs

    def __init__(self, image: DeviceImage, virtual: EmulatedImage | None, connection: Connection) -> None:
        self._image, self._virtual, self._connection = image, virtual, connection
        self.truncates_sums, self.device = image.truncates_sums, image.device
        self.bits, self.virtual_failure = Bits(), ""

    def findings(self) -> list[str]:
        """Hazards of the arch in the machine code."""
        return self._virtual.findings() if self._virtual else []

    def run(self, call: LaunchCall) -> Counter[str]:
        """Counts of the virtual GPU. Raises AotforgeError for a fault of the device."""
        outputs = call.invocation.outputs
        before = {name: tensor.storage.copy() for name, tensor in outputs.items()}
        self._connection.send(call.case)
        self._image.run(call)
        self._connection.send("")
        if call.number or self._virtual is None or self.virtual_failure:
            return Counter()
        found = {name: (t.bits().copy(), t.values(), t.storage.copy()) for name, t in outputs.items()}
        for name, tensor in outputs.items():
            tensor.storage[...] = before[name]
        try:
            counts = self._virtual.run(replace(call, on_print=None))
            for name, tensor in outputs.items():
                self.bits += _same_bits(f"{call.case}: {name}", *found[name][:2], tensor)
        except AotforgeError as error:
            self.virtual_failure = f"{call.case}: {error}"
            return Counter()
        finally:
            for name, (_, _, storage) in found.items():
                outputs[name].storage[...] = storage
        return counts


def _same_bits(name: str, found: Array, numbers: Array, virtual: Guarded) -> Bits:
    """The device's bits and numbers beside the virtual GPU's. All NaN are the same."""
    wanted, others = virtual.bits(), virtual.values()
    same = found == wanted
    if numbers.dtype.kind == "f":
        same |= np.isnan(numbers) & np.isnan(others)
    first = ""
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        first = f"{name} at {at} is {numbers[at]!s} (0x{int(found[at]):x}) on the device, "
        first += f"{others[at]!s} (0x{int(wanted[at]):x}) on the virtual GPU"
    return Bits(elements=int(same.size), same=int(same.sum()), first=first)
