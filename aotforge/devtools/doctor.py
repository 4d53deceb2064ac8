"""Checks of what this machine offers to a build and an installation."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.cache_folder import check_cache_name
from aotforge.base.machine import GIB, available_cpus, available_memory
from aotforge.compile.pool import WorkerLimits
from aotforge.conformance.matrix import levels_of_names, pack_serves
from aotforge.deliver.dropin.inputs import IMAGES, read_torch_lib, torch_version
from aotforge.deliver.pytorch.installed import find_torch_lib
from aotforge.errors import (
    AotforgeError,
    DropInError,
    ExecutorError,
    ToolchainError,
    UnknownNameError,
    UnsupportedError,
    suggest,
)
from aotforge.library.build_tools import find_tools, find_windows_tools
from aotforge.pack.model import DISPATCH_FILE
from aotforge.run.choose import ORDER, make_runner
from aotforge.targets.amd.device_wheels import without_family
from aotforge.targets.installed import native_archs
from aotforge.toolchain.triton import pinned_triton, read_toolchain
from vgpu.cache import cache_fault, check_cache

PURPOSES = ("build", "windows", "containers", "install")
"""What `--purpose` takes. `build` includes verification; `install` includes the drop-in."""
_BUILD_DISK = 2 * GIB
_INSTALL_DISK = GIB // 2


@dataclass(frozen=True, kw_only=True)
class Request:
    """`root`: the checkout; `cache`: the folder that builds use; `output`: the folder of releases."""

    root: Path
    cache: Path
    output: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a check. `error` is what a task would report; `needed`: a wanted purpose needs it."""

    name: str
    purpose: str
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
        checks = [
            {
                "name": finding.name,
                "ok": finding.error is None,
                "needed": finding.needed,
                "found": finding.found,
                "error": finding.error and finding.error.fields(),
            }
            for finding in self.findings
        ]
        return {"purposes": self.purposes, "checks": checks}

    def lines(self) -> Sequence[str]:
        """A line for each check, with the next step where one that is needed fails."""
        return [
            f"ok     {finding.name:18} {finding.found}"
            if finding.error is None
            else f"FAILS  {finding.name:18} {finding.error.what}: {finding.error.hint or finding.error.cause}"
            if finding.needed
            else f"no     {finding.name:18} {finding.error.what} (needed for {finding.purpose})"
            for finding in self.findings
        ]

    def require_passed(self) -> None:
        """Raises ToolchainError when something that is needed fails."""
        if failed := [finding.name for finding in self.findings if finding.error and finding.needed]:
            raise ToolchainError(
                f"{', '.join(self.purposes)} would fail here: {', '.join(failed)}",
                hint="do the next step of each line that FAILS and run ./dev doctor again",
            )


def examine(request: Request, purposes: Collection[str] = ("build",)) -> DoctorReport:
    """Run all checks. Raises UnknownNameError for a purpose that does not exist."""
    for purpose in purposes:
        if purpose not in PURPOSES:
            raise UnknownNameError(f"unknown purpose {purpose}", hint=suggest(purpose, PURPOSES))
    findings = tuple(find(name, request, needed=CHECKS[name][0] in purposes) for name in CHECKS)
    return DoctorReport(purposes=tuple(purposes), findings=findings)


def find(name: str, request: Request, *, needed: bool) -> Finding:
    """The finding of one check."""
    purpose, run = CHECKS[name]
    error: AotforgeError
    try:
        return Finding(name=name, purpose=purpose, needed=needed, found=run(request))
    except AotforgeError as raised:
        error = raised
    except OSError as raised:
        error = ToolchainError(f"{name}: {raised}", hint="choose another folder (--cache, --output, TMPDIR)")
    return Finding(name=name, purpose=purpose, needed=needed, error=error)


def _triton(request: Request) -> str:
    toolchain = read_toolchain(pinned_triton(request.root / "requirements" / "build.in"))
    return f"Triton {toolchain.triton_version}, LLVM {toolchain.llvm_revision[:12]}, intact"


