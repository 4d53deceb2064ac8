"""Checks of a release's wheels: metadata, content equal to the archives', platform. Read, never run."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from aotforge.conformance.candidate import files_below
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.library import build_machine_traces
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.errors import AotforgeError
from aotforge.formats.wheel import ATTENTION, WheelName, parse_wheel_name, read_wheel, record_bytes
from aotforge.release.wheels import FACTS, LIBRARIES, images_project, wheel_version

_EXTRA = re.compile(r'^Requires-Dist: (\S+)==(\S+) ; extra == "(\w+)"$', re.MULTILINE)
_OURS = "aotforge-"
"""Start of the names of the wheels with library and images; the console script's is aotforge."""

_IMAGES = f"{LIBRARIES}/aotriton.images/"


def check_wheels(context: CheckContext) -> list[Finding]:
    """Every wheel in the folder; those of library and images are complete when there is one."""
    files = sorted(context.candidate.folder.glob("*.whl"))
    if not files:
        return [not_run("wheels", "the wheels", "the release has none")]
    findings, wheels = [], {}
    for path in files:
        name = parse_wheel_name(path.name)
        try:
            members = read_wheel(path)
        except AotforgeError as error:
            findings.append(failed("wheels", f"{path.name} can be read", str(error)))
            continue
        if name is None:
            findings.append(failed("wheels", "names of wheels", f"{path.name} is not a valid one"))
            continue
        wheels[name.name] = (name, members)
        findings.append(finding_from("wheels", f"metadata of {path.name}", _metadata_faults(name, members)))
        if name.name.startswith(_OURS):
            findings.append(_traces(context, path.name, members))
    return [
        *findings,
        finding_from("wheels", "library and images as in the archives", _content_faults(context, wheels)),
        finding_from("wheels", "an extra per arch, and its wheel of images", _extra_faults(context, wheels)),
    ]


def _traces(context: CheckContext, file: str, members: Mapping[str, bytes]) -> Finding:
    """The wheel of the console script is left out: sources may name such a path as an example."""
    found = [
        f"{one}: {text}" for one in members for text in build_machine_traces(members[one], context.checkout)
    ]
    return finding_from("wheels", f"no path or name of the build machine in {file}", found)


_Wheels = Mapping[str, tuple[WheelName, Mapping[str, bytes]]]


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
        bill = json.loads(members[f"{name.info}/sboms/{name.name}.cdx.json"])
        listed = {one["name"] for one in bill["components"] if one["type"] == "file"}
    except (KeyError, ValueError, TypeError):
        yield "it has no SBOM in sboms/"
        return
    if listed != {one for one in members if not one.startswith(f"{name.info}/")}:
        yield "its SBOM lists other files"


def _content_faults(context: CheckContext, wheels: _Wheels) -> Iterator[str]:
    """Only files of the release's archives and of this project are in a wheel that puts files beside the library."""
    soname = context.compat.names[0]
    if ATTENTION in wheels:
        name, members = wheels[ATTENTION]
        if members.get(f"{LIBRARIES}/{soname}") != context.library.read_bytes():
            yield f"{soname} is not the archive's"
        if {runtime.platform for runtime in context.candidate.runtimes} != {name.platform}:
            yield f"{name} is not of the library's platform"
        if missing := [one for one in context.compat.names if f"{LIBRARIES}/{one}" not in members]:
            yield f"{missing[0]} is missing in {name}"
        if FACTS not in members:
            yield f"{FACTS} is missing in {name}"
    for pack, folder in context.candidate.packs().items():
        if found := wheels.get(images_project(pack)):
            inside = {one: data for one, data in found[1].items() if not one.startswith(f"{found[0].info}/")}
            if inside != {f"{_IMAGES}{pack}/{path}": data for path, data in _files(folder)}:
                yield f"{found[0]} has other files than the archive of {pack}"


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in files_below(folder):
        yield path.relative_to(folder).as_posix(), path.read_bytes()


def _extra_faults(context: CheckContext, wheels: _Wheels) -> Iterator[str]:
    version = wheel_version(context.candidate.name)
    projects = {images_project(pack) for pack in context.candidate.packs()}
    for project in sorted({ATTENTION, *projects} - set(wheels)):
        yield f"the wheel of {project} is missing"
    for project, (name, _) in wheels.items():
        if project in {ATTENTION, *projects} and name.version != version:
            yield f"{name} is not of version {version}"
    if ATTENTION in wheels:
        name, members = wheels[ATTENTION]
        needs = _EXTRA.findall(members.get(f"{name.info}/METADATA", b"").decode("utf-8", "replace"))
        for project, wanted, extra in needs:
            if project not in projects or wanted != version:
                yield f"extra {extra} needs {project} {wanted}, which the release has not"
        if unreached := sorted(projects - {project for project, _, extra in needs if extra != "all"}):
            yield f"no extra for {', '.join(unreached)}"
