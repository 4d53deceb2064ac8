"""`./dev containers.lock`: resolves a definition with apt and pip, and writes its lock."""

import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from aotforge.base.child_processes import NETWORK, child_environment, run_child
from aotforge.base.files import make_folders, scratch_folder, write_atomic
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.formats.archive import sha256_file
from aotforge.run.pip_download import fetch_wheel
from aotforge.run.rootfs.assemble import assemble
from aotforge.run.rootfs.definitions import Lock, LockedFile, RootfsSpec, Wheels, read_spec
from aotforge.run.rootfs.fetch import DEBIAN, Downloads

_APT_SECONDS = 600.0
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_URI = re.compile(r"^'(?P<url>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})$", re.M)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(.*)$", re.M)
_APT = """
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{folder}";
Dir::State::status "/dev/null";
Dir::Cache "{folder}";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::ForceHash "SHA256";
Acquire::Languages "none";
"""


def lock_rootfs(
    checkout: Path,
    name: str,
    *,
    cache: Path,
    environment: Mapping[str, str],
    observer: Observer,
    keep: bool = False,
) -> tuple[RootfsSpec, Lock]:
    """Writes the lock of a rootfs, with `keep` of the same files. Raises ContainerError, UnknownNameError."""
    spec, downloads = read_spec(checkout, name), Downloads(cache)
    make_folders(downloads.folder.parent)
    with scratch_folder(downloads.folder.parent, ".lock-") as folder:
        if keep:
            locked = Lock.model_validate_json(spec.lock_file.read_bytes())
            draft = locked.model_copy(update={"definition": spec.definition.digest()})
        else:
            observer.stage(f"{name}: resolving {len(spec.definition.packages)} packages")
            draft = _resolved(spec, checkout, downloads, folder)
        downloads.fetch(spec, draft, environment=environment, observer=observer)
        observer.stage(f"{name}: assembling")
        digest = assemble(spec.definition, draft, files=downloads.checked, tar=folder / "root.tar")
    lock = draft.model_copy(update={"digest": digest})
    write_atomic(spec.lock_file, lock.text().encode())
    return spec, lock


def _resolved(spec: RootfsSpec, checkout: Path, downloads: Downloads, folder: Path) -> Lock:
    """The files that mirrors and package index have now."""
    definition, wheels = spec.definition, []
    snapshot = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    packages = _packages(definition.suite, *definition.packages)
    if unused := [name for name in definition.without if packages.pop(name, None) is None]:
        raise ContainerError(
            f"`without` names {', '.join(unused)}, which no package depends on",
            hint="remove it from the definition",
        )
    pins = pinned_wheels(definition.wheels, checkout).items() if definition.wheels else ()
    for name, (version, hashes) in pins:
        assert definition.wheels is not None
        wheel = fetch_wheel(name, version, hashes, definition.wheels.python, folder / name)
        sha256 = sha256_file(wheel)
        downloads.put(sha256, wheel)
        wheels.append(LockedFile(name=name, version=version, size=wheel.stat().st_size, sha256=sha256))
    return Lock(
        schema=2,
        definition=definition.digest(),
        snapshot=snapshot,
        packages=tuple(entry for _, entry in sorted(packages.items())),
        parts=tuple(_packages(part.suite, part.package)[part.package] for part in definition.parts),
        wheels=tuple(wheels),
        digest="0" * 64,
    )


def _packages(suite: str, *names: str) -> dict[str, LockedFile]:
    """Packages with dependencies, as Debian's archive has them now, by apt in a folder of its own."""
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    suites = {suite: "debian", f"{suite}-updates": "debian", f"{suite}-security": "debian-security"}
    own, output = child_environment(keep=NETWORK), ""
    with tempfile.TemporaryDirectory(prefix="aotforge-apt-") as folder:
        lines = [f"deb {signed}{DEBIAN}{archive} {name} main\n" for name, archive in suites.items()]
        Path(folder, "sources.list").write_text("".join(lines))
        Path(folder, "apt.conf").write_text(_APT.format(folder=folder))
        own["APT_CONFIG"] = f"{folder}/apt.conf"
        for words in (["update"], ["--print-uris", "-qq", "-y", "install", *names]):
            try:
                command = ["apt-get", *words]
                done = run_child(command, environment=own, capture_output=True, timeout=_APT_SECONDS)
            except (OSError, subprocess.TimeoutExpired) as error:
                hint = "write the lock on Debian or Ubuntu"
                raise ContainerError(f"apt-get does not run: {error}", hint=hint) from error
            if done.returncode:
                raise ContainerError(
                    f"apt cannot resolve {suite}: {' '.join(names)}"[:400],
                    cause=done.stderr.strip()[-800:],
                    hint="correct the definition, or check that deb.debian.org is reachable",
                )
            output = done.stdout
    return {entry.name: entry for entry in map(_package, _URI.finditer(output))}


def _package(match: re.Match[str]) -> LockedFile:
    name, version, _ = match["file"].split("_")
    size, sha256, url = int(match["size"]), match["sha256"], match["url"]
    return LockedFile(name=name, version=version.replace("%3a", ":"), size=size, sha256=sha256, url=url)


def pinned_wheels(wheels: Wheels, checkout: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and allowed SHA-256 of each wheel; of several the last. Raises ContainerError."""
    file, known = checkout / wheels.requirements, {}
    for name, version, rest in _PIN.findall(file.read_text(encoding="utf-8").replace("\\\n", " ")):
        hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", rest))
        known[name.lower().replace("_", "-")] = version, hashes
    if missing := [name for name in wheels.names if name not in known]:
        raise ContainerError(f"{file} does not pin {missing[0]}", hint="correct `wheels.names`")
    return {name: known[name] for name in wheels.names}
