"""The plan room: rules and manifests to the full list of compile jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotforge.lazy import lazy_names

if TYPE_CHECKING:
    from aotforge.plan.build import make_plan, plan_project, select_archs, select_profile
    from aotforge.plan.families import LoadedFamily, load_families
    from aotforge.plan.serial import plan_from_json, plan_to_json
    from aotforge.plan.toolchain import pinned_triton, read_toolchain
    from aotforge.plan.values import CompileJob, JobKey, Plan

__all__ = [
    "CompileJob",
    "JobKey",
    "LoadedFamily",
    "Plan",
    "load_families",
    "make_plan",
    "pinned_triton",
    "plan_from_json",
    "plan_project",
    "plan_to_json",
    "read_toolchain",
    "select_archs",
    "select_profile",
]

_HOMES = {
    "CompileJob": "aotforge.plan.values",
    "JobKey": "aotforge.plan.values",
    "LoadedFamily": "aotforge.plan.families",
    "Plan": "aotforge.plan.values",
    "load_families": "aotforge.plan.families",
    "make_plan": "aotforge.plan.build",
    "pinned_triton": "aotforge.plan.toolchain",
    "plan_from_json": "aotforge.plan.serial",
    "plan_project": "aotforge.plan.build",
    "plan_to_json": "aotforge.plan.serial",
    "read_toolchain": "aotforge.plan.toolchain",
    "select_archs": "aotforge.plan.build",
    "select_profile": "aotforge.plan.build",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
