"""Checks of what this machine offers to a build, a release, publishing and installing."""

from __future__ import annotations

import importlib.util
import mmap
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from shlex import quote
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

from aotforge.base.cache_trust import cache_fault, check_cache, check_cache_name
from aotforge.base.child_processes import NETWORK, child_environment, run_child
from aotforge.base.downloads import download
from aotforge.base.git import first_line, run_git
from aotforge.base.machine import GIB, available_cpus, available_memory
from aotforge.compile.pool import WorkerLimits
from aotforge.conformance.matrix import levels_of_names, pack_serves
from aotforge.deliver.dropin.inputs import IMAGES, read_torch_lib, torch_version
from aotforge.deliver.pytorch.installed import find_torch_lib
from aotforge.errors import (
    AotforgeError,
    DoctorError,
    DropInError,
    ExecutorError,
    ToolchainError,
    UnknownNameError,
    UnsupportedError,
    suggest,
)
from aotforge.library.build_tools import find_tools, find_windows_tools, run_tool
from aotforge.sandbox.executors.choose import ORDER, make_executor
from aotforge.targets.amd.device_wheels import without_family
from aotforge.targets.installed import native_archs
from aotforge.toolchain.triton import pinned_triton, read_toolchain

PURPOSES = ("build", "windows", "containers", "release", "publish", "install")
"""What `--purpose` takes. `build` includes verification; `install` includes the drop-in."""
_BUILD_DISK = 2 * GIB
_INSTALL_DISK = GIB // 2
_DAY = 86_400
_NETWORK_SECONDS = 10
_PROGRAM = (
    '#include <math.h>\n#include <stdio.h>\nint main(void) { return printf("%d", (int)floor(2.5)) != 1; }\n'
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """`root`: the checkout; `cache`: the folder that builds use; `output`: the folder of releases."""

    root: Path
    cache: Path
    output: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check: `run` returns what it found, or raises the error of the task that would fail."""

    name: str
    purposes: tuple[str, ...]
    run: Callable[[Request], str]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a check. `error` is what a task would report; `needed`: one of the wanted purposes needs it."""

    name: str
    purposes: tuple[str, ...]
    needed: bool
    found: str = ""
    error: AotforgeError | None = None


@dataclass(frozen=True, kw_only=True)
class DoctorReport:
    """Findings in the order of `CHECKS`."""

    purposes: tuple[str, ...]
    findings: tuple[Finding, ...]

    def fields(self) -> object:
        """JSON values."""
        return {"purposes": self.purposes, "checks": [_fields(one) for one in self.findings]}

    def lines(self) -> Sequence[str]:
        """Lines of text: what works, what is missing and needed, what is missing and not needed."""
        lines = []
        for one in self.findings:
            state = "ok" if one.error is None else "FAILS" if one.needed else "no"
            lines.append(f"{state:5}  {one.name:18} {one.error.what if one.error else one.found}")
            if one.error and one.needed:
                texts = {"likely cause": one.error.cause, "next step": one.error.hint}
                lines += [f"{'':26}{name}: {text}" for name, text in texts.items() if text]
            elif one.error:
                lines.append(f"{'':26}needed only for {', '.join(one.purposes)}")
        return lines

    def require_passed(self) -> None:
        """Raises DoctorError when something that is needed fails."""
        if failed := [one.name for one in self.findings if one.error and one.needed]:
            raise DoctorError(
                f"{', '.join(self.purposes)} would fail here: {', '.join(failed)}",
                hint="do the next step of each line that FAILS and run ./dev doctor again",
            )


def examine(request: Request, purposes: Collection[str] = ("build",)) -> DoctorReport:
    """Run all checks. Raises UnknownNameError for a purpose that does not exist."""
    for one in purposes:
        if one not in PURPOSES:
            raise UnknownNameError(f"unknown purpose {one}", hint=suggest(one, PURPOSES))
    findings = tuple(_finding(check, request, purposes) for check in CHECKS)
    return DoctorReport(purposes=tuple(purposes), findings=findings)


def _finding(check: Check, request: Request, purposes: Collection[str]) -> Finding:
    found, error = "", None
    try:
        found = check.run(request)
    except AotforgeError as raised:
        error = raised
    except OSError as raised:  # such as a folder above a cache that this user may not enter
        error = ToolchainError(
            f"{raised.filename or check.name}: {raised.strerror or raised}",
            hint="choose another folder (--cache, --output, TMPDIR), or change its mode",
        )
    needed = bool(set(check.purposes) & set(purposes))
    return Finding(name=check.name, purposes=check.purposes, needed=needed, found=found, error=error)


def _fields(one: Finding) -> object:
    error = one.error and one.error.fields()
    return {
        "name": one.name, "ok": one.error is None, "needed": one.needed, "purposes": one.purposes, "found": one.found, "error": error
    }  # fmt: skip


def _packages(request: Request) -> str:
    """The locked packages of a build, by version."""
    lines = (request.root / "requirements" / "build.txt").read_text(encoding="utf-8").splitlines()
    entries = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    locked = [one for one in entries if one.marker is None or one.marker.evaluate()]
    wrong = []
    for one in locked:
        try:
            found = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{one.name} is not installed, {one.specifier} is locked")
            continue
        if found not in one.specifier:
            wrong.append(f"{one.name} is {found}, {one.specifier} is locked")
    if wrong:
        raise ToolchainError(
            "; ".join(wrong[:4]) + (f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""),
            cause="something else was installed into the environment",
            hint=f"rm -r {quote(sys.prefix)} and run the same command again: ./dev makes it anew",
        )
    return f"{len(locked)} packages of requirements/build.txt"


def _triton(request: Request) -> str:
    toolchain = read_toolchain(pinned_triton(request.root / "requirements" / "build.in"))
    return f"Triton {toolchain.triton_version}, LLVM {toolchain.llvm_revision[:12]}, intact"


def _compilers(request: Request) -> str:
    """The compilers of the library and of the virtual GPU, which must make a program that runs."""
    tools = find_tools(request.environment)
    with tempfile.TemporaryDirectory() as scratch:
        source, program = Path(scratch, "program.c"), Path(scratch, "program")
        source.write_text(_PROGRAM)
        for compiler in (tools.cc, tools.cxx):
            command = [str(compiler), str(source), "-o", str(program), "-lm"]
            done = run_tool(command, request.environment, seconds=60, folder=Path(scratch))
            if done.returncode:
                raise ToolchainError(
                    f"{compiler} cannot make a program: {done.stderr.strip().splitlines()[0]}",
                    cause="headers or libraries of C are missing",
                    hint="apt-get install g++ (it brings libc6-dev)",
                )
    return f"{tools.compiler}, CMake, Ninja"


def _windows(request: Request) -> str:
    return find_windows_tools(request.environment).compiler


def _memory(_request: Request) -> str:
    limits = WorkerLimits()
    memory, cpus = available_memory(), available_cpus()
    if memory < limits.memory_bytes:
        raise ToolchainError(
            f"{memory / GIB:.1f} GiB of memory are free, a compile job may take {limits.memory_bytes / GIB:.1f}",
            cause="other programs, or a limit of the container or cgroup",
            hint="end other programs or raise the limit",
        )
    workers = max(1, min(cpus, memory // limits.memory_bytes))
    return f"{memory / GIB:.1f} GiB free, {cpus} CPUs: {workers} compile jobs at a time"


def _free(folder: Path, least: int) -> str:
    """Space and inodes of the file system of a folder that may not exist yet, and that this user can write there."""
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".doctor-") as file:
            file.write(b"1")
            file.flush()
    except OSError as error:
        raise ToolchainError(
            f"{existing} cannot be written: {error.strerror}",
            cause="it belongs to another user, or is mounted read-only, or the disk is full",
            hint="choose another folder (--cache, --output, TMPDIR), or change its owner",
        ) from None
    free, status = shutil.disk_usage(existing).free, os.statvfs(existing)
    if free < least:
        raise ToolchainError(
            f"{free / GIB:.2f} GiB are free in {existing}, {least / GIB:g} are needed",
            hint="free some, or choose another folder (--cache, --output, TMPDIR)",
        )
    if status.f_files and status.f_favail < 10_000:
        raise ToolchainError(
            f"{status.f_favail} files more can be made in {existing}, 10000 are needed",
            hint="remove some, or choose another folder",
        )
    return f"{free / GIB:.1f} GiB free in {existing}"


def _cache(request: Request) -> str:
    """Owner, mode and name of the cache; native code in it is executed, so its file system must allow that."""
    fault = cache_fault(request.cache)
    if fault and request.environment.get("AOTFORGE_STRICT") == "1":
        check_cache(request.cache)
    check_cache_name(request.cache)
    found = _free(request.cache, _BUILD_DISK)
    existing = next(one for one in (request.cache, *request.cache.parents) if one.exists())
    with tempfile.NamedTemporaryFile(dir=existing, prefix=".doctor-") as file:
        file.write(bytes(mmap.PAGESIZE))
        file.flush()
        try:
            mmap.mmap(
                file.fileno(), mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC
            ).close()
        except PermissionError:
            raise ToolchainError(
                f"{existing} is on a file system mounted noexec",
                cause="the virtual GPU is compiled into the cache and loaded from there",
                hint="choose another folder with --cache or AOTFORGE_CACHE",
            ) from None
    return f"{found}; a warning at each task: it {fault}" if fault else found


def _temporary(_request: Request) -> str:
    return _free(Path(tempfile.gettempdir()), _INSTALL_DISK)


def _output(request: Request) -> str:
    return _free(request.output, _INSTALL_DISK)


def _executors(request: Request) -> str:
    """Which executors work; one of them is enough."""
    works, reasons = [], []
    for name in ORDER:
        try:
            make_executor(name, cache=request.cache)
            works.append(name)
        except ExecutorError as error:
            reasons.append(f"{name}: {error.what}")
    if not works:
        raise ExecutorError(
            "no executor works: " + "; ".join(reasons),
            cause="none is installed, or its daemon does not run, or this user may not use it",
            hint="apt-get install bubblewrap, or build on the host with --executor local",
        )
    return f"{', '.join(works)}" + (f" (not {'; '.join(reasons)})" if reasons else "")


def _sandbox(request: Request) -> str:
    """Bubblewrap, in which the code of a release is executed by `check` and `demo`."""
    make_executor("bubblewrap", cache=request.cache)
    return "bubblewrap works"


def _git(request: Request, *arguments: str) -> str:
    done = run_git(request.root, *arguments, given=request.environment)
    if done.returncode:
        raise ToolchainError(
            f"git {arguments[0]} fails in {request.root}: {first_line(done)}",
            cause="no checkout of this repository, or a git before 2.38, which refuses that of another user",
            hint="make releases in a clone, or permit this one: "
            f"git config --global --add safe.directory {quote(str(request.root))}",
        )
    return done.stdout.decode("utf-8", "replace").rstrip()


def _checkout(request: Request) -> str:
    revision = _git(request, "rev-parse", "HEAD")
    changed = _git(request, "status", "--porcelain").splitlines()
    if changed:
        raise ToolchainError(
            f"{len(changed)} files differ from the commit {revision[:12]}, e.g. {changed[0][3:]}",
            cause="a release names the commit that it can be made from again",
            hint="commit or remove them",
        )
    return f"commit {revision[:12]}, nothing changed"


def _signing_key(request: Request) -> str:
    _require_release_packages()
    from aotforge.release.signing import load_private_key  # noqa: PLC0415 - an environment for builds lacks its packages

    load_private_key(None, request.environment)
    return "AOTFORGE_SIGNING_KEY is an Ed25519 key"


def _index_keys(request: Request) -> str:
    _require_release_packages()
    from aotforge.publish.keys import load_keys  # noqa: PLC0415 - as above

    keys = load_keys(None, request.environment)
    return f"keys for {', '.join(sorted(keys.signers))}"


def _require_release_packages() -> None:
    """Raises ToolchainError without the packages of requirements/release.txt."""
    if missing := [name for name in ("cryptography", "tuf") if importlib.util.find_spec(name) is None]:
        raise ToolchainError(
            f"the Python packages of releases are not installed: {', '.join(missing)}",
            cause="an environment for builds does not have them",
            hint="./dev compat installs them, as does every task of releases",
        )


def _clock(request: Request) -> str:
    """Signed indexes expire: a clock that is wrong refuses good ones or accepts old ones."""
    now = time.time()
    newest = max(
        (path.stat().st_mtime for path in (request.root / "manifests").iterdir()),
        default=0.0,
    )
    if now < newest - _DAY:
        raise ToolchainError(
            f"the clock is at {_date(now)}, and files of this checkout are from {_date(newest)}",
            cause="the machine's clock is behind",
            hint="set it, e.g. timedatectl set-ntp true",
        )
    return f"{_date(now)} UTC"


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))


