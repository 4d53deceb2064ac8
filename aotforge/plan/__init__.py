"""The plan room: rules and manifests to the full list of compile jobs."""

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
