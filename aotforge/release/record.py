"""The committed record of a release, `releases/<release>.json`: commit, inputs, expected digests."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from aotforge.base.files import write_atomic
from aotforge.base.git import run_git
from aotforge.base.manifest_reader import Manifest, load
from aotforge.errors import ReleaseError, UnknownNameError, listed, suggest
from aotforge.release.contents import ReleaseContents, ReleasedImage
from aotforge.release.model import Origin

NO_COMMIT = "0" * 40
"""The commit of development releases from uncommitted sources."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class RecordedPack(Manifest):
    """`images` is the SHA-256 over the sorted lines `<job key> <image digest>`."""

    jobs: int
    images: Sha256


class Record(Manifest):
    """The file. `tars`: digests of uncompressed archives (of a .zip itself), as a second build gives them."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    release: str
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    archs: tuple[str, ...]
    profile: str
    platforms: tuple[str, ...]
    executor: str
    roots: dict[str, Sha256]
    epoch: int
    python: str
    triton: str
    triton_files: Sha256
    compiler: str
    packs: dict[str, RecordedPack]
    tars: dict[str, Sha256]


def make_record(origin: Origin, *, contents: ReleaseContents, tars: Mapping[str, str]) -> Record:
    """The record of a release. `contents`: its MANIFEST.json, `tars`: its SHA256SUMS.uncompressed."""
    fields = {
        **vars(origin),
        **vars(origin.tools),
        "schema": 1,
        "roots": dict(origin.tools.roots),
        "triton": origin.tools.toolchain.triton_version,
        "triton_files": origin.tools.toolchain.triton_digest,
        "packs": {pack.name: _pack(pack.images) for pack in contents.packs},
        "tars": _archives(tars),
    }
    known = {field.alias or name for name, field in Record.model_fields.items()}
    return Record.model_validate({name: value for name, value in fields.items() if name in known})


def _archives(tars: Mapping[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in tars.items() if name.endswith((".tar", ".zip"))}


def _pack(images: Iterable[ReleasedImage]) -> RecordedPack:
    lines = sorted(f"{key} {image.digest}\n" for image in images for key in image.jobs)
    return RecordedPack(jobs=len(lines), images=hashlib.sha256("".join(lines).encode("ascii")).hexdigest())


def check_record(releases: Path, record: Record) -> Record:
    """The recorded release in `releases`, with its commit; `record` when there is none.

    Raises ReleaseError for other digests: a release name means one set of bytes for ever.
    """
    path = releases / f"{record.release}.json"
    if not path.exists():
        return record
    known = load(path, Record)
    if (known.tars, known.packs) != (record.tars, record.packs):
        changed = differing_archives(known, record.tars)
        raise ReleaseError(
            f"{record.release} is recorded with other bytes: {', '.join(changed[:3]) or 'its images'} differ",
            cause=f"something changed since {path} was committed, and a release is never changed",
            hint="raise `revision` in manifests/release.yaml to make a new release; "
            "`./dev release.diff` shows what changed",
        )
    return known


def save_record(releases: Path, record: Record) -> Path:
    """Writes `releases`/<release>.json unless it exists. Raises as `check_record`."""
    path = releases / f"{record.release}.json"
    check_record(releases, record)
    if not path.exists():
        text = json.dumps(record.model_dump(mode="json", by_alias=True), indent=1, sort_keys=True)
        write_atomic(path, (text + "\n").encode("utf-8"))
    return path


def load_record(releases: Path, release: str) -> Record:
    """The record of `release`. Raises UnknownNameError, ManifestError."""
    path = releases / f"{release}.json"
    if not path.is_file():
        known = [file.stem for file in releases.glob("*.json")]
        raise UnknownNameError(
            f"there is no record of release {release}",
            cause="this checkout's history does not release it" if known else "nothing was released yet",
            hint=suggest(release, known) if known else "./dev release makes a release and its record",
        )
    return load(path, Record)


def differing_archives(record: Record, tars: Mapping[str, str]) -> list[str]:
    """Archives that only one of `record` and `tars` has, or that have different digests; sorted names."""
    return sorted({name for name, _ in record.tars.items() ^ _archives(tars).items()})


def source_commit(root: Path, *, development: bool) -> str:
    """The checkout's commit; NO_COMMIT for a `development` release from sources that differ from it, or where
    git is not installed, as in a container that only builds.

    Raises ReleaseError for another release of sources that differ, ToolchainError without git.
    """
    if development and not shutil.which("git"):
        return NO_COMMIT
    head = run_git(root, "rev-parse", "HEAD")
    lines = run_git(root, "status", "--porcelain", "--no-renames").stdout.splitlines()
    changed = [line[3:] for line in lines if not line[3:].startswith("releases/")]
    if head.returncode == 0 and not changed:
        return head.stdout.strip()
    if development:
        return NO_COMMIT
    differing = f"the sources are not those of a commit: {listed(changed)}"
    raise ReleaseError(
        differing if changed else f"{root} is not a git checkout",
        cause="a release can only be reproduced from a commit",
        hint="commit or stash the changes, then release again; --development makes one for yourself",
    )
