"""Reproduction of a recorded release from a clean clone of its commit and an empty image cache."""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aotforge.base.child_processes import ENGINE, NETWORK, child_environment, run_child
from aotforge.base.files import make_folders, output_errors
from aotforge.base.git import clone, first_line, run_git
from aotforge.base.progress import Observer
from aotforge.errors import OutputError, ReleaseError, ReproduceError
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.sums import TAR_SUMS, read_sums
from aotforge.pipeline.requests import ReproduceRequest
from aotforge.release.compare import archive_digest, compare_archives
from aotforge.release.record import Record, differing_archives, load_record
from aotforge.release.release import is_release_file

_LISTED = 20
_REQUIREMENTS = ("build.txt", "tools.txt")
_KEPT = {"AOTFORGE_SOURCES", "AOTFORGE_PYTHON"}


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """The compared archives by name, and the number of compiled images. `published`: folder of the same."""

    release: str
    commit: str
    compiled: int
    archives: tuple[str, ...]
    published: str | None = None

    def fields(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Lines of text."""
        return [
            f"{self.release} from {self.commit}: {self.compiled} images compiled, "
            f"{len(self.archives)} archives identical with releases/{self.release}.json"
            + (f" and with those in {self.published}; other files are not compared" if self.published else "")
        ]


def reproduce(request: ReproduceRequest, *, observer: Observer) -> Reproduction:
    """Builds the release again and compares. Raises ReproduceError for a difference, with an explanation."""
    record = load_record(request.root / "releases", request.release)
    if request.work:
        with output_errors(request.work):
            make_folders(request.work)
            if any(request.work.iterdir()):
                raise OutputError(
                    f"{request.work} is not empty",
                    cause="files of an earlier build would be compared instead of new ones",
                    hint="./dev release.reproduce with a new folder as --work, or empty this one",
                )
    with tempfile.TemporaryDirectory(prefix="aotforge-reproduce-", dir=request.work) as scratch:
        work = request.work or Path(scratch)
        checkout = Path(scratch) / "checkout"
        observer.stage(f"a clean clone of {record.commit[:12]}")
        _clone(request.root, record.commit, checkout)
        cache = checkout.with_name("cache")
        cache.mkdir()
        if (request.cache / "containers").is_dir():
            (cache / "containers").symlink_to(request.cache / "containers")
        compiled = 0
        tars: dict[str, str] = {}
        for platform in record.platforms:
            observer.stage(f"building {record.release} for {platform} from an empty cache")
            output = work / platform
            report = _build(request, record, platform, checkout, output)
            if platform == "linux":
                compiled = _check_compiled(report, record)
            tars |= _digests(output, report)
        if wrong := differing_archives(record, tars):
            raise _mismatch(request, record, work, wrong)
        if request.published:
            _check_published(request.published, record)
    return Reproduction(
        release=record.release,
        commit=record.commit,
        compiled=compiled,
        archives=tuple(record.tars),
        published=str(request.published) if request.published else None,
    )


def _clone(root: Path, commit: str, target: Path) -> None:
    done = clone(root, target)
    if not done.returncode:
        done = run_git(target, "checkout", "--quiet", "--detach", commit)
    if done.returncode:
        raise ReproduceError(
            f"the sources of commit {commit} are not available: {first_line(done)}",
            cause="this clone is shallow, or the release was made from a commit that was never pushed",
            hint="git fetch --unshallow, or clone the repository with its history",
        )


def _build(
    request: ReproduceRequest, record: Record, platform: str, checkout: Path, output: Path
) -> dict[str, Any]:
    linux = ["build", "--arch", ",".join(record.archs), "--profile", record.profile]
    command = [str(checkout / "dev"), *(linux if platform == "linux" else [f"build.{platform}"])]
    command += ["--json", "--output", str(output), "--version", record.release]
    command += ["--cache", str(checkout.with_name("cache")), "--executor", record.executor]
    given = {
        name: value
        for name, value in request.environment.items()
        if not name.startswith("AOTFORGE_") or name in _KEPT
    }
    add = {"SOURCE_DATE_EPOCH": str(record.epoch), "AOTFORGE_HOME": str(_home(request, checkout))}
    own = child_environment(add, base=given, keep=(*NETWORK, *ENGINE))
    done = run_child(command, environment=own, cwd=checkout, stdout=subprocess.PIPE)
    if done.returncode:
        raise ReproduceError(
            f"the build of {record.release} for {platform} ended with {done.returncode}",
            cause="its messages are above",
            hint="the release was made with "
            + (f"executor {record.executor}" if record.executor != "local" else record.compiler),
        )
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def _home(request: ReproduceRequest, checkout: Path) -> Path:
    """The caller's Python environment when the old sources need the same packages, else a new one."""

    def contents(root: Path) -> list[bytes]:
        paths = [root / "requirements" / name for name in _REQUIREMENTS]
        return [path.read_bytes() if path.is_file() else b"" for path in paths]

    return request.home if contents(checkout) == contents(request.root) else checkout / ".aotforge"


def _check_compiled(report: Mapping[str, Any], record: Record) -> int:
    planned = sum(pack.jobs for pack in record.packs.values())
    compiled, images = int(report["compiled"]), int(report["images"])
    if not compiled == images == planned or report["cached"] or report["shared"]:
        raise ReproduceError(
            f"{compiled} of {images} images were compiled, the release has {planned}",
            cause="some images were not compiled now, so equal bytes would prove nothing",
            hint="report this: the cache was made empty for this build",
        )
    return compiled


def _digests(output: Path, report: Mapping[str, Any]) -> dict[str, str]:
    folder = output / str(report["release"])
    listed = read_sums(folder / TAR_SUMS) if (folder / TAR_SUMS).is_file() else {}
    tars = {name: digest for name, digest in listed.items() if name.endswith(".tar")}
    # the build for Windows makes one archive
    zips = {Path(str(report["file"])).name: str(report["sha256"])} if "file" in report else {}
    return tars | zips


def _mismatch(request: ReproduceRequest, record: Record, work: Path, wrong: Sequence[str]) -> ReproduceError:
    lines = []
    for name in wrong:
        file = f"{name}.gz" if name.endswith(".tar") else name
        made = next(work.glob(f"*/*/{file}"), None)
        released = request.published / file if request.published else None
        unlisted = "other bytes" if name in record.tars else "not in the record"
        lines.append(f"{name}: {unlisted if made else 'not made'}")
        if made is not None and released is not None and released.is_file():
            lines += [f"  {line}" for line in _explained(released, made)]
    return ReproduceError(
        f"{record.release} was not reproduced:\n" + "\n".join(lines),
        cause="the tools are not the recorded ones, or an output depends on something that is not an input",
        hint="--work FOLDER keeps what was built"
        if request.published
        else "pass the released files with --published FOLDER to see which members differ",
    )


def _check_published(folder: Path, record: Record) -> None:
    """Raises ReproduceError unless the only archives in a folder are the recorded ones; OutputError."""
    with output_errors(folder):
        paths = sorted(folder.iterdir())
    expected, lines = dict(record.tars), []
    for path in paths:
        archive = parse_artifact_name(path.name) is not None
        digest = expected.pop(path.name.removesuffix(".gz"), None) if archive else None
        if not archive and is_release_file(path.name):
            continue
        if digest is None:
            lines.append(f"{path.name}: not in the record")
            continue
        try:
            if archive_digest(path) != digest:
                lines.append(f"{path.name}: other bytes")
        except ReleaseError as error:
            lines.append(error.what)
    if lines := [*lines, *(f"{name}: missing" for name in expected)]:
        raise ReproduceError(
            f"{record.release} was reproduced, but {folder} has another release:\n"
            + "\n".join(lines[:_LISTED]),
            cause="its files were changed, or are not complete",
            hint="do not use them; fetch the release again",
        )


def _explained(released: Path, made: Path) -> list[str]:
    """The members that differ, or why the released archive cannot be read."""
    try:
        differences = compare_archives(released, made)
    except ReleaseError as error:
        return [error.what]
    lines = [
        f"{difference.name}: {difference.before or 'missing'} -> {difference.after or 'missing'}"
        for difference in differences[:_LISTED]
    ]
    return [*lines, f"... and {len(differences) - _LISTED} more"] if len(differences) > _LISTED else lines
