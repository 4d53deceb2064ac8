"""Candidates of a search: combinations of block sizes and options, the nearest ones first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

from aotforge.rules import Setting, Target
from aotforge.targets.backends import backend_of

Values = Mapping[str, int]
_LEAST = 16  # rows and columns of the smallest matrix instruction


def space(setting: Setting, target: Target) -> dict[str, tuple[int, ...]]:
    """The values of each name, the present one among them.

    Block sizes (constants named BLOCK...) are from a quarter to the double; options are those that mean
    something on the arch.
    """
    found = {
        name: tuple(size for size in (now // 4, now // 2, now, now * 2) if size >= min(_LEAST, now))
        for name, now in setting.constants.items()
        if name.startswith("BLOCK") and isinstance(now, int) and not isinstance(now, bool) and now > 0
    }
    found |= {"num_warps": (2, 4, 8) if target.warp_size == 64 else (4, 8, 16), "num_stages": (1, 2)}
    found |= backend_of(target.vendor).search_options(target)
    now = present(setting, tuple(found))
    return {name: tuple(sorted({*values, now[name]})) for name, values in found.items()}


def present(setting: Setting, names: Sequence[str]) -> Values:
    """The values that a setting has."""
    options = {name: getattr(setting, name) for name in names if name not in setting.constants}
    return {name: int(setting.constants.get(name, options.get(name, 0))) for name in names}


def candidates(setting: Setting, target: Target) -> list[Values]:
    """All other combinations, the nearest first: by the number of changed values, then by the ratio of block
    sizes."""
    offered = space(setting, target)
    now = present(setting, tuple(offered))

    def distance(one: Values) -> tuple[int, float, tuple[int, ...]]:
        changed = sum(one[name] != now[name] for name in offered)
        sizes = sum(abs(math.log2(one[name] / now[name])) for name in one if name.startswith("BLOCK"))
        return changed, sizes, tuple(one.values())

    every = [dict(zip(offered, chosen, strict=True)) for chosen in product(*offered.values())]
    return sorted((one for one in every if one != now), key=distance)
