"""The merge of shards into the release of an undivided build. It cannot compile or execute."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.architectures import load_architectures
from aotforge.base.files import make_folders
from aotforge.base.progress import Observer
from aotforge.compile.cache import Cache
from aotforge.compile.compile_plan import stored_images
from aotforge.errors import ShardError
from aotforge.formats.untrusted_file import read_regular
from aotforge.pipeline.build_release import AssembledReport, ReleaseDraft
from aotforge.pipeline.images import pack_images, plans_verifier_digest
from aotforge.pipeline.requests import BuildRequest
from aotforge.pipeline.shards.make_shards import library_identity, load_verdicts, unpack_library
from aotforge.pipeline.shards.merge_check import FoundShard, choose_library, choose_shards
from aotforge.pipeline.shards.shard_file import SUFFIX, decode, identity
from aotforge.release.existing_release import check_not_verified

_PART_LIMIT = 4 * 1024**3
"""Bytes of the largest shard file, which is read into memory."""


@dataclass(frozen=True, kw_only=True)
class MergeReport(AssembledReport):
    """A release merged from `parts` files."""

    parts: int

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return {**super().fields(), "parts": self.parts}

    def made(self) -> list[str]:
        """Lines on how a new release was made."""
        return [
            f"{self.images} images of {', '.join(self.packs)} from {self.parts} shard files: the plan is complete"
        ]


def merge_shards(request: BuildRequest, folder: Path, *, observer: Observer) -> MergeReport:
    """Assembles the release of `request` from the shards in and below `folder`.

    Raises ShardError for a shard that is missing, duplicate, damaged or of another build, VerifyError for an image without
    a passed verdict (unless `request.verify` is off), and what assembly raises. An earlier release stays until the new one
    is complete.
    """
    draft = ReleaseDraft(request, observer=observer)
    observer.stage("reading shards")
    found = read_shards(folder)
    identities = {
        plan.pack: identity(plan, plans_verifier_digest(request.kernels, [plan])) for plan in draft.plans
    }
    shards = choose_shards(found, draft.plans, identities)
    library = choose_library(found, library_identity(request.root, draft.executions.runtime))
    with tempfile.TemporaryDirectory(prefix="aotforge-gather-") as scratch:
        prefix, store = Path(scratch, "prefix"), Path(scratch, "cache")
        unpack_library(library, prefix)
        release = draft.find(prefix)
        if release is None:
            if not request.verify:
                check_not_verified(draft.manifest, draft.output)
            packs = []
            for plan in draft.plans:
                observer.stage(f"{len(plan.jobs)} images of {plan.pack} from {len(shards[plan.pack])} shards")
                for shard in shards[plan.pack]:
                    for name, file in shard.files.items():
                        path = store / name
                        make_folders(path.parent)
                        path.write_bytes(file.content)
                with Cache(store) as cache:
                    architectures = load_architectures(request.root / "manifests")
                    images = stored_images(plan, architectures=architectures, cache=cache)
                    # assembly refuses images without a verdict
                    verdicts = (
                        load_verdicts(plan, images, kernels_root=request.kernels, cache=store)
                        if request.verify
                        else {}
                    )
                    packs.append(pack_images(plan, images, draft.images, verdicts))
            observer.stage("tarballs")
            release = draft.assemble(packs, prefix)
    return MergeReport(plans=draft.plans, parts=len(found), release=release)


def read_shards(folder: Path) -> tuple[FoundShard, ...]:
    """Every shard file in and below `folder`, by path. Raises ShardError for a damaged one, and when there is none."""
    paths = sorted(path for path in folder.rglob(f"*{SUFFIX}") if path.is_file())
    if not paths:
        raise ShardError(
            f"no shards in {folder}",
            cause=f"no file is named *{SUFFIX}" if folder.is_dir() else "the folder does not exist",
            hint="./dev build --gather FOLDER, where FOLDER has the files of --shard",
        )
    found = []
    for path in paths:
        try:
            data = read_regular(path, limit=_PART_LIMIT)
        except OSError as error:
            raise ShardError(f"{path} cannot be read: {error.strerror}") from error
        found.append(FoundShard(path=path, artifact=decode(data, path)))
    return tuple(found)
