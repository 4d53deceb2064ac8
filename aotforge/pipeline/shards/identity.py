"""What parts of one build have in common: parts that differ in any of it do not belong together."""

from __future__ import annotations

import hashlib

from aotforge.base.source_groups import group_digest
from aotforge.plan.jobs import toolchain_digest
from aotforge.plan.model import Plan
from aotforge.plan.serial import plan_to_json

MEANING = {
    "profile": "it is of another profile",
    "toolchain": "it was compiled by another Triton, allocator or environment",
    "plan": "the kernels, rules or manifests were others",
    "judges": "other cases or another virtual GPU judged its images",
    "makers": "it was made by another revision of aotforge",
}
"""Fields of an identity, the most telling first, and what a difference means."""


def identity(plan: Plan, judges: str) -> dict[str, str]:
    """SHA-256 of all that the parts of a build of `plan` must agree on, by field. `judges` is what `judges_of` gives."""
    return {
        "profile": plan.profile,
        "toolchain": toolchain_digest(plan.toolchain),
        "plan": hashlib.sha256(plan_to_json(plan).encode()).hexdigest(),
        "judges": judges,
        "makers": group_digest("shards"),
    }
