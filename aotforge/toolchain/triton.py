"""The compiler as the plan sees it: Triton's version and digest, LLVM's revision, environment.

Nothing of Triton runs here except one function of its code generator that returns a string.
"""

import base64
import csv
import ctypes
import hashlib
import importlib.metadata
import os
import re
from dataclasses import dataclass
from pathlib import Path

from aotforge.errors import ManifestError, ToolchainError
from aotforge.toolchain.allocator import allocator_digest

ENVIRONMENT = (("TRITON_DEFAULT_FP_FUSION", "1"), ("TRITON_DISABLE_LINE_INFO", "1"))
"""What every compile process sets; all other TRITON_*, AMDGCN_* and LLVM variables are removed there."""

_CODE_GENERATOR = "triton/backends/amd/lib/libtriton_amd_codegen.so"
_MAY_BE_MISSING = (
    *("triton/FileCheck", "triton/_C/libproton.so", "triton/backends/amd/include/", "triton/include/"),
    *(f"triton/backends/nvidia/{name}/" for name in ("bin", "include", "lib")),
    *("triton/instrumentation/", "triton/plugins/"),
)
"""Parts of Triton that no AMD compilation loads, two thirds of its bytes: containers leave them out."""
_INSTALL_HINT = "run ./dev again: it installs the pinned version"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """The compiler that a plan is made for. `triton_digest` covers every file of Triton that compiles.

    `allocator`, the digest of the workers' malloc, takes part: LLVM orders some operands by address.
    """

    triton_version: str
    triton_digest: str
    llvm_revision: str
    environment: tuple[tuple[str, str], ...]
    allocator: str = ""


def pinned_triton(requirements: Path) -> str:
    """The version that a requirements file pins with `triton==`. Raises ManifestError when there is none."""
    try:
        text = requirements.read_text(encoding="utf-8")
    except OSError as error:
        raise ManifestError(f"{requirements}: cannot be read: {error.strerror}") from error
    match = re.search(r"^triton==([0-9A-Za-z.+]+)", text, re.MULTILINE)
    if not match:
        raise ManifestError(f"{requirements}: no pin of the form triton==X.Y.Z")
    return match[1]


def read_toolchain(pinned: str) -> Toolchain:
    """The installed Triton. Raises ToolchainError when it is missing, altered or of another version."""
    try:
        distribution = importlib.metadata.distribution("triton")
    except importlib.metadata.PackageNotFoundError:
        raise ToolchainError(
            "Triton is not installed", cause=f"this Python has no Triton {pinned}", hint=_INSTALL_HINT
        ) from None
    if distribution.version != pinned:
        raise ToolchainError(
            f"Triton {distribution.version} is installed, {pinned} is needed",
            cause="another package replaced it, or the environment is older than the pin",
            hint=_INSTALL_HINT,
        )
    root = Path(str(distribution.locate_file("")))
    return Toolchain(
        triton_version=distribution.version,
        triton_digest=_files_digest(root, distribution.read_text("RECORD") or ""),
        llvm_revision=_llvm_revision(root / _CODE_GENERATOR),
        environment=ENVIRONMENT,
        allocator=allocator_digest(),
    )


def read_packages(folder: Path) -> Toolchain:
    """The Triton in a folder that `pip install --target` has made, of any version. Raises ToolchainError.

    Its float32 products are exact, as AOTriton compiles them. LLVM's revision is part of Triton's digest.
    """
    distribution = next(iter(importlib.metadata.distributions(name="triton", path=[str(folder)])), None)
    if distribution is None:
        raise ToolchainError(
            f"there is no Triton in {folder}",
            cause="AOTriton's kernels are compiled by the version that its release was made with",
            hint=f"pip install --target {folder} triton==3.7.0 numpy pandas PyYAML",
        )
    return Toolchain(
        triton_version=distribution.version,
        triton_digest=_files_digest(folder, distribution.read_text("RECORD") or ""),
        llvm_revision="",
        environment=(*ENVIRONMENT, ("TRITON_F32_DEFAULT", "ieee")),
        allocator=allocator_digest(),
    )


def _files_digest(root: Path, record: str) -> str:
    """SHA-256 over the recorded digests of Triton's files, checked against what is there.

    Python files are hashed; of the libraries (half a gigabyte) the size is compared, which an edit in place
    could keep, but no upgrade or interrupted installation does.
    """
    lines = []
    for name, digest, size in csv.reader(record.splitlines()):
        if not name.startswith("triton/") or not digest or name.endswith(".pyc"):
            continue
        file = root / name
        try:
            intact = file.stat().st_size == int(size)
            if intact and name.endswith(".py"):
                actual = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
                intact = digest == f"sha256={actual.decode().rstrip('=')}"
        except OSError:
            intact = name.startswith(_MAY_BE_MISSING)
        if not intact:
            raise ToolchainError(
                f"Triton's installed file {name} is missing or was altered",
                cause="images are addressed by the compiler's digest, so an edited compiler is another one",
                hint="reinstall Triton",
            )
        lines.append(f"{name} {digest}\n")
    if not lines:
        raise ToolchainError(
            "Triton's installation has no RECORD of its files", hint="reinstall it from a wheel"
        )
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def _llvm_revision(library: Path) -> str:
    try:
        revision = ctypes.CDLL(str(library), mode=os.RTLD_LOCAL | os.RTLD_LAZY).triton_amdgpu_revision
    except (OSError, AttributeError) as error:
        raise ToolchainError(
            f"Triton's AMD code generator cannot be loaded: {error}", hint="reinstall Triton"
        ) from error
    revision.argtypes = []
    revision.restype = ctypes.c_char_p
    return bytes(revision()).decode("ascii")
