"""Model of `manifests/general_costs.yaml`: what general images cost beside special ones, by estimate."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from aotforge.base.architectures import MANIFESTS, ArchName, Name
from aotforge.base.manifest_reader import Manifest, load

_HEAD = """\
# Estimated cycles of general attention images as multiples of those of the complete profile's special ones,
# by the model of ./dev cost: one head, 256 queries and keys; attn_bwd is all of its kernels. None is timed on
# hardware. Written by python -m benchmarks.general_images --write ARCH.
schema: 1
"""


class GeneralCost(Manifest):
    """A call that a profile without a special image leaves to a general one, and what that costs."""

    arch: ArchName
    operator: Name
    dtype: Name
    mask: Literal["full", "window", "bias"]
    dropout: bool
    head_dim: Annotated[int, Field(ge=1)]
    multiple: Annotated[float, Field(gt=0)]

    def call(self) -> str:
        """What was called."""
        dropout = ", dropout" if self.dropout else ""
        return f"{self.operator} {self.dtype}, {self.mask}{dropout}, head_dim {self.head_dim}"

    def text(self) -> str:
        """One line."""
        return f"{self.arch}: {self.call()}: {self.multiple:g} x"


class GeneralCosts(Manifest):
    """`general_costs.yaml`. `dates`: when an arch's rows were estimated."""

    schema_version: Literal[1] = Field(alias="schema")
    dates: dict[ArchName, str] = Field(default_factory=dict)
    costs: tuple[GeneralCost, ...] = ()

    def of(self, arch: str) -> tuple[GeneralCost, ...]:
        """Rows of an arch."""
        return tuple(row for row in self.costs if row.arch == arch)

    def nearest(
        self, arch: str, operator: str, *, dtype: str, mask: str, dropout: bool, head_dim: int
    ) -> GeneralCost | None:
        """The row of the same arch and operator that is most like this call: by head_dim, then features."""
        halves = ("fp16", "bf16")

        def distance(row: GeneralCost) -> tuple[float, ...]:
            same_dtype = row.dtype == dtype or (row.dtype in halves and dtype in halves)
            ratio = max(row.head_dim, head_dim) / max(min(row.head_dim, head_dim), 1)
            return (ratio, not same_dtype, row.mask != mask, row.dropout != dropout)

        rows = (row for row in self.of(arch) if row.operator == operator)
        return min(rows, key=distance, default=None)


def load_general_costs(folder: Path) -> GeneralCosts:
    """`folder`/general_costs.yaml. Raises ManifestError."""
    return load(folder / "general_costs.yaml", GeneralCosts)


@cache
def general_costs() -> GeneralCosts:
    """Those of this checkout, read once per process. Raises ManifestError."""
    return load_general_costs(MANIFESTS)


def written(table: GeneralCosts, arch: str, rows: Iterable[GeneralCost], date: str) -> str:
    """The file's text with an arch's rows replaced."""
    dates = {**table.dates, arch: date}
    every = [row for row in table.costs if row.arch != arch] + list(rows)
    lines = [f"  {name}: '{dates[name]}'" for name in sorted(dates)]
    lines += ["costs:"] if every else []
    for row in sorted(every, key=lambda row: row.arch):
        cells = row.model_dump() | {"dropout": str(row.dropout).lower()}
        values = ", ".join(f"{name}: {value}" for name, value in cells.items())
        lines.append(f"- {{{values}}}")
    return _HEAD + "dates:\n" + "\n".join(lines) + "\n"