def _index_url(request: Request) -> str:
    """The package index that pip takes: its variable, else its configuration, else PyPI."""
    if named := request.environment.get("PIP_INDEX_URL"):
        return named
    done = run_child(
        [sys.executable, "-P", "-m", "pip", "config", "get", "global.index-url"],
        environment=child_environment(base=request.environment, keep=NETWORK), capture_output=True, timeout=60,
    )  # fmt: skip
    return str(done.stdout).strip() or "https://pypi.org/simple"


def _network(request: Request) -> str:
    """Whether pip's package index answers; only set-up and root filesystems need it."""
    url = _index_url(request)
    shown = url.rpartition("@")[2] if "@" in url else url
    try:
        list(download(_head(f"{url.rstrip('/')}/pip/"), limit=0, seconds=_NETWORK_SECONDS))
        return f"{shown} answers"
    except (OSError, ValueError, HTTPException) as error:
        raise ToolchainError(
            f"the package index {shown} does not answer: {error}",
            cause="no network, a proxy that is not set, or an index that does not exist",
            hint="check HTTPS_PROXY and pip's index settings",
        ) from None


def _head(url: str) -> urllib.request.Request:
    """urllib takes no password in an address, and quotes it where it refuses one."""
    parts = urlsplit(url)
    if "@" in url.removeprefix(f"{parts.scheme}://{parts.netloc}"):
        raise ValueError("it has @ behind its host; write %2F for a slash in a password, %40 for @")
    user, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), method="HEAD")
    if user:
        # not sent to where a redirect leads
        request.add_unredirected_header(
            "Authorization", f"Basic {b64encode(unquote(user).encode()).decode('ascii')}"
        )
    return request


