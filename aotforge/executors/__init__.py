"""Executors: the same step on this machine, in a Docker or podman container, or in a bubblewrap sandbox (docs/executors.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotforge.lazy import lazy_names

if TYPE_CHECKING:
    from aotforge.executors.base import Executor
    from aotforge.executors.choose import (
        choose_executor,
        choose_sites,
        kernels_site,
        make_executor,
        reap_all,
        root_place,
    )
    from aotforge.executors.values import EXECUTORS, Capacity, Finished, Place, Site, Sites, Step, StepLimits

__all__ = [
    "EXECUTORS",
    "Capacity",
    "Executor",
    "Finished",
    "Place",
    "Site",
    "Sites",
    "Step",
    "StepLimits",
    "choose_executor",
    "choose_sites",
    "kernels_site",
    "make_executor",
    "reap_all",
    "root_place",
]

_VALUES = ("EXECUTORS", "Capacity", "Finished", "Place", "Site", "Sites", "Step", "StepLimits")
_CHOICES = ("choose_executor", "make_executor", "reap_all", "root_place", "choose_sites", "kernels_site")

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "Executor": "aotforge.executors.base",
            **dict.fromkeys(_VALUES, "aotforge.executors.values"),
            **dict.fromkeys(_CHOICES, "aotforge.executors.choose"),
        },
    )
