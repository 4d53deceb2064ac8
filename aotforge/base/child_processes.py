"""Starts processes, with the caller's environment less keys, tokens and passwords.

Passwords in addresses (`https://user:password@index`) are removed as well, and what makes a child load code
of others. `keep` names variables that a child has all the same: proxies and pip's settings (`NETWORK`), the
SSH agent of a remote engine (`ENGINE`), libraries and modules of the user's own Python (`USER_PYTHON`).
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NewType

ChildEnvironment = NewType("ChildEnvironment", dict[str, str])
"""A complete environment that a function of this module has made."""

NETWORK = ("*_proxy", "*_PROXY", "PIP_*")
ENGINE = ("SSH_AUTH_SOCK",)
PRELOADED = ("LD_PRELOAD",)
USER_PYTHON = (*PRELOADED, "PYTHONPATH", "PYTHONUSERBASE")

_SECRET = (
    *("*_KEY", "*_KEY_*", "*APIKEY*", "*TOKEN*", "*SECRET*", "*CREDENTIAL*"),
    *("*PASSW*", "*PASSPHRASE*", "*_PASS", "*_PAT", "*_AUTH", "*_AUTH_*"),
)
_DROPPED = (*_SECRET, "*_KEYS", "AWS_*", "LD_PRELOAD", "LD_AUDIT", "PYTHON*", "BASH_ENV", "GIT_*")
_GIT_SETTINGS = (
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
    *("GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM"),
)
"""A hook that calls us sets the other variables of git for its own repository."""

_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")


def child_environment(
    extra: Mapping[str, str] | None = None,
    *,
    base: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
) -> ChildEnvironment:
    """`base` (default: this process's environment) without secrets but what `keep` names, and `extra`."""
    source = os.environ if base is None else base
    kept = {
        name: value if _is_any(name, keep) else _USER_INFO.sub("", value)
        for name, value in source.items()
        if _is_any(name, (*keep, *_GIT_SETTINGS)) or not _is_any(name.upper(), _DROPPED)
    }
    return ChildEnvironment(kept | {"LC_ALL": "C.UTF-8"} | dict(extra or {}))


def fixed_environment(
    values: Mapping[str, str], *names: str, base: Mapping[str, str] | None = None
) -> ChildEnvironment:
    """For steps that are functions of their inputs: `values`, variables of `base` by name, and none else."""
    source = os.environ if base is None else base
    return ChildEnvironment({name: source[name] for name in names if name in source} | dict(values))


def tool_environment(base: Mapping[str, str] | None = None) -> ChildEnvironment:
    """The fixed environment of compilers, linkers, CMake."""
    return fixed_environment({"LC_ALL": "C"}, "PATH", "HOME", "TMPDIR", "SYSTEMROOT", base=base)


def is_secret(name: str) -> bool:
    """Whether a variable of this name usually has a key, a token or a password."""
    return _is_any(name.upper(), _SECRET)


def _is_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def run_child(
    command: Sequence[str], *, environment: ChildEnvironment | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, by default with `child_environment()`; text is UTF-8. Raises OSError."""
    env = child_environment() if environment is None else environment
    return subprocess.run(command, env=env, check=False, encoding="utf-8", errors="replace", **options)


def start_child(
    command: Sequence[str], *, environment: ChildEnvironment | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Starts a program, as `subprocess.Popen` does. Raises OSError, subprocess.SubprocessError."""
    env = child_environment() if environment is None else environment
    return subprocess.Popen(command, env=env, **options)
