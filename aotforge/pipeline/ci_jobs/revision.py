"""What git and another revision's files say about a change."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.base.git import outside_environment
from aotforge.errors import AotforgeError, ShardError
from aotforge.pipeline.build_release import by_pack
from aotforge.pipeline.ci_jobs.changes import Affected, affected, effect, everything
from aotforge.plan.families import load_families
from aotforge.plan.planner import plan_project, select_archs
from aotforge.plan.serial import plan_to_json
from aotforge.verify.verifier_digest import verifier_digest

_PLANNED = ("kernels", "manifests", "requirements")
"""What `plan_project` reads below a checkout."""


def affected_since(root: Path, revision: str, archs: Sequence[str], profile: str) -> Affected:
    """What the working tree's difference from a revision can affect: everything when git does not know that revision.

    Raises what `plan_project` raises for the working tree.
    """
    packs = pack_names(root, archs)
    try:
        paths = changed_paths(root, revision)
    except ShardError as error:
        return everything(packs, error.what)
    if {effect(path) for path in paths} & {"plans", "everything"} != {"plans"}:
        same = dict.fromkeys(packs, "")  # plans have no part in the answer, and making them takes seconds
        return affected(paths, same, same)
    return affected(paths, _before(root, revision, archs, profile), fingerprints(root, archs, profile))


def pack_names(root: Path, archs: Sequence[str]) -> tuple[str, ...]:
    """The packs of chips, sorted. Raises ManifestError, UnknownNameError."""
    architectures = load_architectures(root / "manifests")
    return tuple(select_archs(architectures, group)[0] for group in by_pack(root, archs))


def changed_paths(root: Path, revision: str) -> frozenset[str]:
    """Files that differ between a revision and the working tree, new ones and both names of renamed ones included.

    Raises ShardError when git cannot tell.
    """
    commit = git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").decode().strip()  # fmt: skip
    listed = git(root, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", commit, "--")
    listed += git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return frozenset(filter(None, listed.decode("utf-8", "surrogateescape").split("\0")))


def fingerprints(root: Path, archs: Sequence[str], profile: str) -> dict[str, str]:
    """By pack, SHA-256 of all that its images, verdicts and figures are made from, our own code and the toolchain aside.

    Raises what `plan_project` raises.
    """
    chips = load_architectures(root / "manifests").architectures
    folders = {loaded.family.name: loaded.folder for loaded in load_families(root / "kernels")}
    found = {}
    for group in by_pack(root, archs):
        plan = plan_project(root, archs=group, profile=profile)
        judges = verifier_digest(root / "kernels", {folders[job.family] for job in plan.jobs})
        figures = [chips[arch].model_dump_json() for arch in plan.archs]
        text = "\0".join([plan_to_json(plan), judges, *figures])
        found[plan.pack] = hashlib.sha256(text.encode()).hexdigest()
    return found


def _before(root: Path, revision: str, archs: Sequence[str], profile: str) -> dict[str, str] | None:
    """Fingerprints at the revision, pack by pack; a pack that could not be planned there has none."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            data = git(root, "archive", "--format=tar", f"{revision}^{{commit}}", "--", *_PLANNED)
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                tar.extractall(folder, filter="data")
        except (ShardError, tarfile.TarError, OSError):
            return None
        for group in by_pack(root, archs):
            try:
                found |= fingerprints(Path(folder), group, profile)
            except AotforgeError:
                continue
    return found


def git(root: Path, *arguments: str) -> bytes:
    """What a git command prints about the repository of `root`, whatever one a hook that called us is about. Raises ShardError."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, env=outside_environment(), capture_output=True, check=False
        )
    except OSError as error:
        raise ShardError(f"git does not run: {error.strerror}", hint="install git") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ShardError(
            f"git {' '.join(arguments[:2])} fails for {arguments[-1]}: {said[0] if said else 'nothing there'}",
            cause="the revision is unknown here: a shallow clone, a new branch, or a misspelt name",
            hint="git fetch it, or name another revision",
        )
    return done.stdout
