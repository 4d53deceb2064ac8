"""Models of `compat/pytorch_calls.yaml`: what each PyTorch release's sources use of AOTriton."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from aotforge.base.manifest_reader import Manifest, load


class Call(Manifest):
    """A function of interface version 2 and the types of the arguments that PyTorch passes."""

    function: str
    arguments: tuple[str, ...]


class Version3(Manifest):
    """How params of interface version 3 are used. `delta`: what params.D is set to."""

    delta: Literal["tensor", "lazy", "lazy-self"]
    dq_acc: bool = False
    deterministic: bool = False
    strided_varlen: bool = False


class CallSet(Manifest):
    """The uses of one or several PyTorch releases. `gate` must hold when it is compiled; `macros`: it forms AOTRITON_VERSION_INT from
    config.h; `gpu_question`: it asks isArchExperimentallySupported; `refusal`: what stands against our level.
    """

    levels: Annotated[tuple[str, ...], Field(min_length=1)]
    v2: tuple[str, ...] = ()
    v3: Version3 | None = None
    gate: str = ""
    macros: bool = False
    defines: tuple[str, ...] = ()
    gpu_question: bool = False
    refusal: str = ""


class Fields(Manifest):
    """Fields of the params structs by type: of both, of the forward and of the backward pass."""

    both: dict[str, str]
    fwd: dict[str, str]
    bwd: dict[str, str]


class Calls(Manifest):
    """The whole of pytorch_calls.yaml."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    dtypes: tuple[str, ...]
    headers: tuple[str, ...]
    v2: dict[str, Call]
    v3_fields: Fields
    constants: dict[str, tuple[str, ...]]
    sets: dict[str, CallSet]

    @model_validator(mode="after")
    def _calls_exist(self) -> Calls:
        for name, used in self.sets.items():
            if unknown := set(used.v2) - self.v2.keys():
                raise ValueError(f"set {name} uses {min(unknown)}, which `v2` lacks")
        return self


def load_calls(path: Path) -> Calls:
    """Reads compat/pytorch_calls.yaml. Raises ManifestError."""
    return load(path, Calls)