def _gpus(_request: Request) -> str:
    """A machine without a GPU installs for another one: it has to name the arch."""
    try:
        return f"{', '.join(native_archs())} (--arch native)"
    except UnsupportedError:
        return "none: name the arch"


def _pytorch(request: Request) -> str:
    """A machine without PyTorch can install into a folder (`--prefix`)."""
    try:
        folder = find_torch_lib(request.environment)
    except DropInError as error:
        return f"none: {error.what}"
    version = f"PyTorch {torch_version(folder) or 'of an unknown version'} in {folder}"
    try:
        needed = read_torch_lib(folder).needed
    except DropInError as error:
        return f"{version}, takes no release: {error.cause or error.what}"
    level = levels_of_names(request.root, needed)[0]
    served = f"{version}, needs {', '.join(needed)}: ./dev build --version {level} serves it"
    if lacking := without_family(str(folder), needed):
        return f"{served}. {lacking[0]}; install a release into it, or {lacking[1]}"
    return f"{served}; {_installed_images(folder)}"


def _installed_images(folder: Path) -> str:
    """Whether `folder` (a torch/lib) has images for this machine's GPUs; without one, which images it has."""
    packs = sorted(path.name for path in (folder / IMAGES).glob("*") if path.is_dir())
    try:
        archs = native_archs()
    except UnsupportedError:
        return f"images: {', '.join(packs) or 'none'}"
    found = [f"{arch} {'yes' if any(pack_serves(p, arch) for p in packs) else 'none'}" for arch in archs]
    return f"images: {', '.join(found)}"


CHECKS = (
    Check(name="Python packages", purposes=("build",), run=_packages),
    Check(name="Triton", purposes=("build",), run=_triton),
    Check(name="compilers", purposes=("build",), run=_compilers),
    Check(name="memory", purposes=("build",), run=_memory),
    Check(name="cache", purposes=("build",), run=_cache),
    Check(name="temporary files", purposes=("build", "install"), run=_temporary),
    Check(name="output", purposes=("build", "release"), run=_output),
    Check(name="Windows compilers", purposes=("windows",), run=_windows),
    Check(name="containers", purposes=("containers",), run=_executors),
    Check(name="package index", purposes=("containers",), run=_network),
    Check(name="checkout", purposes=("release",), run=_checkout),
    Check(name="sandbox", purposes=("release",), run=_sandbox),
    Check(name="signing key", purposes=("release",), run=_signing_key),
    Check(name="keys of the index", purposes=("publish",), run=_index_keys),
    Check(name="GPUs", purposes=("install",), run=_gpus),
    Check(name="PyTorch", purposes=("install",), run=_pytorch),
    Check(name="clock", purposes=("release", "publish", "install"), run=_clock),
)
"""Every check, in the order in which a build meets them."""
