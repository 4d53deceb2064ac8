"""Errors for users: what failed, the likely cause, the next step, and an exit code.

Packages raise; only the command line (`aotforge/cli`) prints and exits.
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import ClassVar


FAILED, USAGE, ENVIRONMENT, INPUT, BUSY, UNAVAILABLE, INTEGRITY, INTERRUPTED = 1, 2, 3, 4, 5, 6, 7, 130
"""Exit codes besides 0 (docs/errors.md). `kind` in the JSON of an error is finer."""


class AotforgeError(Exception):
    """Base of every error a user can meet. `what` names the thing; `cause` is the likely reason, `hint` the next step."""

    exit_code: ClassVar[int] = FAILED
    kind: ClassVar[str] = "error"

    def __init_subclass__(cls, *, exit_code: int = FAILED, kind: str = "error") -> None:
        super().__init_subclass__()
        cls.exit_code, cls.kind = exit_code, kind

    def __init__(self, what: str, *, cause: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.what]
        if self.cause:
            parts.append(f"Likely cause: {self.cause}")
        if self.hint:
            parts.append(f"Next step: {self.hint}")
        return "\n".join(parts)

    def fields(self) -> dict[str, str]:
        """For JSON."""
        return {"kind": self.kind, "what": self.what, "cause": self.cause, "hint": self.hint}

    def __reduce__(self) -> tuple[object, ...]:
        # keyword-only arguments do not survive pickling between worker processes by default
        return (_rebuild, (type(self), self.what, self.cause, self.hint))


def _rebuild(cls: type[AotforgeError], what: str, cause: str, hint: str) -> AotforgeError:
    return cls(what, cause=cause, hint=hint)


class UsageError(AotforgeError, exit_code=USAGE, kind="usage"):
    """A command line that cannot be parsed: an unknown task or flag, a missing or invalid value."""


class UnknownNameError(AotforgeError, exit_code=USAGE, kind="unknown-name"):
    """An arch, profile, kernel or family that does not exist."""


class UnsupportedError(AotforgeError, exit_code=USAGE, kind="unsupported"):
    """A combination that is known and not supported."""


class ManifestError(AotforgeError, exit_code=INPUT, kind="manifest"):
    """A manifest that is malformed or holds an unknown key; the message names file, line and key."""


class RulesError(AotforgeError, exit_code=INPUT, kind="rules"):
    """A kernel family whose `rules.py` contradicts itself or its kernel."""


class ToolchainError(AotforgeError, exit_code=ENVIRONMENT, kind="toolchain"):
    """A missing compiler, a wrong Triton version, a missing build tool."""


class CompileError(AotforgeError, exit_code=FAILED, kind="compile"):
    """One or more compile jobs failed; the message has the reproduction command of each."""


class ResourceError(AotforgeError, exit_code=FAILED, kind="resources"):
    """An image spills or exceeds its arch's shared memory where the rules forbid it."""


class OutputError(AotforgeError, exit_code=ENVIRONMENT, kind="output"):
    """The output cannot be written: read-only, disk full, not a directory."""


class OutputBusyError(AotforgeError, exit_code=BUSY, kind="output-busy"):
    """Another build is writing the same output now."""


class PackError(AotforgeError, exit_code=INTEGRITY, kind="pack"):
    """An image pack is truncated, damaged, of another format, or does not match its plan."""


class InterfaceError(AotforgeError, exit_code=INPUT, kind="interface"):
    """Library, rules and pack disagree on the operator interface."""


class CacheError(AotforgeError, exit_code=ENVIRONMENT, kind="cache"):
    """The cache folder cannot be used."""


class RuntimeBuildError(AotforgeError, exit_code=FAILED, kind="runtime-build"):
    """The C++ library did not build, or the result breaks its contract."""


class ReleaseError(AotforgeError, exit_code=INPUT, kind="release"):
    """A release cannot be assembled, or an assembled one differs from its manifest."""


class AccessError(AotforgeError, exit_code=FAILED, kind="access"):
    """An interpreted kernel read or wrote outside the buffers it was given."""


class DecodeError(AotforgeError, exit_code=INPUT, kind="decode"):
    """An assembly text that does not assemble to its image, or an instruction, operand or modifier that the emulator does not know."""


class ExecutionError(AotforgeError, exit_code=FAILED, kind="execution"):
    """An emulated kernel did what it must not: an access out of bounds, a jump into nowhere, no end."""


class VerifyError(AotforgeError, exit_code=FAILED, kind="verify"):
    """An image differs from its reference on the virtual GPU or a device, or no case reaches it, or it was not executed."""


class ContainerError(AotforgeError, exit_code=ENVIRONMENT, kind="container"):
    """A root filesystem cannot be locked, fetched, assembled or entered, or is not the one that its lock names."""


class ExecutorError(AotforgeError, exit_code=ENVIRONMENT, kind="executor"):
    """No container engine, no permission to use it, or one that failed or went away while a step ran."""


class LimitError(AotforgeError, exit_code=FAILED, kind="limit"):
    """A step, or a job of it, needs more memory, time or processes than it may use."""


class ShardError(AotforgeError, exit_code=INPUT, kind="shard"):
    """A shard of a build that is missing, duplicate, damaged, or of another plan, toolchain or revision."""


class CompatError(AotforgeError, exit_code=FAILED, kind="compat"):
    """A release breaks a promise of the compatibility matrix or of its own manifest."""


class PublishError(AotforgeError, exit_code=UNAVAILABLE, kind="publish"):
    """A release cannot be published, mirrored or yanked: the store refuses, fails or holds something else under its names."""


class TrustError(AotforgeError, exit_code=INTEGRITY, kind="trust"):
    """A file differs from the signed one: an invalid signature, an expired or older index, other bytes, an unsafe archive."""


class InstallError(AotforgeError, exit_code=INPUT, kind="install"):
    """A release cannot be installed: nothing fits this machine, the place cannot be read, or other files are in the way."""


class DropInError(AotforgeError, exit_code=INPUT, kind="drop-in"):
    """A release that must not be installed into a PyTorch, a folder that is not a torch/lib, or a damaged record of a drop-in."""


class SignatureError(AotforgeError, exit_code=INTEGRITY, kind="signature"):
    """A signing key that cannot be used, or a signature that does not hold."""


class ReproduceError(AotforgeError, exit_code=FAILED, kind="reproduce"):
    """A release that was built again with other bytes as the result."""


class DoctorError(AotforgeError, exit_code=ENVIRONMENT, kind="doctor"):
    """This machine lacks something that a build, a release, publishing or installing needs."""


class ReportError(AotforgeError, exit_code=INPUT, kind="report"):
    """A file that is not a valid report of a check on hardware, or one of a GPU that an emulator plays."""


class ClusterError(AotforgeError, exit_code=UNAVAILABLE, kind="cluster"):
    """A Dask cluster cannot be used: no scheduler, no usable worker, or a job that was lost with its workers too often."""


class DeviceError(AotforgeError, exit_code=ENVIRONMENT, kind="device"):
    """No GPU of the arch on this machine, or none that its driver shows."""


_SHOWN, _SHOWN_LENGTH = 20, 240
"""Known names that a message lists, and their length: every arch and every profile, but not every image."""


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first names, joined by commas, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def suggest(name: str, known: Iterable[str]) -> str:
    """A 'Perhaps you meant' clause with the nearest known names, or the list, its beginning if it is long, when nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"perhaps you meant {' or '.join(near)}"
    most = next((n for n in range(_SHOWN) if len(", ".join(names[: n + 1])) > _SHOWN_LENGTH), _SHOWN)
    return f"known names: {listed(names, max(most, 1))}"
