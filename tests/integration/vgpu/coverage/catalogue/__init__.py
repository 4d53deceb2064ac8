"""All features, group by group."""

from tests.integration.vgpu.coverage.catalogue import (
    arithmetic,
    atomics,
    casts,
    control,
    dots,
    functions,
    memory,
    programs,
    random_numbers,
    reductions,
    shapes,
)
from tests.integration.vgpu.coverage.feature import Feature

_GROUPS = (
    casts,
    arithmetic,
    functions,
    memory,
    atomics,
    reductions,
    shapes,
    control,
    random_numbers,
    dots,
    programs,
)
_ALL = [feature for group in _GROUPS for feature in group.FEATURES]
FEATURES: dict[str, Feature] = {feature.name: feature for feature in _ALL}
assert len(FEATURES) == len(_ALL), "two features have one name"
