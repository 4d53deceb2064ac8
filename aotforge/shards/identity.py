"""What parts of one build have in common: parts that differ in any of it do not belong together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

from aotforge.plan import Plan, plan_to_json
from aotforge.plan.jobs import toolchain_digest

_MAKERS = ("aotforge.compile", "aotforge.shards")

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
        "makers": makers_digest(),
    }


def makers_digest() -> str:
    """SHA-256 of the sources that make parts."""
    digest = hashlib.sha256()
    for package in _MAKERS:
        for name, data in _sources(resources.files(package), package):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir() and item.name != "__pycache__":
            yield from _sources(item, f"{name}/{item.name}")
        elif item.is_file():
            yield f"{name}/{item.name}", item.read_bytes()
