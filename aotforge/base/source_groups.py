"""The one list of this project's own sources that enter digests, containers and CI's scope.

A pattern is relative to `aotforge/`; `!` excludes. A group is only as good as its patterns: one that matches no file (a renamed
folder) raises, so that no digest silently covers less than it names.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from aotforge.errors import ToolchainError

PACKAGE = Path(__file__).resolve().parents[1]

_EMULATOR = (
    "virtual_gpu/emulator/**/*",
    "!virtual_gpu/emulator/debugger/*",
    "formats/elf.py",
    "base/architectures.py",
    "../manifests/architectures.yaml",
)

_TARGETS = ("targets/*.py", "targets/amd/*.py", "targets/nvidia/*.py", "targets/cpu/*.py")

GROUPS: Mapping[str, tuple[str, ...]] = {
    # sent to executors: all that `python -m aotforge.compile.remote_worker` imports; needs Python, Triton and zstandard only
    "compile worker": (
        "__init__.py",
        "errors.py",
        "rules.py",
        "base/__init__.py",
        "base/cache_trust.py",
        "base/child_processes.py",
        "base/files.py",
        "base/machine.py",
        "base/object_cache.py",
        "base/source_groups.py",
        "formats/__init__.py",
        "formats/code_object.py",
        "formats/elf.py",
        "toolchain/**/*",
        *_TARGETS,
        "compile/*.py",
        "plan/*.py",
    ),
    # a verdict holds for these sources; presentation and debuggers have no part in it
    "verifier": (
        *_EMULATOR,
        "formats/code_object.py",
        "rules.py",
        "base/hazards.py",
        "../manifests/hazards.yaml",
        "virtual_gpu/hazards.py",
        "virtual_gpu/interpreter/*",
        "!virtual_gpu/interpreter/breakpoints.py",
        "verify/*.py",
        "!verify/report.py",
    ),
    # in addition, what the estimates of `./dev cost` and `./dev tune` are made by
    "cost model": (
        "devtools/cost/*.py",
        "compile/image_set.py",
        "targets/amd/code_object.py",
        "targets/amd/occupancy.py",
    ),
    # how `./dev tune all --device` checks and times an image
    "device timing": ("verify/device/*.py", "devtools/tune/device_times.py", "devtools/tune/rounds.py"),
    # in addition, where this machine's processor executes images
    "native verifier": ("verify/native/*.py", "targets/cpu/image.py", "targets/cpu/levels.py"),
    # the lowering of Triton's IR to machine code for x86-64: part of the job keys
    "CPU compiler": (
        "targets/cpu/*.py",
        "!targets/cpu/__main__.py",
        "!targets/cpu/backend.py",
        "!targets/cpu/cache.py",
        "!targets/cpu/driver.py",
        "!targets/cpu/launch.py",
    ),
    # programs prepared for the virtual HIP library
    "virtual HIP": (*_EMULATOR, "formats/code_object.py", "virtual_gpu/hip/**/*"),
    # what turns images, verdicts and the library into a release's bytes
    "release": (
        *_TARGETS,
        "compile/*.py",
        "formats/*.py",
        "pack/*.py",
        "release/**/*",
        "pipeline/build_release.py",
        "pipeline/images.py",
    ),
    # what makes shards: shards of different revisions do not belong together
    "shards": (*_TARGETS, "compile/*.py", "formats/archive.py", "pipeline/images.py", "pipeline/shards/*.py"),
}

Effect = Literal["checks", "plans", "runtime", "everything"]

EFFECTS: tuple[tuple[str, Effect], ...] = (
    # documentation; checks run always
    ("docs/*", "checks"),
    # used by checks only
    ("tests/*", "checks"),
    ("benchmarks/*", "checks"),
    ("requirements/test.*", "checks"),
    # the source route: jobs configure runtime/ alone
    ("CMakeLists.txt", "checks"),
    ("cmake/*", "checks"),
    # tests of the library, not part of its build (aotforge/library/build_linux.py, _NOT_SHIPPED)
    ("runtime/tests/*", "checks"),
    ("runtime/fuzz/*", "checks"),
    ("runtime/hip_double/*", "checks"),
    ("runtime/cuda_double/*", "checks"),
    ("runtime/*", "runtime"),
    ("manifests/runtime.yaml", "runtime"),
    # inputs of plans and verdicts: compared, not guessed
    ("kernels/*", "plans"),
    ("manifests/architectures.yaml", "plans"),
    ("manifests/hazards.yaml", "plans"),
    ("manifests/profiles.yaml", "plans"),
    ("manifests/tuning/*", "plans"),
    # the groups above are in here
    ("aotforge/*", "everything"),
    ("*.md", "checks"),
)
"""What a change of a file can affect, by path below the checkout: the first matching pattern decides; `*` also matches slashes."""


def group_files(group: str, package: Path = PACKAGE) -> dict[str, Path]:
    """Files of a group by their path below `package`, sorted. Raises ToolchainError when a pattern matches nothing."""
    patterns = GROUPS[group]
    found: dict[str, Path] = {}
    for pattern in patterns:
        matched = {
            os.path.relpath(path, package): path
            for path in package.glob(pattern.removeprefix("!"))
            if path.is_file() and "__pycache__" not in path.parts
        }
        if not matched:
            raise ToolchainError(
                f"the sources of the group {group!r} are incomplete: {pattern} matches no file below {package}",
                cause="the checkout is incomplete, or a file was renamed without aotforge/base/source_groups.py",
                hint="git status shows what is missing; git checkout -- aotforge restores it",
            )
        if pattern.startswith("!"):
            found = {name: path for name, path in found.items() if name not in matched}
        else:
            found |= matched
    return dict(sorted(found.items()))


def group_digest(group: str, package: Path = PACKAGE) -> str:
    """SHA-256 over names and contents of a group's files. Raises ToolchainError, OSError."""
    return files_digest(group_files(group, package))


def files_digest(files: Mapping[str, Path]) -> str:
    """SHA-256 over names and contents of files. Raises OSError."""
    digest = hashlib.sha256()
    for name, path in files.items():
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
