"""The one list of this project's own sources that enter digests and containers.

A pattern is relative to the checkout, or to the folder of the installed packages; `!` excludes. A group is
only as good as its patterns: one that matches no file (a renamed folder) raises, so that no digest silently
covers less than it names.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from aotforge.errors import ToolchainError

ROOT = Path(__file__).resolve().parents[2]

_EMULATOR = (
    "vgpu/**/*",
    "!vgpu/hip/**/*",
    "!vgpu/emulator/debugger/*",
    "aotforge/base/architectures.py",
    "manifests/architectures.yaml",
)

_TARGETS = (*(f"aotforge/targets/{folder}*.py" for folder in ("", "cpu/", "amd/", "nvidia/")), "ttcpu/*.py")

GROUPS: Mapping[str, tuple[str, ...]] = {
    # sent to executors: all that `python -m aotforge.compile.remote_worker` imports; needs Python, Triton and
    # zstandard only
    "compile worker": (
        "aotforge/__init__.py",
        "aotforge/errors.py",
        "aotforge/rules.py",
        *(f"aotforge/base/{name}.py" for name in ("__init__", "child_processes", "files", "machine")),
        *(f"aotforge/base/{name}.py" for name in ("object_cache", "source_groups", "workers")),
        *(f"vgpu/{name}.py" for name in ("__init__", "code_object", "errors", "native_code")),
        "aotforge/toolchain/**/*",
        *_TARGETS,
        "aotforge/compile/*.py",
        "aotforge/plan/*.py",
    ),
    # a verdict holds for these sources; presentation and debuggers have no part in it
    "verifier": (
        *_EMULATOR,
        "aotforge/rules.py",
        "aotforge/base/hazards.py",
        "manifests/hazards.yaml",
        "aotforge/verify/interpreter/*",
        "!aotforge/verify/interpreter/breakpoints.py",
        "aotforge/verify/*.py",
        "!aotforge/verify/report.py",
    ),
    # in addition, what the estimates of `./dev cost` and `./dev tune` are made by
    "cost model": (
        "aotforge/devtools/cost/*.py",
        "aotforge/compile/image_set.py",
        "aotforge/targets/amd/backend.py",
    ),
    # how `./dev tune all --device` checks and times an image
    "device timing": (
        "aotforge/verify/device/*.py",
        "aotforge/devtools/tune/device_times.py",
    ),
    # in addition, where this machine's processor executes images
    "native verifier": (
        "aotforge/verify/native/*.py",
        "aotforge/targets/cpu/*.py",
        *(f"ttcpu/{name}.py" for name in ("image", "launch", "levels")),
    ),
    # the lowering of Triton's IR to machine code for x86-64: part of the job keys
    "CPU compiler": (
        "ttcpu/*.py",
        *(f"!ttcpu/{name}.py" for name in ("__main__", "cache", "driver", "launch")),
    ),
    # what turns images, verdicts and the library into a release's bytes
    "release": (
        *_TARGETS,
        "aotforge/compile/*.py",
        "aotforge/formats/*.py",
        "aotforge/pack/*.py",
        "aotforge/release/**/*",
        "aotforge/base/templates/coverage.md.jinja",
        "aotforge/pipeline/build_release.py",
        "aotforge/pipeline/images.py",
    ),
    # in addition, what runs jobs on the workers of a cluster
    "cluster": ("aotforge/pipeline/cluster_worker.py", "aotforge/base/workers.py"),
}


def group_files(group: str, root: Path = ROOT) -> dict[str, Path]:
    """Files of a group by their path below `root`, sorted. Raises ToolchainError for an idle pattern."""
    files: dict[str, Path] = {}
    data = root / "aotforge" / "data"  # the wheel has manifests there
    for pattern in GROUPS[group]:
        place = data if pattern.startswith("manifests/") and data.is_dir() else root
        matched = {
            path.relative_to(place).as_posix(): path
            for path in place.glob(pattern.removeprefix("!"))
            if path.is_file() and "__pycache__" not in path.parts
        }
        if not matched:
            raise ToolchainError(
                f"the sources of the group {group!r} are incomplete: {pattern} matches no file below {root}",
                cause="the checkout is incomplete, or a file was renamed without source_groups.py",
                hint="git status shows what is missing; git checkout -- . restores it",
            )
        if pattern.startswith("!"):
            files = {name: path for name, path in files.items() if name not in matched}
        else:
            files |= matched
    return dict(sorted(files.items()))


def group_digest(group: str, root: Path = ROOT) -> str:
    """SHA-256 over names and contents of a group's files. Raises ToolchainError, OSError."""
    return files_digest(group_files(group, root))


def files_digest(files: Mapping[str, Path]) -> str:
    """SHA-256 over names and contents of files. Raises OSError."""
    digest = hashlib.sha256()
    for name, path in files.items():
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
