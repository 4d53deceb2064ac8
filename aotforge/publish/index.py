"""The index as a TUF targets role (TUF specification 1.0, section 4.5), and its values.

A target is a file of a release, `<release>/<file>`. Its `custom` holds `tar` of an archive, and `release`
of a SHA256SUMS, whose presence makes a release.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from tuf.api.metadata import TargetFile, Targets

from aotforge.errors import TrustError
from aotforge.formats.api_level import RELEASE_NAME
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import SUMS
from aotforge.formats.tar_reader import TarFacts

FOLDER = "tuf"
"""Folder of the signed index in a store."""

FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}$"

_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True)
class IndexedFile:
    """A file of a release: bytes, SHA-256 (hexadecimal), and `tar` of a .tar.gz."""

    name: Annotated[str, Field(pattern=FILE_NAME)]
    size: _Count
    sha256: _Sha256
    tar: TarFacts | None = None


@dataclass(frozen=True, kw_only=True)
class Yank:
    """Mark of a release that must not be installed, though its files stay. `time` is ISO 8601, UTC."""

    reason: str
    time: str


@dataclass(frozen=True, kw_only=True)
class IndexedRelease:
    """A release. `published` is ISO 8601, UTC, empty before; `development`: reasons against its use."""

    name: Annotated[str, Field(pattern=RELEASE_NAME)]
    files: tuple[IndexedFile, ...]
    published: str
    verified: bool
    development: tuple[str, ...] = ()
    yanked: Yank | None = None

    def line(self) -> str:
        """Name, date, size, image packs and state."""
        parsed = [parse_artifact_name(file.name) for file in self.files]
        packs = " ".join(name.pack for name in parsed if name and name.kind == "images")
        state = "verified" if self.verified else "not verified"
        if self.development:
            state = "development build"
        if self.yanked:
            state = f"yanked: {self.yanked.reason}"
        size = f"{len(self.files)} files, {sum(file.size for file in self.files)} bytes"
        return f"{self.name:14} {self.published[:10]}  {size}  {packs}  {state}"

    def file(self, name: str) -> IndexedFile | None:
        """The file of this name."""
        return next((file for file in self.files if file.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Index:
    """A store's signed index, sorted by name. `version`: of the targets metadata, 0 for an empty store."""

    version: int
    releases: tuple[IndexedRelease, ...]

    def release(self, name: str) -> IndexedRelease | None:
        """The release of this name."""
        return next((release for release in self.releases if release.name == name), None)

    def yanked(self) -> dict[str, str]:
        """Releases that must not be installed, with the reason."""
        return {release.name: release.yanked.reason for release in self.releases if release.yanked}

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Lines of text."""
        return [release.line() for release in self.releases] or ["no releases"]


@dataclass(kw_only=True)
class Publication:
    """Report of a publication, with running totals. `sent` and `found`: objects that were created, and that
    existed with the same bytes; `bytes_sent` and `bytes_read` the bytes in each direction; `notes` are
    warnings for the user."""

    sent: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    bytes_sent: int = 0
    bytes_read: int = 0
    release: str
    url: str
    index_version: int
    dry_run: bool = False
    notes: tuple[str, ...] = ()

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Lines of text."""
        if self.dry_run:
            counts = f"{len(self.sent)} files, {self.bytes_sent} bytes, {len(self.found)} exist"
            summary = f"{self.release} to {self.url}: {counts}; nothing was written"
            return [*(f"would send {name}" for name in self.sent), summary]
        return [
            f"{self.release} is at {self.url}, index {self.index_version}: "
            f"sent {self.bytes_sent} bytes, read back {self.bytes_read} bytes; "
            f"{len(self.found)} files existed",
        ]


_RELEASE = TypeAdapter(IndexedRelease)
_FORMAT = 1


def read_index(targets: Targets) -> Index:
    """The index of a targets role. Raises TrustError for content that is signed but not valid."""
    files: dict[str, list[dict[str, Any]]] = {}
    described: dict[str, Mapping[str, Any]] = {}
    for path, target in sorted(targets.targets.items()):
        (release, _, name), custom = path.partition("/"), target.custom or {}
        sha256, tar = target.hashes.get("sha256"), custom.get("tar")
        files.setdefault(release, []).append(
            {"name": name, "size": target.length, "sha256": sha256, "tar": tar}
        )
        if name == SUMS and "release" in custom:
            described[release] = custom["release"]
    releases = tuple(_release(name, files[name], fields) for name, fields in described.items())
    return Index(version=targets.version, releases=releases)


def _release(name: str, files: list[dict[str, Any]], fields: Mapping[str, Any]) -> IndexedRelease:
    try:
        if fields["format"] != _FORMAT:
            raise ValueError(f"its format is {fields['format']!r}, not {_FORMAT}")
        return _RELEASE.validate_python({**fields, "name": name, "files": files})
    except (ValueError, KeyError, TypeError) as error:
        raise TrustError(
            f"the index entry of {name!r} is not valid: {error}",
            cause="it was signed by another program, or by a later version of this one",
            hint="update aotforge, or inform the publisher",
        ) from None


def index_targets(index: Index) -> dict[str, TargetFile]:
    """The targets of an index, by path."""
    targets: dict[str, TargetFile] = {}
    for release in index.releases:
        for file in release.files:
            path = f"{release.name}/{file.name}"
            custom: dict[str, Any] = {"tar": asdict(file.tar)} if file.tar else {}
            if file.name == SUMS:
                fields = {key: value for key, value in asdict(release).items() if value is not None}
                custom["release"] = {"format": _FORMAT, **fields}
                del custom["release"]["name"], custom["release"]["files"]
            more = {"custom": custom} if custom else {}
            targets[path] = TargetFile(file.size, {"sha256": file.sha256}, path, more)
    return targets
