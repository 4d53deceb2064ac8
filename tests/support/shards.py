"""Shards of plans whose images were never compiled: complete and valid in form, for the checks of a merge."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import zstandard

from aotforge.compile.cache_entry import Entry, Summary, encode
from aotforge.pipeline.shards.merge_check import FoundShard
from aotforge.pipeline.shards.shard_file import (
    IMAGES,
    ArtifactFile,
    ShardArtifact,
    entry_name,
    identity,
)
from aotforge.pipeline.shards.split import split
from aotforge.plan.model import CompileJob, Plan
from aotforge.targets.backend import CodeObjectStats

VERIFIER = "5" * 64
_STATS = CodeObjectStats(
    registers=8, accumulation_registers=0, scalar_registers=16, spilled_registers=0, spilled_scalar_registers=0, scratch_bytes=0,
    static_shared_bytes=0, dynamic_shared_bytes=0, warp_size=64, num_warps=1,
)  # fmt: skip


def entry_of(job: CompileJob, content: bytes = b"") -> bytes:
    """A cache entry under the job's key."""
    hsaco, asm = job.label.encode() + content, zstandard.compress(b"s_endpgm")
    summary = Summary(
        key=job.key, digest=hashlib.sha256(hsaco).hexdigest(), symbol="k", stats=_STATS, arguments=(),
        binary_size=len(hsaco), asm_size=len(asm),
    )  # fmt: skip
    return encode(Entry(summary=summary, binary=hsaco, asm_zstd=asm))


def digest_of(job: CompileJob) -> str:
    return hashlib.sha256(job.label.encode()).hexdigest()


def shard_of(plan: Plan, number: int, count: int, *, verifier: str = VERIFIER) -> ShardArtifact:
    """A shard as `build --shard` writes it, verdicts aside."""
    jobs = split(plan.jobs, count)[number - 1]
    manifest = {
        "kind": IMAGES,
        "pack": plan.pack,
        "archs": list(plan.archs),
        "shard": {"number": number, "count": count},
        "identity": identity(plan, verifier),
        "jobs": [{"key": job.key, "label": job.label, "digest": digest_of(job)} for job in jobs],
    }
    return ShardArtifact(
        manifest=manifest, files={entry_name(job.key): ArtifactFile(content=entry_of(job)) for job in jobs}
    )


def shards_of(plan: Plan, count: int) -> list[FoundShard]:
    """All shards of a division, as found in files named after them."""
    return [
        FoundShard(
            path=Path(f"{plan.pack}-{number}of{count}.part.tar"), artifact=shard_of(plan, number, count)
        )
        for number in range(1, count + 1)
    ]


def with_file(one: FoundShard, name: str, content: bytes) -> FoundShard:
    """The part with another content in one of its files."""
    return replace(
        one, artifact=replace(one.artifact, files={**one.artifact.files, name: ArtifactFile(content=content)})
    )
