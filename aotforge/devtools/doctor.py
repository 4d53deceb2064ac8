"""Checks of what this machine offers to a build, a release and an installation."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.cache_trust import check_cache_name
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
from aotforge.library.build_tools import find_tools, find_windows_tools
from aotforge.sandbox.executors.choose import ORDER, make_executor
from aotforge.targets.amd.device_wheels import without_family
from aotforge.targets.installed import native_archs
from aotforge.toolchain.triton import pinned_triton, read_toolchain
from vgpu.cache import cache_fault, check_cache

PURPOSES = ("build", "windows", "containers", "release", "install")
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
    except (OSError, ImportError) as raised:
        error = ToolchainError(f"{check.name}: {raised}", hint="choose another folder, or ./dev compat")
    needed = bool(set(check.purposes) & set(purposes))
    return Finding(name=check.name, purposes=check.purposes, needed=needed, found=found, error=error)


def _fields(one: Finding) -> object:
    error = one.error and one.error.fields()
    return {
        "name": one.name,
        "ok": one.error is None,
        "needed": one.needed,
        "found": one.found,
        "error": error,
    }


def _triton(request: Request) -> str:
    toolchain = read_toolchain(pinned_triton(request.root / "requirements" / "build.in"))
    return f"Triton {toolchain.triton_version}, LLVM {toolchain.llvm_revision[:12]}, intact"


def _compilers(request: Request) -> str:
    return f"{find_tools(request.environment).compiler}, CMake, Ninja"


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
    """Space of the file system of a folder that may not exist yet, and that this user can write there."""
    existing = next(one for one in (folder, *folder.parents) if one.exists())
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
    found = _free(request.cache, _BUILD_DISK)
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


def _checkout(request: Request) -> str:
    """A release names the commit that it can be made from again."""
    status = run_git(request.root, "status", "--porcelain", "--branch", given=request.environment)
    if status.returncode:
        raise ToolchainError(
            f"git fails in {request.root}: {first_line(status)}", hint="make releases in a clone"
        )
    _, *changed = status.stdout.decode("utf-8", "replace").splitlines()
    if changed:
        raise ToolchainError(f"{len(changed)} files differ from the commit", hint="commit or remove them")
    return "nothing changed"


def _signing_key(request: Request) -> str:
    from aotforge.release.signing import load_private_key  # noqa: PLC0415 - environments for builds lack its packages

    load_private_key(None, request.environment)
    return "AOTFORGE_SIGNING_KEY is an Ed25519 key"


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
    Check(name="Triton", purposes=("build",), run=_triton),
    Check(name="compilers", purposes=("build",), run=_compilers),
    Check(name="memory", purposes=("build",), run=_memory),
    Check(name="cache", purposes=("build",), run=_cache),
    Check(name="temporary files", purposes=("build", "install"), run=_temporary),
    Check(name="output", purposes=("build", "release"), run=_output),
    Check(name="Windows compilers", purposes=("windows",), run=_windows),
    Check(name="containers", purposes=("containers",), run=_executors),
    Check(name="checkout", purposes=("release",), run=_checkout),
    Check(name="signing key", purposes=("release",), run=_signing_key),
    Check(name="GPUs", purposes=("install",), run=_gpus),
    Check(name="PyTorch", purposes=("install",), run=_pytorch),
)
"""Every check, in the order in which a build meets them."""
