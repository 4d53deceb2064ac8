"""The index as a TUF targets role (theupdateframework.github.io/specification, version 1.0, section 4.5).

A target is a file of a release, `<release>/<file>`. Its `custom` holds `tar` of an archive, and `release` of a
SHA256SUMS, whose presence makes a release.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tuf.api.metadata import TargetFile, Targets

from aotforge.errors import TrustError
from aotforge.formats.sums import SUMS
from aotforge.formats.untrusted_tar import TarFacts
from aotforge.publish.index_model import Index, IndexedFile, IndexedRelease, Yank

RELEASE_NAME = r"^[0-9]+\.[0-9]+(\.[0-9]+)?b(-r[0-9]+)?$"
FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}$"

_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)  # later versions may add fields


class _Tar(_Model):
    sha256: _Sha256
    size: _Count
    members: _Count


class _Release(_Model):
    format: Literal[1]
    published: str
    verified: bool
    development: tuple[str, ...] = ()
    yanked: Yank | None = None


class _Custom(_Model):
    tar: _Tar | None = None
    release: _Release | None = None


class _Target(_Model):
    path: Annotated[str, Field(pattern=f"{RELEASE_NAME[:-1]}/{FILE_NAME[1:]}")]
    length: _Count
    sha256: _Sha256
    custom: _Custom


def read_index(targets: Targets) -> Index:
    """The index of a targets role. Raises TrustError for content that is signed but not valid."""
    files: dict[str, list[IndexedFile]] = {}
    releases: dict[str, _Release] = {}
    for target in map(_target, targets.targets.values()):
        release, _, name = target.path.partition("/")
        tar = TarFacts(**target.custom.tar.model_dump()) if target.custom.tar else None
        file = IndexedFile(name=name, size=target.length, sha256=target.sha256, tar=tar)
        files.setdefault(release, []).append(file)
        if name == SUMS and target.custom.release:
            releases[release] = target.custom.release
    indexed = [
        IndexedRelease(
            name=name,
            files=tuple(sorted(files[name], key=lambda file: file.name)),
            published=custom.published,
            verified=custom.verified,
            development=custom.development,
            yanked=custom.yanked,
        )
        for name, custom in sorted(releases.items())
    ]
    return Index(version=targets.version, releases=tuple(indexed))


def _target(target: TargetFile) -> _Target:
    fields = {"path": target.path, "length": target.length, "sha256": target.hashes.get("sha256", "")}
    try:
        return _Target.model_validate({**fields, "custom": target.custom or {}})
    except ValidationError as error:
        first = error.errors()[0]
        raise TrustError(
            f"the index entry of {target.path!r} is not valid: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            cause="it was signed by another program, or by a later version of this one",
            hint="update aotforge, or inform the publisher",
        ) from None


def make_targets(index: Index, *, expires: datetime) -> Targets:
    """The targets role of an index."""
    targets: dict[str, TargetFile] = {}
    for release in index.releases:
        for file in release.files:
            path = f"{release.name}/{file.name}"
            fields: dict[str, Any] = {"length": file.size, "hashes": {"sha256": file.sha256}}
            custom: dict[str, Any] = {"tar": asdict(file.tar)} if file.tar else {}
            if file.name == SUMS:
                custom["release"] = _release_fields(release)
            if custom:
                fields["custom"] = custom
            targets[path] = TargetFile.from_dict(fields, path)
    return Targets(version=index.version, expires=expires, targets=targets)


def _release_fields(release: IndexedRelease) -> dict[str, Any]:
    yanked = {"yanked": asdict(release.yanked)} if release.yanked else {}
    return {
        "format": 1,
        "published": release.published,
        "verified": release.verified,
        "development": list(release.development),
        **yanked,
    }