def _memory(_request: Request) -> str:
    limits = WorkerLimits()
    memory, cpus = available_memory(), available_cpus()
    if memory < limits.memory_bytes:
        raise ToolchainError(
            f"{memory / GIB:.1f} GiB of memory are free, a compile job may take "
            f"{limits.memory_bytes / GIB:.1f}",
            cause="other programs, or a limit of the container or cgroup",
            hint="end other programs or raise the limit",
        )
    workers = max(1, min(cpus, memory // limits.memory_bytes))
    return f"{memory / GIB:.1f} GiB free, {cpus} CPUs: {workers} compile jobs at a time"


def _free(folder: Path, least: int) -> str:
    """Space of the file system of a folder that may not exist yet, and that this user can write there."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        raise ToolchainError(
            f"{existing} cannot be written",
            hint="choose another folder (--cache, --output, TMPDIR), or change its owner",
        )
    if (free := shutil.disk_usage(existing).free) < least:
        raise ToolchainError(
            f"{free / GIB:.2f} GiB are free in {existing}, {least / GIB:g} are needed",
            hint="free some, or choose another folder (--cache, --output, TMPDIR)",
        )
    return f"{free / GIB:.1f} GiB free in {existing}"


def _cache(request: Request) -> str:
    """Owner, mode and name of the cache."""
    fault = cache_fault(request.cache)
    if fault and request.environment.get("AOTFORGE_STRICT") == "1":
        check_cache(request.cache)
    check_cache_name(request.cache)
    space = _free(request.cache, _BUILD_DISK)
    return f"{space}; a warning at each task: it {fault}" if fault else space


def _executors(request: Request) -> str:
    """Which executors work; one of them is enough."""
    works, reasons = [], []
    for name in ORDER:
        try:
            make_runner(name, cache=request.cache)
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
    return f"{served}; {_installed_images(folder, needed)}"


def _installed_images(folder: Path, needed: Sequence[str]) -> str:
    """Whether `folder` (a torch/lib) has images for this machine's GPUs; without one, which images it has."""
    libraries = [folder / name for name in needed if (folder / name).is_file()]
    ours = any(DISPATCH_FILE.encode() in library.read_bytes() for library in libraries)
    packs, others = list[str](), list[str]()
    for path in sorted((folder / IMAGES).glob("*")):
        if path.is_dir():
            (packs if (path / DISPATCH_FILE).is_file() == ours else others).append(path.name)
    try:
        archs = native_archs()
    except UnsupportedError:
        served = [", ".join(packs) or "none"]
    else:
        served = [f"{arch} {'yes' if any(pack_serves(p, arch) for p in packs) else 'none'}" for arch in archs]
    formats = ("AOTriton's format (.zip, .aks2)", f"this project's format ({DISPATCH_FILE})")
    unread = f"; {', '.join(others)}: {formats[not ours]}, which the installed library does not read"
    return f"images: {', '.join(served)}{unread if others else ''}"


CHECKS: Mapping[str, tuple[str, Callable[[Request], str]]] = {
    "Triton": ("build", _triton),
    "compilers": ("build", lambda wanted: f"{find_tools(wanted.environment).compiler}, CMake, Ninja"),
    "memory": ("build", _memory),
    "cache": ("build", _cache),
    "temporary files": ("build", lambda _: _free(Path(tempfile.gettempdir()), _INSTALL_DISK)),
    "output": ("build", lambda wanted: _free(wanted.output, _INSTALL_DISK)),
    "Windows compilers": ("windows", lambda wanted: find_windows_tools(wanted.environment).compiler),
    "containers": ("containers", _executors),
    "GPUs": ("install", _gpus),
    "PyTorch": ("install", _pytorch),
}
"""Purpose and function of each check, which returns what it found or raises the error of the task that would
fail."""
