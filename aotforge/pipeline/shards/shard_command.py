"""What `build --shard` and `build --gather` do: one part made, or all parts put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aotforge.errors import ShardError
from aotforge.formats.archive import sha256_file
from aotforge.pipeline.build_release import BuildRequest
from aotforge.pipeline.display import BuildObserver
from aotforge.pipeline.shards.image_shard import PartReport, build_shard
from aotforge.pipeline.shards.library_shard import KIND as RUNTIME
from aotforge.pipeline.shards.library_shard import build_library
from aotforge.pipeline.shards.merge import GatherReport, gather
from aotforge.pipeline.shards.split import parse_shard


class Report(Protocol):
    """What was done, for `--json` and for people."""

    def fields(self) -> dict[str, object]:
        """JSON values."""

    def lines(self) -> Sequence[str]:
        """Lines of text."""


@dataclass(frozen=True, kw_only=True)
class _Parts:
    parts: tuple[PartReport, ...]

    def fields(self) -> dict[str, object]:
        return {"parts": [
            {"file": str(one.path), "size": one.size, "sha256": sha256_file(one.path), "what": one.what} for one in self.parts
        ]}  # fmt: skip

    def lines(self) -> Sequence[str]:
        return [
            line for one in self.parts for line in (one.what, f"{one.size:>12,}  {one.path}", f"sha256 {sha256_file(one.path)}")
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Gathered:
    report: GatherReport

    def fields(self) -> dict[str, object]:
        release, plans = self.report.release, self.report.plans
        return {
            "release": release.name,
            "folder": str(release.folder),
            "fresh": release.fresh,
            "packs": [plan.pack for plan in plans],
            "profile": plans[0].profile,
            "images": sum(len(plan.jobs) for plan in plans),
            "parts": self.report.parts,
            "verified": release.verified,
            "platform": release.platform.tag,
            "development": release.development,
            "files": [
                {"name": f.name, "size": f.size, "sha256": f.sha256, "tar_sha256": f.tar_sha256}
                for f in release.files
            ],
        }

    def lines(self) -> Sequence[str]:
        release, plans = self.report.release, self.report.plans
        images = sum(len(plan.jobs) for plan in plans)
        packs = ", ".join(plan.pack for plan in plans)
        if not release.fresh:
            return [f"{release.folder} is up to date ({images} images)"]
        told = [f"{images} images of {packs} from {self.report.parts} parts: the plan is complete"]
        told.extend(f"{f.size:>12,}  {release.folder / f.name}" for f in release.files)
        told.extend(f"development build: {reason}" for reason in release.development)
        return told


def run_parts(
    request: BuildRequest,
    *,
    shard: str | None,
    gather_from: Path | None,
    observer: BuildObserver,
) -> Report:
    """`shard` is NUMBER/COUNT or `runtime`. Raises ShardError when both or neither is asked for, and what the two raise."""
    if (shard is None) == (gather_from is None):
        raise ShardError("--shard makes a part and --gather puts parts together", hint="give one of the two")
    if gather_from is not None:
        return _Gathered(report=gather(request, gather_from, observer=observer))
    if shard == RUNTIME:
        observer.stage("runtime library")
        return _Parts(parts=(build_library(request, observer=observer),))
    chosen = parse_shard(shard or "")
    return _Parts(parts=build_shard(request, chosen, observer=observer))
