"""`./dev containers.lock`: resolves a definition with apt and pip, and writes its lock."""

import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from aotforge.base.child_processes import NETWORK, child_environment, run_child
from aotforge.base.files import make_folders, scratch_folder, write_atomic
from aotforge.base.progress import Observer
from aotforge.errors import ContainerError
from aotforge.formats.archive import sha256_file
from aotforge.run.pip_download import fetch_wheel
from aotforge.run.rootfs.assemble import assemble
from aotforge.run.rootfs.definitions import Definition, Lock, LockedFile, RootfsSpec, Wheels, read_spec
from aotforge.run.rootfs.fetch import DEBIAN, Downloads, fetch_locked

_APT_SECONDS = 600.0
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_URI = re.compile(r"^'(?P<url>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})$", re.M)
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(.*)$", re.M)


@dataclass(frozen=True, kw_only=True)
class LockUpdate:
    """A lock that was written, and its changes as text."""

    name: str
    file: Path
    digest: str
    changes: tuple[str, ...]


def lock_rootfs(
    checkout: Path,
    name: str,
    *,
    cache: Path,
    environment: Mapping[str, str],
    observer: Observer,
    keep: bool = False,
) -> LockUpdate:
    """Writes the lock of a rootfs. With `keep` the locked files stay and only the digest is updated.

    Raises ContainerError, UnknownNameError, ManifestError.
    """
    spec, downloads = read_spec(checkout, name), Downloads(cache)
    before = Lock.model_validate_json(spec.lock_file.read_bytes()) if spec.lock_file.exists() else None
    make_folders(downloads.folder.parent)
    with scratch_folder(downloads.folder.parent, ".lock-") as folder:
        if keep and before is not None:
            draft = before.model_copy(update={"definition": spec.definition.digest()})
        else:
            observer.stage(f"{name}: resolving {len(spec.definition.packages)} packages")
            draft = _resolved(spec, checkout, downloads, folder)
        fetch_locked(spec, draft, downloads, environment=environment, observer=observer)
        observer.stage(f"{name}: assembling")
        digest = assemble(spec.definition, draft, files=downloads.checked, tar=folder / "root.tar")
    lock = draft.model_copy(update={"digest": digest})
    write_atomic(spec.lock_file, lock.text().encode())
    return LockUpdate(name=name, file=spec.lock_file, digest=digest, changes=_changes(before, lock))


def _resolved(spec: RootfsSpec, checkout: Path, downloads: Downloads, folder: Path) -> Lock:
    """The files that mirrors and package index have now."""
    definition = spec.definition
    snapshot = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    packages = _packages(definition.suite, *definition.packages, without=definition.without)
    parts = [_packages(part.suite, part.package)[part.package] for part in definition.parts]
    return Lock(
        schema=2,
        definition=definition.digest(),
        snapshot=snapshot,
        packages=tuple(entry for _, entry in sorted(packages.items())),
        parts=tuple(parts),
        wheels=_wheels(definition, checkout, downloads, folder),
        digest="0" * 64,
    )


def _packages(suite: str, *names: str, without: tuple[str, ...] = ()) -> dict[str, LockedFile]:
    """Packages with their dependencies, by name, as Debian's archive has them now.

    apt resolves in a folder of its own and verifies signatures; this machine's apt state is not used.
    """
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    lines = [f"deb {signed}{DEBIAN}debian {suite} main", f"deb {signed}{DEBIAN}debian {suite}-updates main"]
    lines.append(f"deb {signed}{DEBIAN}debian-security {suite}-security main")
    with tempfile.TemporaryDirectory(prefix="aotforge-apt-") as name:
        folder = Path(name)
        for below in ("lists/partial", "archives/partial"):
            (folder / below).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text("\n".join(lines) + "\n")
        (folder / "apt.conf").write_text(_APT_CONF.format(folder=folder))
        own = child_environment({"APT_CONFIG": f"{folder}/apt.conf"}, keep=NETWORK)
        output = ""
        for words in (["update"], ["--print-uris", "-qq", "-y", "install", *names]):
            try:
                done = run_child(
                    ["apt-get", *words], environment=own, capture_output=True, timeout=_APT_SECONDS
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise ContainerError(
                    f"apt-get does not run: {error}", hint="write the lock on Debian or Ubuntu"
                ) from error
            if done.returncode:
                raise ContainerError(
                    f"apt cannot resolve {suite}: {' '.join(names)}"[:400],
                    cause=done.stderr.strip()[-800:],
                    hint="correct the definition, or check that deb.debian.org is reachable",
                )
            output = done.stdout
    found = {entry.name: entry for entry in map(_package, _URI.finditer(output))}
    if unused := [name for name in without if found.pop(name, None) is None]:
        raise ContainerError(
            f"`without` names {', '.join(unused)}, which no package depends on",
            hint="remove it from the definition",
        )
    return found


_APT_CONF = """
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{folder}";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/archives";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::ForceHash "SHA256";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
"""


def _package(found: re.Match[str]) -> LockedFile:
    name, version, _ = found["file"].split("_")
    version = unquote(version)
    return LockedFile(
        name=name, version=version, size=int(found["size"]), sha256=found["sha256"], url=found["url"]
    )


def _wheels(
    definition: Definition, checkout: Path, downloads: Downloads, folder: Path
) -> tuple[LockedFile, ...]:
    """The wheels that pip chooses for the rootfs' Python among those that the requirements pin."""
    wheels, chosen = definition.wheels, []
    for name, (version, hashes) in pinned_wheels(wheels, checkout).items() if wheels else ():
        assert wheels is not None
        wheel, trouble = fetch_wheel(name, version, hashes, wheels.python, folder / name)
        if wheel is None:
            raise ContainerError(f"{name} {version} has no wheel for Python {wheels.python}", cause=trouble)
        sha256 = sha256_file(wheel)
        downloads.put(sha256, wheel)
        chosen.append(LockedFile(name=name, version=version, size=wheel.stat().st_size, sha256=sha256))
    return tuple(chosen)


def pinned_wheels(wheels: Wheels, checkout: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and allowed SHA-256 of each wheel; of several (with markers) the last. Raises ContainerError."""
    file = checkout / wheels.requirements
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    known = {
        name.lower().replace("_", "-"): (
            version,
            frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)),
        )
        for name, version, rest in _PIN.findall(text)
    }
    if missing := [name for name in wheels.names if name not in known]:
        raise ContainerError(f"{file} does not pin {missing[0]}", hint="correct `wheels.names`")
    return {name: known[name] for name in wheels.names}


def _changes(before: Lock | None, after: Lock) -> tuple[str, ...]:
    """Packages and wheels that were added, removed or changed version."""
    if before is None:
        return ("new",)
    old, new = ({entry.name: entry.version for entry in lock.files} for lock in (before, after))
    lines = [
        f"{name}: {old.get(name, 'none')} -> {new.get(name, 'none')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if not lines and before.digest != after.digest:
        lines.append("the same packages and wheels, another rootfs")
    return tuple(lines)
