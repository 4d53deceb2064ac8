"""Settings of kernels that work on rows, several per program where these are short."""

from __future__ import annotations

from dataclasses import dataclass

from aotforge.base.tuning import tuning
from aotforge.rules import Choice, Functional, Setting, Target

_COLUMNS = (64, 128, 512, 1024, 2048, 4096, 8192, 16384)
"""Rows up to each of these numbers of columns have an image, others are read in blocks."""

ROW = Choice(
    name="row", key="columns", options={**{row: row for row in _COLUMNS}, "any": 2**31 - 1}, ladder=True
)


@dataclass(frozen=True, kw_only=True)
class TunedRows:
    """`rows` of a program, each of at most `most_columns`, or in blocks of `block` columns."""

    rows: int = 1
    most_columns: int = 0
    block: int = 0
    num_warps: int = 4
    num_stages: int = 1

    def setting(self, **constants: int | bool) -> Setting:
        """With the constants that the rows' kernel has beside ROWS."""
        return Setting(
            constants={"ROWS": self.rows, **constants}, num_warps=self.num_warps, num_stages=self.num_stages
        )


def row_settings(kernel: str, target: Target, functional: Functional) -> tuple[Setting, ...]:
    """The first row of `kernel` in manifests/tuning/ that fits the choice of `ROW`. Raises ManifestError."""
    columns = functional["row"]
    table = tuning().rows(kernel, target.arch, target.warp_size, TunedRows)
    if columns == "any":
        return tuple(row.setting(BLOCK=row.block, LOOP=True) for row in table if row.block)[:1]
    fitting = (row for row in table if row.most_columns >= int(columns))
    return tuple(row.setting(BLOCK=int(columns), LOOP=False) for row in fitting)[:1]
