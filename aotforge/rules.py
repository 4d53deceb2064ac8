"""The vocabulary of `kernels/<family>/rules.py`: what a kernel family is, as plain values.

A family lists operators (what callers request, as named values) and kernels (what computes it, one per step).
The plan expands a kernel into images:

for every functional (one value of every Choice that the constraints allow) for every Setting with `hinted`
that the family offers this arch for that functional, in order one image, tried when `Setting.when` and every
argument hint hold for every Setting with `unaligned`, in order one more image without hints, tried when
`Setting.when` holds, so that unaligned tensors are served too

At run time the library looks the functional up by its key values and takes the first image whose predicates
hold. This module imports nothing but the standard library, so that planning never loads Triton.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

ValueType = Literal["ptr", "i32", "i64", "u64", "f32"]
"""Types of operator values and of kernel parameters as the runtime passes them (all little-endian, natural
alignment)."""

Vendor = Literal["amd", "nvidia", "cpu"]
"""Who defines an arch: selects the package of `aotforge/targets` that compiles and reads its images."""

Scalar = int | str | bool
"""A choice's value or a constexpr."""

Functional = Mapping[str, Scalar]
"""One value per Choice name, e.g. {"dtype": "fp16", "width": 64, "mask": "window"}."""


DTYPE_NUMBERS: Mapping[str, int] = {
    "fp32": 1, "fp16": 2, "bf16": 3, "i8": 10, "i16": 11, "i32": 12, "i64": 13, "u8": 20, "u16": 21,
    "u32": 22, "u64": 23, "fp64": 101, "fp8e5": 111, "fp8e4nv": 112, "fp8e4b8": 113, "fp8e5b16": 114,
    "i1": 120,
}  # fmt: skip
"""The number of an element type in an operator value: `aotriton::DType` up to 99, beyond it types that
AOTriton lacks."""


def dtypes(*names: str) -> dict[Scalar, int]:
    """Options of a Choice of element types. Raises ValueError for a name that is not an element type."""
    if unknown := sorted(set(names) - DTYPE_NUMBERS.keys()):
        raise ValueError(f"{unknown[0]!r} is not an element type; those are {', '.join(DTYPE_NUMBERS)}")
    return {name: DTYPE_NUMBERS[name] for name in names}


@dataclass(frozen=True, kw_only=True)
class Value:
    """A named value that callers of an operator hand over; the runtime resolves kernel parameters by these
    names."""

    name: str
    type: ValueType


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A request of callers. The order of `values` is part of the interface."""

    name: str
    values: tuple[Value, ...]

    def interface(self) -> str:
        """Canonical ASCII text of the interface: `name(value:type,...)`."""
        return f"{self.name}({','.join(f'{v.name}:{v.type}' for v in self.values)})"

    def interface_hash(self) -> str:
        """SHA-256 of `interface()`, hexadecimal; runtime and pack must agree on it."""
        return hashlib.sha256(self.interface().encode("ascii")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Choice:
    """An axis of functionals. `options` maps each value to the number that the operator value `key` holds for
    it.

    `ladder`: a call takes the smallest planned number at or above the value, among functionals that agree
    with it otherwise. The last choice of a kernel alone may be one.
    """

    name: str
    key: str
    options: Mapping[Scalar, int]
    ladder: bool = False


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A run-time kernel parameter.

    `type` is Triton's spelling; `{choice}` inserts a choice's value, as in "*{dtype}". `value` names the
    operator value that fills it. `divisible_by` is the hint given to the compiler and checked before every
    launch: bytes for a pointer, units for an integer.
    """

    name: str
    type: str
    value: str
    divisible_by: int | None = None


Measured = str | tuple[str, ...]
"""What a condition is about: an operator value, or the exact product of one to four integer values, as in
("m", "n")."""


