"""Check of a release's wheels against its archives; read, never run."""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from aotforge.conformance.candidate import files_below
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.findings import Finding, finding_from, not_run, set_violations
from aotforge.formats.untrusted_file import parse_json
from aotforge.formats.wheel import CONSOLE, parse_wheel_name, read_wheel, write_wheel
from aotforge.pack.reader import open_pack
from aotforge.release.release import read_windows
from aotforge.release.wheels import build_package, wheel_contents


def check_wheels(context: CheckContext) -> Iterator[Finding]:
    """Every wheel in the folder; those of library and images are complete when there is one."""
    released = {
        path.name: read_wheel(path) for path in sorted(context.candidate.release.folder.glob("*.whl"))
    }
    if not released:
        yield not_run("wheels", "the wheels", "the release has none")
        return
    with tempfile.TemporaryDirectory(dir=context.work) as scratch:
        made = {path.name: read_wheel(path) for path in _made(context, released, Path(scratch))}
    faults = set_violations(released, made, "is not a wheel of this release")
    bills: list[str] = []
    for name in sorted(made.keys() & released.keys()):
        faults += _differences(name, released[name], made[name])
        bills += [f"{name}: {text}" for text in _bill_faults(name, released[name])]
    yield finding_from("wheels", "every file as this checkout makes it", faults, f"{len(made)} wheels")
    yield finding_from("wheels", "the SBOM of each lists its files", bills)


def _made(context: CheckContext, released: Mapping[str, Mapping[str, bytes]], folder: Path) -> Iterator[Path]:
    """The wheels that this checkout makes of the archives, with the SBOMs of the wheels found."""
    candidate = context.candidate
    packs = {name: open_pack(path).signature.archs for name, path in candidate.packs().items()}
    images = ((name, _files(path)) for name, path in candidate.packs().items())
    windows = read_windows(candidate.windows[0]) if candidate.windows else None
    platform = candidate.runtimes[0].platform
    runtime = _files(context.prefix)
    for wheel in wheel_contents(context.compat.release, packs, runtime, images, platform, windows=windows):
        bill = f"sboms/{wheel.name.name}.cdx.json"
        own = released.get(str(wheel.name), {}).get(f"{wheel.name.info}/{bill}")
        info = dict(wheel.info) | ({} if own is None else {bill: own})
        yield write_wheel(folder, wheel.name, wheel.members, info, epoch=0)
    if any(name.partition("-")[0] == CONSOLE for name in released):
        yield build_package(context.checkout, folder)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files_below(folder)}


def _differences(name: str, released: Mapping[str, bytes], made: Mapping[str, bytes]) -> Iterator[str]:
    for file in sorted(released.keys() | made.keys()):
        if file not in made:
            yield f"{name} has {file}, which is not of this release"
        elif file not in released:
            yield f"{name} lacks {file}"
        elif released[file] != made[file]:
            yield f"{name}: {file} has other content than this checkout's or the archive's"


def _bill_faults(file: str, members: Mapping[str, bytes]) -> Iterator[str]:
    """The SBOM lists every file outside of the metadata, with its digest as RECORD has it."""
    name = parse_wheel_name(file)
    if name is None or name.name == CONSOLE:
        return
    own = {member: data for member, data in members.items() if not member.startswith(f"{name.info}/")}
    try:
        bill = parse_json(members[f"{name.info}/sboms/{name.name}.cdx.json"])
        files = [component for component in bill["components"] if component["type"] == "file"]
        listed = {component["name"]: component["hashes"][0]["content"] for component in files}
    except (LookupError, ValueError, TypeError):
        yield "it has no SBOM"
        return
    if listed != {member: hashlib.sha256(data).hexdigest() for member, data in own.items()}:
        yield "its SBOM lists other files"
