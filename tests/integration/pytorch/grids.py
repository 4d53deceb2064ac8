"""The parameters of PyTorch's attention tests and the factors that they allow on ROCm.

From test/test_transformers.py and test/test_varlen_attention.py of PyTorch 2.13. Heads are PyTorch's; a
seeded sample keeps the calls that the virtual GPU executes in seconds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

SEED = 20261122
LEVELS = ("0.11.2b", "0.12.1b", "0.13b", "0.14.2b")
_WINDOWS = (
    (-1, -1), (-1, 0), (4, 0), (-1, 4), (0, 0), (1, 0), (0, 1), (0, -1), (4, 4), (8, 2), (1025, 1025),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Case:
    """One test's parameters. `scale` "l1" is 1 / head_dim; `lengths` are those of packed sequences.

    "nested" and "inference" are calls of the memory-efficient path that no grid has.
    """

    test: str
    dtype: str
    batch: int = 1
    heads: int = 4
    heads_k: int = 4
    seqlen_q: int = 1
    seqlen_k: int = 1
    head_dim: int = 8
    causal: bool = False
    dropout_p: float = 0.0
    scale: str | float | None = None
    window: tuple[int, int] = (-1, -1)
    lengths: tuple[int, ...] = ()
    level: str = LEVELS[0]

    @property
    def work(self) -> int:
        """Multiplications of the two products of the forward."""
        pairs = sum(n * n for n in self.lengths) or self.batch * self.seqlen_q * self.seqlen_k
        return 2 * pairs * self.heads * self.head_dim

    @property
    def mask(self) -> str:
        """The functional's."""
        if self.test == "mask":
            return "bias"
        return "window" if self.causal or self.window != (-1, -1) else "full"

    def name(self) -> str:
        """Every parameter that is not the default."""
        defaults = {field.name: field.default for field in fields(self)}
        return " ".join(f"{key}={value}" for key, value in asdict(self).items() if value != defaults[key])

    def allowed(self) -> Mapping[str, float]:
        """Factors of a result's error in terms of the error of PyTorch's own computation in the same
        precision."""
        if self.test == "inference":
            return {"out": 5.0}
        if self.test in ("packed", "nested"):
            return {"out": 2.0, "dx": 2.0}
        long, longest = self.seqlen_k >= 1024, self.seqlen_k >= 2048
        found = {"out": 6.0, "dq": 360.0, "dk": 45.0, "dv": 6.0}
        if self.test == "flash":
            if longest:
                found["dq"] = 1100.0 if self.seqlen_q >= 2048 else 650.0
        else:
            found["dv"] = 8.0 if self.test == "mask" else 8.5
            if self.test == "efficient":
                found["out"] = 5.0
            else:
                found["db"] = 45.0
            if longest:
                found["dq"] = 670.0
        if long:
            found["dk"] = 70.0
        if longest:
            found["dk"] = 190.0 if self.test == "flash" else 160.0
        if self.dtype == "fp32":
            found["dk"] = 90.0
        return found


def case_of(values: Mapping[str, Any]) -> Case:
    """The inverse of `asdict`, after JSON."""
    found: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Case(**found)


def minor_of(level: str) -> int:
    """13 of 0.13b."""
    return int(level.split(".")[1].rstrip("b"))


def flash() -> Iterator[Case]:
    """test_flash_attention_vs_math_ref_grads."""
    for batch, n_q, n_k, dim, causal, p, dtype, scale, heads in itertools.product(
        (1, 8), (4, 143, 2048), (4, 127, 579, 2048), (8, 203, 256), (True, False), (0.0, 0.22, 0.48),
        ("fp16", "bf16"), (None, "l1"), ((4, 4), (16, 8), (10, 2)),
    ):  # fmt: skip
        if not causal or n_q == n_k:
            yield Case(
                test="flash", batch=batch, heads=heads[0], heads_k=heads[1], seqlen_q=n_q, seqlen_k=n_k,
                head_dim=dim, causal=causal, dropout_p=p, dtype=dtype, scale=scale,
            )  # fmt: skip


def efficient(test: str) -> Iterator[Case]:
    """test_mem_efficient_attention_vs_math_ref_grads ("efficient") and the same with a mask ("mask")."""
    masked = test == "mask"
    for batch, n_q, n_k, dim, causal, p, dtype, scale in itertools.product(
        (1, 8), (8, 312 if masked else 103, 1024, 2048), (8, 408 if masked else 103, 1024, 2048),
        (8, 16, 96, 128), (False,) if masked else (False, True), (0.0, 0.22), ("fp16", "bf16", "fp32"),
        (None, "l1"),
    ):  # fmt: skip
        if not p or n_q <= 1024:
            yield Case(
                test=test, batch=batch, seqlen_q=n_q, seqlen_k=n_k, head_dim=dim, causal=causal, dropout_p=p,
                dtype=dtype, scale=scale,
            )  # fmt: skip


def packed() -> Iterator[Case]:
    """test_varlen_vs_sdpa, with sequences of up to 160 tokens instead of 1024."""
    for dtype, scale, window, heads_k in itertools.product(("fp16", "bf16"), (None, 0.1), _WINDOWS, (16, 4)):
        yield Case(
            test="packed", dtype=dtype, scale=scale, window=window, heads=16, heads_k=heads_k, head_dim=64,
            lengths=(160, 97, 1, 64),
        )  # fmt: skip


def used_keys() -> Iterator[Case]:
    """test_seqused_k_kv_cache: one query per sequence, and a cache of 128 rows that ends in NaN. Since level
    0.12."""
    for dtype, lengths in itertools.product(
        ("fp16", "bf16"),
        ((32, 64, 96, 48), (1, 1, 1, 1), (128, 128, 128, 128), (1, 128, 1, 128), (127, 63, 33, 17)),
    ):
        yield Case(test="used keys", dtype=dtype, heads=8, heads_k=8, head_dim=64, lengths=lengths)


GRIDS = {
    "flash": tuple(flash()),
    "efficient": tuple(efficient("efficient")),
    "mask": tuple(efficient("mask")),
    "packed": tuple(packed()),
    "used keys": tuple(used_keys()),
}


def sample(test: str, count: int, most_work: int) -> list[Case]:
    """A seeded sample of a grid in which every value of a parameter occurs, if a call with it is small
    enough; levels in turn."""
    rng = random.Random(f"{SEED} {test}")
    small = [case for case in GRIDS[test] if case.work <= most_work]
    rng.shuffle(small)
    chosen: list[Case] = []
    seen: set[tuple[str, object]] = set()
    for case in small:
        new = set(asdict(case).items()) - seen
        if new:
            chosen.append(case)
            seen |= new
    rest = [case for case in small if case not in chosen]
    return _with_levels((chosen + rest)[:count])


def _with_levels(cases: Sequence[Case]) -> list[Case]:
    levels = itertools.cycle(LEVELS)
    found = []
    for case in cases:
        level = next(levels)
        while case.test == "used keys" and level < "0.12":
            level = next(levels)
        found.append(replace(case, level=level))
    return found