@dataclass(frozen=True, kw_only=True)
class Between:
    """Run-time condition: the value or product is in [low, high], both included. `u64` above 2^63 - 1 are in
    no range."""

    value: Measured
    low: int = -(2**63)
    high: int = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Equals:
    """Run-time condition: the value or product is `to`."""

    value: Measured
    to: int


@dataclass(frozen=True, kw_only=True)
class MultipleOf:
    """Run-time condition: the value or product is a multiple of `of`; zero is. A single value may be a
    pointer."""

    value: Measured
    of: int


Condition = Between | Equals | MultipleOf


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One tuned configuration. `constants` are constexpr parameters (block sizes), the rest are Triton's
    options.

    `options` are the other options of Triton's back end for the arch by name, e.g. {"enable_fp_fusion":
    False}. `waves_per_eu`, `matrix_instr_nonkdim` and `kpack` are AMD's. Calls for which every condition of
    `when` holds are served; of those whose tensors are not aligned, only with `unaligned`. Without `hinted`
    there is no image with hints: the one without them serves aligned tensors, too.
    """

    constants: Mapping[str, Scalar] = field(default_factory=dict)
    when: tuple[Condition, ...] = ()
    unaligned: bool = True
    hinted: bool = True
    num_warps: int = 4
    num_stages: int = 2
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 1
    options: Mapping[str, Scalar] = field(default_factory=dict)


GENERAL_SUFFIX = "_general"
"""Ends the name of a function that takes every call of a kernel: so the symbols of a pack distinguish its
images from others."""


@dataclass(frozen=True, kw_only=True)
class GeneralSetting(Setting):
    """A setting that profiles keep for functionals whose values they leave out, too: it serves what no other
    image of a profile does.

    With a `source`, a file beside rules.py, its function named as the kernel's with GENERAL_SUFFIX is
    compiled. It takes the kernel's arguments, and `constants` are all of its constexpr parameters: so one
    image serves many functionals. `name` is in its label, and no other general image of the kernel has it.
    """

    source: str = ""
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Term:
    """A factor of a grid axis: ceil(operator value / divisor). `divisor` is a number or a constexpr's
    name."""

    value: str
    divisor: int | str = 1


@dataclass(frozen=True, kw_only=True)
class Target:
    """What rules may know of an arch, from manifests/architectures.yaml.

    `warp_size`: lanes of a warp. `shared_bytes`: the most shared memory of one workgroup.
    """

    arch: str
    vendor: Vendor
    warp_size: int
    matrix: str
    shared_bytes: int

    def identity(self) -> dict[str, object]:
        """The target in a job key, under the names of the first recipe, which knew one vendor. The vendor
        follows from the arch's name."""
        return {
            "arch": self.arch,
            "wavefront": self.warp_size,
            "matrix": self.matrix,
            "lds_bytes": self.shared_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the compiled image may use. Exceeding the arch's shared memory is always rejected."""

    spills: Literal["report", "reject"] = "reject"


def _no_constants(functional: Functional) -> Mapping[str, Scalar]:
    return {}


def _always(functional: Functional) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One Triton kernel and how it serves one step of an operator.

    `source` is a file beside rules.py, `function` the `@triton.jit` function in it. `arguments` come in the
    order of the function's run-time parameters; every other parameter is constexpr and is filled by
    `constants(functional)` or by the setting. `grid` has one tuple of factors per axis, x first.
    `shared_bytes`: shared memory that a workgroup of a setting needs at least, where rules can state it: a
    plan refuses settings that need more than the target has.
    """

    name: str
    source: str
    function: str
    operator: str
    choices: tuple[Choice, ...]
    arguments: tuple[Argument, ...]
    settings: Callable[[Target, Functional], tuple[Setting, ...]]
    grid: tuple[tuple[Term, ...], ...]
    step: int = 0
    constants: Callable[[Functional], Mapping[str, Scalar]] = _no_constants
    allowed: Callable[[Functional], bool] = _always
    limits: Limits = Limits()
    shared_bytes: Callable[[Functional, Setting], int] | None = None


@dataclass(frozen=True, kw_only=True)
class GateCalls:
    """Calls of an operator: every combination of the numbers in `values`, by operator value.

    A ladder's numbers are the largest ones: all below them are calls too. `uses` are values that some kernel
    must use. Archs that begin with one of `except_archs` get no such calls.
    """

    operator: str
    values: Mapping[str, tuple[int, ...]]
    uses: tuple[str, ...] = ()
    except_archs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gate:
    """All calls that a client may make once a query stated that a GPU is served. A pack lists the gates that
    it serves."""

    name: str
    calls: tuple[GateCalls, ...]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a function of the operator library.

    A tensor's last axes are its core axes, which `axes` names from the outermost in; axes of one name have
    one size. The axes before them are batch axes, which broadcast. It is the signature of NumPy's generalized
    ufuncs: rows are ("columns",), elements (). `reused`: the output may be this input, element by element.
    `number`: a double in C; in operator values f32, or i64: of tensors of integers the number itself, of
    floats the bits of the double. `axis`: an int64 in C: which axis of the tensors that have the core axis is
    that axis, instead of the last one.
    """

    name: str
    kind: Literal["input", "output", "number", "axis"]
    axes: tuple[str, ...] = ()
    reused: bool = False


@dataclass(frozen=True, kw_only=True)
class OptionalInput(Parameter):
    """An input that callers may leave out, as a null pointer.

    Operators have its address, 0 without it, and as `has_<name>` (i32) 1 with it.
    """

    kind: Literal["input"] = "input"


@dataclass(frozen=True, kw_only=True)
class Option(Parameter):
    """One of `options`: in C an int with an enumerator each, in operator values its place among them
    (i32)."""

    kind: Literal["number"] = "number"
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Form:
    """An operator that computes a function, and the calls that it serves.

    Batch axes that are adjacent in all tensors are merged first; axis 0 is then the innermost. `rank`: the
    most batch axes. `dense`: the strides of axis 0 are 1. `least`: the smallest size of axis 0; `least_area`:
    of axes 0 and 1 together. `most`: the most batch elements of a launch; larger calls become several. The
    operator's values are found by name: parameters; `n` (batch elements), `rank`, `dtype`, `size_<axis>`,
    `stride_<parameter>_<axis>`; of core axes `<name>` (the size) and `stride_<parameter>_<name>`. Without a
    value of the operator, a stride is 1 for a core axis and axis 0 of `dense`, else 0: other calls take
    another form.
    """

    operator: str
    rank: int
    dense: bool = False
    least: int = 1
    least_area: int = 1
    most: int = 2**30


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of the operator library, `aotforge_<name>`: tensors of one element type, of them one output.

    `summary` is what it computes, for the header. `dtypes` are the element types. A call takes the first of
    `forms` that serves it.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    dtypes: tuple[str, ...]
    forms: tuple[Form, ...]


@dataclass(frozen=True, kw_only=True)
class IndependentAxes(Function):
    """A function whose results along the core axes `independent` do not depend on each other.

    Batch axes that extend such an axis, and along which tensors without it are broadcast, are merged into it.
    """

    independent: tuple[str, ...]


def batch_values(tensors: tuple[str, ...], rank: int, *, first: int = 0) -> tuple[Value, ...]:
    """Operator values of `rank` batch axes: sizes but that of the outermost, which follows from `n`, and
    strides from axis `first` on."""
    sizes = (Value(name=f"size_{axis}", type="i32") for axis in range(rank - 1))
    strides = (
        Value(name=f"stride_{tensor}_{axis}", type="i64") for tensor in tensors for axis in range(first, rank)
    )
    return (*sizes, *strides)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Everything that a folder below kernels/ declares; `rules.py` assigns it to FAMILY."""

    name: str
    operators: tuple[Operator, ...]
    kernels: tuple[Kernel, ...]
    gates: tuple[Gate, ...] = ()
    functions: tuple[Function, ...] = ()
