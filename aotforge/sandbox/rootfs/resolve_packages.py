"""Resolves a definition's packages with apt in a private folder.

This machine's apt state is neither read nor written. apt verifies the archives' signatures with this machine's keyrings. Dates of
Release files do not count: a lock selects bytes.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.child_processes import NETWORK, child_environment, run_child
from aotforge.errors import ContainerError
from aotforge.sandbox.rootfs.definitions import Definition, LockedPackage
from aotforge.sandbox.rootfs.fetch import FAILURES, AptSettings, opened

_INST = re.compile(r"^Inst (\S+) \((\S+) ")
_UNKNOWN_SHA1 = "0" * 40
_APT_SECONDS = 600.0
_ROLLING = ("sid", "unstable", "experimental")
"""Suites without security updates of their own."""
_KEYRINGS = Path("/usr/share/keyrings")


@dataclass(frozen=True, kw_only=True)
class _Apt:
    suite: str
    options: tuple[str, ...]

    def run(self, *command: str) -> str:
        """Standard output. Raises ContainerError."""
        try:
            line = [command[0], *self.options, *command[1:]]
            own = child_environment(keep=NETWORK)
            done = run_child(line, environment=own, capture_output=True, timeout=_APT_SECONDS)
        except subprocess.TimeoutExpired:
            raise ContainerError(
                f"{command[0]} did not end in {_APT_SECONDS:.0f} s",
                cause="a mirror or a network on the way that sends slowly: apt waits as long as a byte comes now and then",
                hint="name another mirror in the machine's apt sources",
            ) from None
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            raise ContainerError(
                f"apt cannot resolve {self.suite}: {' '.join(command)}"[:400],
                cause=" ".join(errors)[:800],
                hint="correct the package names in the definition, or the machine's apt sources",
            )
        return done.stdout


def resolve(definition: Definition, settings: AptSettings) -> tuple[list[LockedPackage], list[LockedPackage]]:
    """Packages of the definition with their dependencies, without SHA-1, and its parts. Raises ContainerError."""
    if shutil.which("apt-get") is None:
        raise ContainerError(
            "apt-get is not on this machine",
            cause="a lock is resolved by apt",
            hint="write the lock on Debian or Ubuntu",
        )
    with private_apt(definition.suite, settings) as apt:
        names = _dependencies(apt, definition)
        packages = _locked(apt, [f"{name}={version}" for name, version in sorted(names.items())])
    parts = []
    for part in definition.parts:
        with private_apt(part.suite, settings) as apt:
            parts += _locked(apt, [part.package])
    return packages, parts


def _dependencies(apt: _Apt, definition: Definition) -> dict[str, str]:
    found = {}
    for line in apt.run("apt-get", "--simulate", "install", *definition.packages).splitlines():
        if match := _INST.match(line):
            found[match[1].partition(":")[0]] = match[2]
    if unused := [name for name in definition.without if found.pop(name, None) is None]:
        raise ContainerError(
            f"`without` names {', '.join(unused)}, which no package depends on",
            hint="remove it from the definition",
        )
    return found


def _locked(apt: _Apt, wanted: Sequence[str]) -> list[LockedPackage]:
    """Each package by name, or name=version, as the archive's index describes it."""
    text = apt.run("apt-cache", "show", "--no-all-versions", *wanted)
    entries = []
    for paragraph in text.strip().split("\n\n"):
        lines = (line.partition(": ") for line in paragraph.splitlines())
        fields = {key.lower(): value for key, separator, value in lines if separator}
        suite = f"{apt.suite}-security" if fields["filename"].startswith("pool/updates/") else apt.suite
        values = {name: fields[name] for name in ("version", "architecture", "sha256")}
        values |= {"name": fields["package"], "file": fields["filename"], "suite": suite}
        entries.append(LockedPackage(**values, size=int(fields["size"]), sha1=_UNKNOWN_SHA1))
    return sorted(entries, key=lambda entry: entry.name)


@contextmanager
def private_apt(suite: str, settings: AptSettings) -> Iterator[_Apt]:
    """A private apt with the package lists of `suite`, its updates and its security updates. Raises ContainerError."""
    sources = _sources(suite, settings)
    with tempfile.TemporaryDirectory(prefix="aotforge-apt-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for below in ("etc/apt/preferences.d", "lists/partial", "archives/partial"):
            (folder / below).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "etc/apt/sources.list").write_text("".join(f"{line}\n" for line in sources))
        apt = _Apt(suite=suite, options=_options(folder))
        apt.run("apt-get", "update")
        yield apt


def _options(folder: Path) -> tuple[str, ...]:
    values = {
        "Dir::Etc::sourcelist": folder / "etc/apt/sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": folder / "etc/apt/preferences.d",
        "Dir::State": folder,
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::State::extended_states": folder / "extended_states",
        "Dir::Cache": folder,
        "Dir::Cache::archives": folder / "archives",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Install-Recommends": "false",
        "APT::Get::Assume-Yes": "true",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Check-Date": "false",
        "APT::Update::Error-Mode": "any",
    }
    return tuple(part for key, value in values.items() for part in ("-o", f"{key}={value}"))


def _sources(suite: str, settings: AptSettings) -> Sequence[str]:
    """A line per suite: the first archive of the machine that has it."""
    lines = []
    keyrings = sorted(_KEYRINGS.glob("debian-archive-keyring.gpg"))
    signed = f"[signed-by={keyrings[0]}] " if keyrings else ""
    for name in (suite, f"{suite}-updates", f"{suite}-security"):
        for archive in settings.archives:
            if _has(f"{archive}/dists/{name}/InRelease", settings):
                lines.append(f"deb {signed}{archive} {name} main")
                break
    # without its security updates a lock would select packages with known faults, and nothing in it would show that
    required = [suite] if suite in _ROLLING else [suite, f"{suite}-security"]
    for name in required:
        if not any(f" {name} main" in line for line in lines):
            raise ContainerError(
                f"no reachable archive has {name}",
                cause=f"searched: {', '.join(settings.archives)}",
                hint="correct `suite`, or the machine's apt sources",
            )
    return lines


def _has(url: str, settings: AptSettings) -> bool:
    try:
        with opened(url, settings, size=1) as response:
            return bool(response.read(1))
    except (OSError, *FAILURES):
        return False
