"""The only module that starts processes, and the environment variables that each kind receives.

A child receives the variables that its kind lists and none else, so that signing keys and access keys of the caller never reach
it. docs/child-processes.md is generated from `KINDS`.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

_TOOL = ("PATH", "HOME", "TMPDIR", "SYSTEMROOT")
_LOADER = ("LD_LIBRARY_PATH",)
_NETWORK = (
    *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
_PIP = ("PIP_*", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NETRC")
_ENGINE = (
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "DBUS_SESSION_BUS_ADDRESS"),
    *("USER", "LOGNAME", "SSH_AUTH_SOCK", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"),
    *("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINER_SSHKEY"),
    *("CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF", "STORAGE_DRIVER", "STORAGE_OPTS"),
)  # fmt: skip
_GIT = (
    *("XDG_CONFIG_HOME", "GIT_CEILING_DIRECTORIES", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"),
    *("GIT_CONFIG_NOSYSTEM", "GIT_DISCOVERY_ACROSS_FILESYSTEM"),
)
_TERMINAL = ("TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
_OWN = (
    *("CC", "CXX", "CI", "LANG", "LC_*", "PYTEST_*", "SOURCE_DATE_EPOCH", "AOTFORGE_HOME", "AOTFORGE_CACHE"),
    *("AOTFORGE_PYTHON", "AOTFORGE_JOBS", "AOTFORGE_ASM", "AOTFORGE_ZSTD_SOURCE", "AOTFORGE_DLFCN_SOURCE"),
    *("AOTFORGE_MINGW_*", "AOTFORGE_TEST_*"),
)
_DRIVER = (
    *("HIP_*", "HSA_*", "ROCR_*", "ROCM_*", "AMD_*", "GPU_*", "CUDA_*", "NVIDIA_*", "ROCJITSU_*", "MIRAGE_*"),
    *("AOTFORGE_VIRTUAL_*", "AOTFORGE_PREPARE", "AOTFORGE_ASM", "AOTFORGE_CACHE"),
)
_SECRET = (
    *("AOTFORGE_KEY_*", "AOTFORGE_CACHE_KEY_*", "AOTFORGE_SIGNING_KEY", "AWS_SECRET_*", "AWS_SESSION_TOKEN"),
    *(
        "*_TOKEN",
        "*_SECRET",
        "*_PASSWORD",
        "*_PASSWD",
        "*_PASSPHRASE",
        "*_PASS",
        "*_PAT",
        "*_CREDENTIALS",
        "*_AUTH",
        "*_AUTH_CONFIG",
    ),
    *("*_SECRET_KEY", "*_PRIVATE_KEY", "*_SIGNING_KEY", "*_ACCESS_KEY", "*_API_KEY", "*_APIKEY"),
)
_ENGLISH = {"LC_ALL": "C"}


@dataclass(frozen=True, kw_only=True)
class ChildKind:
    """A kind of child process. `inherited`: names of the caller's variables that it receives (`*` at the end: a prefix); `fixed`:
    values that every child of this kind receives. A caller may set more by name, see `run_child`."""

    programs: str
    inherited: tuple[str, ...]
    fixed: Mapping[str, str] = field(default_factory=dict)


KINDS: Mapping[str, ChildKind] = {
    "compiler": ChildKind(programs="compilers, linkers, CMake, Ninja, ABI tools", inherited=_TOOL, fixed=_ENGLISH),
    "git": ChildKind(programs="git, on this checkout or a clone of it", inherited=(*_TOOL, *_GIT), fixed=_ENGLISH),
    "apt": ChildKind(
        programs="apt-get, apt-cache, apt-config",
        inherited=(*_TOOL, *_NETWORK, "APT_CONFIG"),
        fixed={"LC_ALL": "C.UTF-8"},
    ),
    "pip": ChildKind(programs="pip download, with hashes", inherited=(*_TOOL, *_LOADER, *_NETWORK, *_PIP)),
    "engine": ChildKind(
        programs="the command lines of podman and docker", inherited=(*_TOOL, *_ENGINE, *_TERMINAL)
    ),
    "bubblewrap": ChildKind(
        programs="bwrap, whose process 1 shares the sandbox's PID namespace",
        inherited=("TERM",),
        fixed={"PATH": os.defpath},
    ),
    "agent": ChildKind(
        programs="the agent of the local executor; it gives a step the step's own environment",
        inherited=(),
        fixed={"PATH": os.defpath, "LC_ALL": "C"},
    ),
    "compile worker": ChildKind(
        programs="Triton, for one job after the other",
        inherited=_LOADER,
        fixed={
            "HOME": "/nonexistent",
            "LANG": "C.UTF-8",
            "PATH": "/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            # backends of other packages must not take part: the job key does not cover them
            "TRITON_BACKENDS_IN_TREE": "1",
            "TZ": "UTC",
        },
    ),
    "verification worker": ChildKind(
        programs="the emulator, executing images that may not be trusted",
        inherited=("PATH", "TMPDIR", "CC", *_LOADER),
        # as many threads as workers already keep every CPU busy
        fixed={"HOME": "/nonexistent", "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    ),
    "device worker": ChildKind(
        programs="a driver library of this machine, executing one image on a GPU or listing the GPUs",
        inherited=(*_TOOL, *_LOADER, "LD_PRELOAD", "CC", *_DRIVER),
        fixed={"LANG": "C.UTF-8"},
    ),
    "release program": ChildKind(
        programs="programs that load a release's library: `check`, `demo`",
        inherited=("PATH", "TMPDIR"),
        fixed={"HOME": "/nonexistent", "LANG": "C.UTF-8"},
    ),
    "another Python": ChildKind(
        programs="the Python of the active environment, which locates its PyTorch or times it on a GPU",
        inherited=(*_TOOL, *_LOADER, "PYTHONPATH", "PYTHONUSERBASE", "LD_PRELOAD", *_DRIVER),
    ),
    "own task": ChildKind(
        programs="this project's commands: `./dev` of a clone, CI jobs, tests, linters, benchmarks",
        inherited=(*_TOOL, *_LOADER, *_NETWORK, *_PIP, *_ENGINE, *_TERMINAL, *_OWN),
    ),
}  # fmt: skip
"""Every kind of child process by name."""


def child_environment(
    kind: str, given: Mapping[str, str] | None = None, add: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The complete environment of a child: inherited from `given` (default: this process's), fixed, and `add`."""
    child = KINDS[kind]
    source = os.environ if given is None else given
    kept = {name: value for name, value in source.items() if _is_inherited(name, child.inherited)}
    return kept | dict(child.fixed) | dict(add or {})


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Names of variables that hold keys: those of this project, of object stores, and by their usual names."""
    return sorted(name for name in environment if any(fnmatchcase(name.upper(), one) for one in _SECRET))


def _is_inherited(name: str, patterns: tuple[str, ...]) -> bool:
    return name in patterns or any(fnmatchcase(name, one) for one in patterns if one.endswith("*"))


def run_child(
    kind: str,
    command: Sequence[str],
    *,
    given: Mapping[str, str] | None = None,
    add: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, as `subprocess.run` does, with text in UTF-8. Raises OSError, subprocess.TimeoutExpired."""
    environment = child_environment(kind, given, add)
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, env=environment, check=False, encoding="utf-8", errors="replace", **options
    )
    return done


def run_child_bytes(
    kind: str, command: Sequence[str], *, given: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """As `run_child`, with output as bytes."""
    return subprocess.run(command, env=child_environment(kind, given), check=False, **options)


def start_child(
    kind: str,
    command: Sequence[str],
    *,
    given: Mapping[str, str] | None = None,
    add: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Starts a program, as `subprocess.Popen` does. Raises OSError, subprocess.SubprocessError."""
    return subprocess.Popen(command, env=child_environment(kind, given, add), **options)
