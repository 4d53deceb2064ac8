"""Checks of a release's wheels: metadata, content equal to the archives', platform. Read, never run."""

import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aotforge.conformance.candidate import files_below
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import build_machine_traces
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.errors import AotforgeError
from aotforge.formats.untrusted_file import parse_json
from aotforge.formats.wheel import ATTENTION, CONSOLE, WheelName, parse_wheel_name, read_wheel, record_bytes
from aotforge.pack.reader import open_pack
from aotforge.release.console_wheel import write_console_wheel
from aotforge.release.wheels import WINDOWS, images_project, read_windows, wheel_contents, wheel_version

_EXTRA = re.compile(r'^Requires-Dist: ([^\s=]+)==(\S+) ; extra == "(\w+)"$', re.MULTILINE)
_OURS = "aotforge-"
"""Start of the names of the wheels with library and images; the console script's is aotforge."""


@dataclass(frozen=True, kw_only=True)
class _Wheel:
    """A wheel without its bytes: SHA-256 of each file, and METADATA of the library's wheel as text."""

    name: WheelName
    files: Mapping[str, str]
    metadata: str = ""


_Wheels = Mapping[str, _Wheel]


def check_wheels(context: CheckContext) -> list[Finding]:
    """Every wheel in the folder, one after the other; those of library and images are complete when there is one."""
    files = sorted(context.candidate.folder.glob("*.whl"))
    if not files:
        return [not_run("wheels", "the wheels", "the release has none")]
    findings: list[Finding] = []
    wheels: dict[str, _Wheel] = {}
    for path in files:
        name = parse_wheel_name(path.name)
        try:
            members = read_wheel(path)
        except (AotforgeError, OSError) as error:
            findings.append(failed("wheels", f"{path.name} can be read", str(error)))
            continue
        if name is None:
            findings.append(failed("wheels", "names of wheels", f"{path.name} is not a valid one"))
            continue
        if _key(name) in wheels:
            found = f"{path.name} and {wheels[_key(name)].name}"
            findings.append(failed("wheels", "one wheel per project", found))
        metadata = ""
        if name.name == ATTENTION:
            metadata = members.get(f"{name.info}/METADATA", b"").decode("utf-8", "replace")
        wheels[_key(name)] = _Wheel(name=name, files=_digests(members), metadata=metadata)
        findings.append(finding_from("wheels", f"metadata of {path.name}", _metadata_faults(name, members)))
        if name.name.startswith(_OURS):
            findings.append(_traces(context, path.name, members))
    return [
        *findings,
        finding_from("wheels", "every file as this checkout makes it", _content_faults(context, wheels)),
        finding_from("wheels", "an extra per arch, and its wheel of images", _extra_faults(context, wheels)),
    ]


def _key(name: WheelName) -> str:
    """The project, of which there may be one wheel for Windows and one other."""
    return f"{name.name} for Windows" if name.platform == WINDOWS else name.name


def _digests(members: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}


def _traces(context: CheckContext, file: str, members: Mapping[str, bytes]) -> Finding:
    """The wheel of the console script is left out: sources may name such a path as an example."""
    found = (
        f"{one}: {text}" for one in members for text in build_machine_traces(members[one], context.checkout)
    )
    return finding_from("wheels", f"no path or name of the build machine in {file}", found)


def _metadata_faults(name: WheelName, members: Mapping[str, bytes]) -> Iterator[str]:
    record = f"{name.info}/RECORD"
    if members.get(record) != record_bytes(members, record):
        yield "RECORD is not the list of its members"
    described = members.get(f"{name.info}/METADATA", b"").decode("utf-8", "replace").splitlines()
    if f"Name: {name.name}" not in described or f"Version: {name.version}" not in described:
        yield "METADATA names another project or version than the file"
    tags = members.get(f"{name.info}/WHEEL", b"").decode("utf-8", "replace").splitlines()
    if [line for line in tags if line.startswith("Tag: ")] != [f"Tag: {name.tag}"]:
        yield "WHEEL has another tag than the file's name"
    licences = [
        line.removeprefix("License-File: ") for line in described if line.startswith("License-File: ")
    ]
    if not licences or any(f"{name.info}/licenses/{one}" not in members for one in licences):
        yield "a licence is missing"
    if name.name.startswith(_OURS):
        yield from _bill_faults(name, members)


