"""Interface of `kernels/<family>/cases.py`: the calls on which each image of a family is executed.

The module has one function:

    def cases(kernel: str, keys: Mapping[str, int]) -> Sequence[Case]

`kernel` is the kernel's name, of general images with GENERAL_SUFFIX (aotforge/rules.py). `keys` are the
functional's numbers by operator value, e.g. {"dtype": 2, "width": 64}. Each image is executed on the cases
that are dispatched to it: the list needs aligned and unaligned tensors, and every range of a setting.

It may offer calls of any shape for measuring, `SHAPE` being the names with a typical call's numbers:

    SHAPE: Mapping[str, int]
    def shaped(kernel: str, keys: Mapping[str, int], shape: Mapping[str, int]) -> Case
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from aotforge.errors import RulesError
from aotforge.plan.families import family_errors, family_module
from aotforge.verify.compare import Exact, Expected
from aotforge.verify.interpreter.dispatch import Launch, Use
from aotforge.verify.tensors import Guarded
from vgpu.emulator.hooks import OnPrint
from vgpu.memory import Memory


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """New data of one launch. `inputs` must not change, `outputs` start as canaries.

    `values`: the operator's, with addresses of tensors. `expected`: what each output is compared with.
    """

    values: Mapping[str, int | float]
    inputs: Mapping[str, Guarded]
    outputs: Mapping[str, Guarded]
    expected: Callable[[], Mapping[str, Expected | Exact]]

    def memory(self) -> Memory:
        """All tensors, by name."""
        return Memory({name: tensor.storage for name, tensor in {**self.inputs, **self.outputs}.items()})


@dataclass(frozen=True, kw_only=True)
class Case:
    """A named call; `make` gives new tensors each time, with the same numbers in them.

    `unless_reached`: only for images that no earlier case without this mark reaches, as it is large.
    `special`: the same call with special numbers (specials.py), `elements` of the largest tensor that has
    them: an image is executed on that of one of its cases.
    """

    name: str
    make: Callable[[], Invocation]
    unless_reached: bool = False
    special: Callable[[], Invocation] | None = None
    elements: int = 0


@dataclass(frozen=True, kw_only=True)
class LaunchCall:
    """A launch of an image for a case, whose launches `number` counts."""

    use: Use
    launch: Launch
    invocation: Invocation
    case: str = ""
    number: int = 0
    seed: int = 0
    on_print: OnPrint | None = None


class ImageRunner(ABC):
    """One image, loaded. `runs` names the launches of a case, the first one ''.

    `device` is '' for the virtual GPU; `truncates_sums`: as in the arch's back end.
    """

    runs: tuple[str, ...]
    device: str = ""
    truncates_sums: bool = False

    def findings(self) -> list[str]:
        """Failures that reading the image shows."""
        return []

    @abstractmethod
    def run(self, call: LaunchCall) -> Counter[str]:
        """One launch. Returns wave-instructions by name. Raises AotforgeError for a fault."""


Cases = Callable[[str, Mapping[str, int]], Sequence[Case]]
Shaped = Callable[[str, Mapping[str, int], Mapping[str, int]], Case]


def load_cases(root: Path, folder: str) -> Cases | None:
    """A family's function `cases`; None without cases.py. Raises RulesError for an invalid module."""
    module = _module(root, folder)
    if module and not callable(getattr(module, "cases", None)):
        hint = "see aotforge/verify/invocation.py"
        raise RulesError(f"{root / folder / 'cases.py'} has no function cases", hint=hint)
    return module.cases if module else None


def require_cases(root: Path, folder: str) -> Cases:
    """As `load_cases`. Raises RulesError without cases.py, too."""
    cases = load_cases(root, folder)
    if cases is None:
        raise RulesError(
            f"the family in kernels/{folder} has no cases",
            cause=f"kernels/{folder}/cases.py does not exist",
            hint="write it as aotforge/verify/invocation.py describes",
        )
    return cases


def load_shaped(root: Path, folder: str) -> tuple[Mapping[str, int], Shaped] | None:
    """SHAPE and the function `shaped` of a family, if it has them. Raises RulesError."""
    module = _module(root, folder)
    if module is None or not callable(getattr(module, "shaped", None)):
        return None
    return dict(module.SHAPE), module.shaped


def case_errors(folder: Path) -> AbstractContextManager[None]:
    """As `family_errors`, of the cases of the family in `folder`."""
    hint = "correct this line; aotforge/verify/invocation.py describes cases.py"
    return family_errors(folder, folder / "cases.py", hint)


def _module(root: Path, folder: str) -> ModuleType | None:
    file = root / folder / "cases.py"
    if not file.exists():
        return None
    with case_errors(file.parent):
        return family_module(file.parent, "cases")
