"""The index: a TUF targets role (theupdateframework.github.io/specification, version 1.0, section 4.5) read and written as values.

A target is a file of a release, `<release>/<file>`. What goes beyond length and hash stands in its `custom`: `tar` of an archive, and
`release` of a SHA256SUMS, whose presence makes a release.
"""

from __future__ import annotations

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


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)  # a later index may say more


class _Tar(_Model):
    sha256: _Sha256
    size: Annotated[int, Field(ge=0)]
    members: Annotated[int, Field(ge=0)]


class _Yank(_Model):
    reason: str
    time: str


class _Release(_Model):
    format: Literal[1]
    published: str
    verified: bool
    development: tuple[str, ...] = ()
    yanked: _Yank | None = None


class _Custom(_Model):
    tar: _Tar | None = None
    release: _Release | None = None


class _Target(_Model):
    path: Annotated[str, Field(pattern=f"{RELEASE_NAME[:-1]}/{FILE_NAME[1:]}")]
    length: Annotated[int, Field(ge=0)]
    sha256: _Sha256
    custom: _Custom


def read_index(targets: Targets) -> Index:
    """What a targets role says. Raises TrustError for a signed index that makes no sense: its signer is to blame, or is not who he seems."""
    files: dict[str, list[IndexedFile]] = {}
    releases: dict[str, _Release] = {}
    for target in targets.targets.values():
        found = _target(target)
        release, _, name = found.path.partition("/")
        tar = TarFacts(**found.custom.tar.model_dump()) if found.custom.tar else None
        files.setdefault(release, []).append(
            IndexedFile(name=name, size=found.length, sha256=found.sha256, tar=tar)
        )
        if name == SUMS and found.custom.release:
            releases[release] = found.custom.release
    return Index(
        version=targets.version,
        releases=tuple(
            IndexedRelease(
                name=name,
                files=tuple(sorted(files[name], key=lambda file: file.name)),
                published=said.published,
                verified=said.verified,
                development=said.development,
                yanked=Yank(**said.yanked.model_dump()) if said.yanked else None,
            )
            for name, said in sorted(releases.items())
        ),
    )


def _target(target: TargetFile) -> _Target:
    try:
        return _Target.model_validate(
            {
                "path": target.path,
                "length": target.length,
                "sha256": target.hashes.get("sha256", ""),
                "custom": target.custom or {},
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise TrustError(
            f"the index says something of {target.path!r} that makes no sense: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            cause="it was signed by another program, or by a later version of this one",
            hint="update aotforge, or tell the publisher",
        ) from None


def make_targets(index: Index, *, expires: datetime) -> Targets:
    """The targets role of an index."""
    targets: dict[str, TargetFile] = {}
    for release in index.releases:
        for file in release.files:
            path = f"{release.name}/{file.name}"
            fields: dict[str, Any] = {"length": file.size, "hashes": {"sha256": file.sha256}}
            custom: dict[str, Any] = {}
            if file.tar:
                custom["tar"] = {
                    "sha256": file.tar.sha256,
                    "size": file.tar.size,
                    "members": file.tar.members,
                }
            if file.name == SUMS:
                custom["release"] = _release_fields(release)
            if custom:
                fields["custom"] = custom
            targets[path] = TargetFile.from_dict(fields, path)
    return Targets(version=index.version, expires=expires, targets=targets)


def _release_fields(release: IndexedRelease) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "format": 1,
        "published": release.published,
        "verified": release.verified,
        "development": list(release.development),
    }
    if release.yanked:
        fields["yanked"] = {"reason": release.yanked.reason, "time": release.yanked.time}
    return fields
