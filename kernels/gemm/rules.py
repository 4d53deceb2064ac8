"""Matrix product with bias and activation: tiles by the settings of manifests/tuning, few rows apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from aotforge.base.tuning import tuning
from aotforge.rules import (
    Argument,
    Between,
    Choice,
    Condition,
    Family,
    Form,
    Functional,
    IndependentAxes,
    Kernel,
    MultipleOf,
    Operator,
    Option,
    OptionalInput,
    Parameter,
    Setting,
    Target,
    Term,
    dtypes,
)

from .operators import CORES, GEMM_NN, GEMM_NT, GEMM_STRIDED, RANK, TENSORS

ACTIVATIONS = ("none", "relu", "gelu", "silu")
_DTYPES = ("fp16", "bf16", "fp32")
_FEW_ROWS, _ANY_ROWS = 16, 2**31 - 1
_ANY = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A configuration for some dtypes (all when empty); the first of each kind that fits is taken.

    `few`: for at most 16 rows. `least`: for aligned matrices of at least as many elements of the output and
    at most `most`, and with `even` an `inner` that is a multiple of `block_k`; `most_rows`, `least_columns`:
    for aligned ones of at most as many rows, at least as many columns; `complete`: of complete blocks of
    rows. Without these it serves all calls, with `unaligned` those that are not aligned, and with `strided`
    those whose strides have no vectors.
    `weight`: the
    kernel that it is for, nn or nt (both when empty). `halves`: the activation takes
    half of the columns at a time, which halves its registers. `archs`: those of the file that it is for (all
    when empty).
    """

    block_m: int
    block_n: int
    block_k: int
    num_warps: int = 4
    num_stages: int = 2
    waves_per_eu: int = 0
    mfma: int = 0
    group: int = 8
    dtypes: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    few: bool = False
    least: int = 0
    most: int = _ANY
    most_rows: int = 0
    least_columns: int = 0
    complete: bool = False
    even: bool = False
    weight: str = ""
    unaligned: bool = False
    strided: bool = False
    halves: bool = False

    @property
    def when(self) -> tuple[Condition, ...]:
        """Conditions of a call; none for a configuration that serves all."""
        found: tuple[Condition, ...] = ()
        if self.most_rows:
            found = (*found, Between(value="rows", low=0, high=self.most_rows))
        if self.least_columns:
            found = (*found, Between(value="columns", low=self.least_columns))
        if self.complete:
            found = (*found, MultipleOf(value="rows", of=self.block_m))
        if self.least or self.most < _ANY:
            found = (*found, Between(value=("rows", "columns"), low=self.least, high=self.most))
        if self.even:
            found = (*found, MultipleOf(value="inner", of=self.block_k))
        return found

    def setting(self, *, aligned: bool = False) -> Setting:
        """As the plan takes it; `aligned`: for no other calls."""
        blocks = {"BLOCK_M": self.block_m, "BLOCK_N": self.block_n, "BLOCK_K": self.block_k}
        return Setting(
            constants={**blocks, "GROUP": self.group, "EVEN": self.even, "HALVES": self.halves},
            when=self.when,
            unaligned=not self.when and not aligned,
            hinted=not self.strided and not self.unaligned,
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            waves_per_eu=self.waves_per_eu,
            matrix_instr_nonkdim=self.mfma,
        )


@cache
def _table(arch: str, warp_size: int) -> tuple[Tuned, ...]:
    return tuning().rows("gemm.gemm_nn", arch, warp_size, Tuned)


def _settings(target: Target, functional: Functional, weight: str) -> tuple[Setting, ...]:
    """Of gemm_nn, gemm_nt or gemm_strided."""
    few = functional.get("rows") == _FEW_ROWS
    fitting = [
        row
        for row in _table(target.arch, target.warp_size)
        if row.few == few
        and row.strided == (weight == "strided")
        and row.weight in ("", weight)
        and (not row.dtypes or functional["dtype"] in row.dtypes)
        and (not row.archs or target.arch in row.archs)
    ]
    main = next((row for row in fitting if not row.when and not row.unaligned), None)
    if main is None:
        return ()
    unaligned = [row.setting() for row in fitting if row.unaligned][:1]
    conditional = (row.setting() for row in fitting if row.when)
    return (*conditional, main.setting(aligned=bool(unaligned)), *unaligned)


_DTYPE = Choice(name="dtype", key="dtype", options=dtypes(*_DTYPES))
_ROWS = Choice(name="rows", key="rows", options={_FEW_ROWS: _FEW_ROWS, "any": _ANY_ROWS}, ladder=True)


def _arguments(operator: Operator, hint: int | None) -> tuple[Argument, ...]:
    """The operator's values but its keys, with hints for vectors of contiguous elements."""
    hinted = {value.name for value in operator.values if value.name.startswith("stride_")}
    # of the matrices' contiguous axes the sizes
    hinted |= {"inner", "columns"}
    return (
        *(
            Argument(name=name, type="*{dtype}", value=name, divisible_by=hint and 2 * hint)
            for name in TENSORS
        ),
        *(
            Argument(
                name=value.name,
                type=value.type,
                value=value.name,
                divisible_by=hint if value.name in hinted else None,
            )
            for value in operator.values
            if value.type != "ptr" and value.name not in ("n", "dtype")
        ),
    )


def _kernel(operator: Operator, weight: str) -> Kernel:
    strided = weight == "strided"
    return Kernel(
        name=operator.name,
        source="gemm.py",
        function=operator.name,
        operator=operator.name,
        choices=(_DTYPE,) if strided else (_DTYPE, _ROWS),
        arguments=_arguments(operator, None if strided else 8),
        settings=lambda target, functional: _settings(target, functional, weight),
        grid=(
            (
                Term(value="rows", divisor="BLOCK_M"),
                Term(value="columns", divisor="BLOCK_N"),
                Term(value="n"),
            ),
        ),
    )


GEMM = IndependentAxes(
    name="gemm",
    summary="out = activation(input @ weight + bias); no bias where it is null",
    parameters=(
        Parameter(name="input", kind="input", axes=CORES["input"]),
        Parameter(name="weight", kind="input", axes=CORES["weight"]),
        OptionalInput(name="bias", axes=CORES["bias"]),
        Option(name="activation", options=ACTIVATIONS),
        Parameter(name="out", kind="output", axes=CORES["out"]),
    ),
    independent=("rows",),
    dtypes=_DTYPES,
    forms=(
        Form(operator="gemm_nn", rank=RANK),
        Form(operator="gemm_nt", rank=RANK),
        Form(operator="gemm_strided", rank=RANK),
    ),
)

FAMILY = Family(
    name="gemm",
    operators=(GEMM_NN, GEMM_NT, GEMM_STRIDED),
    kernels=(_kernel(GEMM_NN, "nn"), _kernel(GEMM_NT, "nt"), _kernel(GEMM_STRIDED, "strided")),
    functions=(GEMM,),
)
