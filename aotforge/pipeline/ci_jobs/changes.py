"""What a change can affect: by the paths that it touches, and for kernels by what the plans become of them.

A path that no rule knows affects everything, so does a revision that cannot be compared with: a rule is there to leave something out, and is only
right when the path is no input of what it leaves out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from aotforge.base.source_groups import EFFECTS, Effect


@dataclass(frozen=True, kw_only=True)
class Affected:
    """What has to be built again: image packs by name, and the library. Checks always run. `reasons` for people."""

    packs: frozenset[str]
    runtime: bool
    reasons: tuple[str, ...] = ()


def effect(path: str) -> Effect:
    """What a change of a file can affect."""
    return next((found for pattern, found in EFFECTS if fnmatchcase(path, pattern)), "everything")


def everything(packs: Iterable[str], reason: str) -> Affected:
    """All packs and the library."""
    return Affected(packs=frozenset(packs), runtime=True, reasons=(reason,))


def affected(paths: Collection[str], before: Mapping[str, str] | None, now: Mapping[str, str]) -> Affected:
    """What a change of `paths` affects.

    `now` and `before` are fingerprints of everything that a pack's images and verdicts are made from, by pack; `before` is None when that
    revision's could not be made. A pack is affected when its fingerprint is not the same.
    """
    effects: dict[Effect, list[str]] = {}
    for path in sorted(paths):
        effects.setdefault(effect(path), []).append(path)
    if "everything" in effects:
        return everything(now, f"{effects['everything'][0]} can affect everything")
    reasons = []
    packs: frozenset[str] = frozenset()
    if "plans" in effects:
        if before is None:
            return everything(now, "the plans of that revision cannot be made")
        packs = frozenset(pack for pack in now if before.get(pack) != now[pack])
        named = ", ".join(sorted(packs)) or "none"
        reasons.append(f"{effects['plans'][0]} affects packs: {named}")
    if "runtime" in effects:
        reasons.append(f"{effects['runtime'][0]} affects the library")
    return Affected(packs=packs, runtime="runtime" in effects or bool(packs), reasons=tuple(reasons))
