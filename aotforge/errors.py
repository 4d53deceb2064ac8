"""Errors for users: what failed, the likely cause, the next step, an exit code per kind.

Packages raise; only the command line (`aotforge/cli`) prints and exits. The base and the errors of the
virtual GPU are vgpu's.
"""

from vgpu.errors import *  # noqa: F403 - every name of vgpu's errors is one of ours
from vgpu.errors import ENVIRONMENT, FAILED, INPUT, USAGE, UserError

AotforgeError = UserError
BUSY, UNAVAILABLE, INTEGRITY, INTERRUPTED = 5, 6, 7, 130
"""Exit codes besides those of vgpu (docs/errors.md)."""


class UsageError(AotforgeError, exit_code=USAGE, kind="usage"):
    """A command line that cannot be parsed: an unknown task or flag, a missing or invalid value."""


class ManifestError(AotforgeError, exit_code=INPUT, kind="manifest"):
    """A manifest that is malformed or holds an unknown key; the message names file, line and key."""


class RulesError(AotforgeError, exit_code=INPUT, kind="rules"):
    """Rules that contradict themselves, their kernel, or the operators of the library or a pack."""


class CompileError(AotforgeError, exit_code=FAILED, kind="compile"):
    """One or more compile jobs failed; the message has the reproduction command of each."""


class ResourceError(AotforgeError, exit_code=FAILED, kind="resources"):
    """An image spills or exceeds its arch's shared memory where the rules forbid it."""


class OutputBusyError(AotforgeError, exit_code=BUSY, kind="output-busy"):
    """Another build is writing the same output now."""


class PackError(AotforgeError, exit_code=INTEGRITY, kind="pack"):
    """An image pack is truncated, damaged, of another format, or does not match its plan."""


class RuntimeBuildError(AotforgeError, exit_code=FAILED, kind="runtime-build"):
    """The C++ library did not build, or the result breaks its contract."""


class ReleaseError(AotforgeError, exit_code=INPUT, kind="release"):
    """A release cannot be assembled, or an assembled one differs from its manifest."""


class VerifyError(AotforgeError, exit_code=FAILED, kind="verify"):
    """An image differs from its reference, no case reaches it, or it was not executed."""


class ContainerError(AotforgeError, exit_code=ENVIRONMENT, kind="container"):
    """A root filesystem cannot be locked, fetched, assembled or entered, or differs from its lock."""


class ExecutorError(AotforgeError, exit_code=ENVIRONMENT, kind="executor"):
    """No container engine, no permission to use it, or one that failed or went away while a step ran."""


class LimitError(AotforgeError, exit_code=FAILED, kind="limit"):
    """A step, or a job of it, needs more memory, time or processes than it may use."""


class CompatError(AotforgeError, exit_code=FAILED, kind="compat"):
    """A release breaks a promise of the compatibility matrix or of its own manifest."""


class PublishError(AotforgeError, exit_code=UNAVAILABLE, kind="publish"):
    """A release cannot be published, mirrored or yanked: the store fails or has other content."""


class TrustError(AotforgeError, exit_code=INTEGRITY, kind="trust"):
    """An invalid signature, an expired or older index, other bytes, or an unsafe archive."""


class InstallError(AotforgeError, exit_code=INPUT, kind="install"):
    """A release cannot be installed: nothing fits, the place cannot be read, or files are in the way."""


class DropInError(AotforgeError, exit_code=INPUT, kind="drop-in"):
    """A release that does not fit a PyTorch, not a torch/lib, or a damaged record of a drop-in."""


class SignatureError(AotforgeError, exit_code=INTEGRITY, kind="signature"):
    """A signing key that cannot be used, or a signature that does not hold."""


class ReproduceError(AotforgeError, exit_code=FAILED, kind="reproduce"):
    """A release that was built again with other bytes as the result."""


class ReportError(AotforgeError, exit_code=INPUT, kind="report"):
    """A file that is not a valid report of a check on hardware, or one of a GPU that an emulator plays."""


class ClusterError(AotforgeError, exit_code=UNAVAILABLE, kind="cluster"):
    """A Dask cluster without scheduler or usable worker, or a job that its workers lost too often."""


class DeviceError(AotforgeError, exit_code=ENVIRONMENT, kind="device"):
    """No GPU of the arch on this machine, or none that its driver shows."""