def _bill_faults(name: WheelName, members: Mapping[str, bytes]) -> Iterator[str]:
    """The SBOM lists every file outside of the metadata, with its digest as RECORD has it."""
    try:
        bill = parse_json(members[f"{name.info}/sboms/{name.name}.cdx.json"])
        files = [one for one in bill["components"] if one["type"] == "file"]
        listed = {one["name"]: one["hashes"][0]["content"] for one in files}
    except (LookupError, ValueError, TypeError):
        yield "it has no SBOM in sboms/"
        return
    if listed != {
        one: hashlib.sha256(data).hexdigest()
        for one, data in members.items()
        if not one.startswith(f"{name.info}/")
    }:
        yield "its SBOM lists other files"


def _content_faults(context: CheckContext, wheels: _Wheels) -> Iterator[str]:
    """Each wheel has the files that this checkout would put there, of the release's archives and its own, and no others: pip installs all
    of them, and Python executes some at each start.
    """
    try:
        expected = {_key(one.name): one for one in _expected(context, console=CONSOLE in wheels)}
    except (AotforgeError, OSError, LookupError) as error:
        yield f"the release's archives have not what wheels are made of: {error}"
        return
    for project, wheel in wheels.items():
        name = wheel.name
        if project not in expected:
            yield f"{name} is of a project that no release has"
            continue
        own = expected[project]
        if str(own.name) != str(name):
            yield f"{name} is not {own.name}"
            continue
        for file in sorted((own.files.keys() | wheel.files.keys()) - _made_of_others(name)):
            if file not in own.files:
                yield f"{name} has {file}, which is not of this release"
            elif file not in wheel.files:
                yield f"{name} lacks {file}"
            elif own.files[file] != wheel.files[file]:
                yield f"{name}: {file} has other content than this checkout's or the archive's"


def _made_of_others(name: WheelName) -> set[str]:
    """Files that state what the others are, which have checks of their own."""
    return {f"{name.info}/{file}" for file in ("RECORD", "WHEEL", f"sboms/{name.name}.cdx.json")}


def _expected(context: CheckContext, *, console: bool) -> Iterator[_Wheel]:
    """The wheels that the release's archives and this checkout make."""
    candidate = context.candidate
    packs = {name: open_pack(folder).signature.archs for name, folder in candidate.packs().items()}
    images = ((name, dict(_files(folder))) for name, folder in candidate.packs().items())
    runtime = dict(_files(context.prefix))
    manifest = context.compat.release
    windows = read_windows(candidate.windows[0]) if candidate.windows else None
    platform = candidate.runtimes[0].platform
    for content in wheel_contents(manifest, packs, runtime, images, platform, windows=windows):
        info = {f"{content.name.info}/{file}": data for file, data in content.info.items()}
        yield _Wheel(name=content.name, files=_digests({**content.members, **info}))
    if console:
        with tempfile.TemporaryDirectory(dir=context.work) as scratch:
            path = write_console_wheel(context.checkout, Path(scratch))
            name = parse_wheel_name(path.name) or WheelName(name=CONSOLE, version="")
            yield _Wheel(name=name, files=_digests(read_wheel(path)))


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in files_below(folder):
        yield path.relative_to(folder).as_posix(), path.read_bytes()


def _extra_faults(context: CheckContext, wheels: _Wheels) -> Iterator[str]:
    version = wheel_version(context.candidate.name)
    projects = {images_project(pack) for pack in context.candidate.packs()}
    for project in sorted({ATTENTION, *projects} - set(wheels)):
        yield f"the wheel of {project} is missing"
    for wheel in wheels.values():
        if wheel.name.name in {ATTENTION, *projects} and wheel.name.version != version:
            yield f"{wheel.name} is not of version {version}"
    if ATTENTION in wheels:
        needs = _EXTRA.findall(wheels[ATTENTION].metadata)
        for project, wanted, extra in needs:
            if project not in projects or wanted != version:
                yield f"extra {extra} needs {project} {wanted}, which the release has not"
        if unreached := sorted(projects - {project for project, _, extra in needs if extra != "all"}):
            yield f"no extra for {', '.join(unreached)}"
