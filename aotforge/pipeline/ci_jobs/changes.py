"""The effect of a change on the jobs, by its paths and for kernels by the plans of both revisions.

A path that no rule matches affects everything, and so does a revision that cannot be compared with. A rule exists to omit
jobs, and is correct only when the path is not an input of what it omits.
"""

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.base.git import first_line, run_git
from aotforge.base.source_groups import EFFECTS, Effect
from aotforge.errors import AotforgeError, ShardError
from aotforge.pipeline.images import by_pack, plans_verifier_digest
from aotforge.plan.model import plan_to_json
from aotforge.plan.planner import plan_project, select_archs

_PLANNED = ("kernels", "manifests", "requirements")
"""Folders of a checkout that `plan_project` reads."""


@dataclass(frozen=True, kw_only=True)
class Affected:
    """Parts to build again: image packs by name, and the library. Checks always run. `reasons` for people."""

    packs: frozenset[str]
    runtime: bool
    reasons: tuple[str, ...] = ()


def effect(path: str) -> Effect:
    """The effect of a change of a file."""
    return next((found for pattern, found in EFFECTS if fnmatchcase(path, pattern)), "everything")


def everything(packs: Iterable[str], reason: str) -> Affected:
    """All packs and the library."""
    return Affected(packs=frozenset(packs), runtime=True, reasons=(reason,))


def affected(paths: Collection[str], before: Mapping[str, str] | None, now: Mapping[str, str]) -> Affected:
    """The effect of a change of `paths`.

    `now` and `before` are fingerprints by pack of all inputs of its images and verdicts; `before` is None when they could
    not be made for that revision. A pack is affected when its fingerprint differs.
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


def affected_since(root: Path, revision: str, archs: Sequence[str], profile: str) -> Affected:
    """The effect of the working tree's difference from a revision: everything when git does not know the revision.

    Raises what `plan_project` raises for the working tree.
    """
    packs = pack_names(root, archs)
    try:
        paths = changed_paths(root, revision)
    except ShardError as error:
        return everything(packs, error.what)
    if {effect(path) for path in paths} & {"plans", "everything"} != {"plans"}:
        same = dict.fromkeys(packs, "")  # the answer does not depend on plans, which take seconds
        return affected(paths, same, same)
    return affected(paths, _before(root, revision, archs, profile), fingerprints(root, archs, profile))


def pack_names(root: Path, archs: Sequence[str]) -> tuple[str, ...]:
    """The packs of archs, sorted. Raises ManifestError, UnknownNameError."""
    architectures = load_architectures(root / "manifests")
    return tuple(select_archs(architectures, group)[0] for group in by_pack(root, archs))


def changed_paths(root: Path, revision: str) -> frozenset[str]:
    """Files that differ between a revision and the working tree, new ones and both names of renamed ones included.

    Raises ShardError when git fails.
    """
    commit = git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode().strip()  # fmt: skip
    listed = git(root, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", commit, "--")
    listed += git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return frozenset(filter(None, listed.decode("utf-8", "surrogateescape").split("\0")))


def fingerprints(root: Path, archs: Sequence[str], profile: str) -> dict[str, str]:
    """SHA-256 by pack of all inputs of its images and verdicts, except aotforge itself and the toolchain.

    Raises what `plan_project` raises.
    """
    known = load_architectures(root / "manifests").architectures
    found = {}
    for group in by_pack(root, archs):
        plan = plan_project(root, archs=group, profile=profile)
        verifier = plans_verifier_digest(root / "kernels", [plan])
        properties = [known[arch].model_dump_json() for arch in plan.archs]
        text = "\0".join([plan_to_json(plan), verifier, *properties])
        found[plan.pack] = hashlib.sha256(text.encode()).hexdigest()
    return found


def _before(root: Path, revision: str, archs: Sequence[str], profile: str) -> dict[str, str] | None:
    """Fingerprints at the revision, pack by pack; a pack that could not be planned there has none."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            data = git(root, "archive", "--format=tar", f"{revision}^{{commit}}", "--", *_PLANNED)
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                # Python before 3.11.4 has no filters; the files are those of this repository
                tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
                tar.extractall(folder)
        except (ShardError, tarfile.TarError, OSError):
            return None
        for group in by_pack(root, archs):
            try:
                found |= fingerprints(Path(folder), group, profile)
            except AotforgeError:
                continue
    return found


def git(root: Path, *arguments: str) -> bytes:
    """Output of a git command in the repository of `root`. Raises ShardError, and ToolchainError without git."""
    done = run_git(root, *arguments)
    if done.returncode:
        raise ShardError(
            f"git {' '.join(arguments[:2])} fails for {arguments[-1]}: {first_line(done)}",
            cause="the revision is unknown in this clone: it is shallow, or the name is misspelt",
            hint="git fetch it, or pass another revision",
        )
    return done.stdout
