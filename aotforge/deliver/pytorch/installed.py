"""The PyTorch that the Python of an environment imports."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from aotforge.base.child_processes import USER_PYTHON, child_environment, run_child
from aotforge.errors import DropInError

_HINT = "activate the environment that has PyTorch, or name its folder: --pytorch-lib SITE-PACKAGES/torch/lib"
# torch is located and not imported: a module of the current folder must not be found in its place
_PROGRAM = """\
import sys
del sys.path[0]
from importlib.util import find_spec
spec = find_spec("torch")
print(spec.origin if spec and spec.origin else "")
"""


def active_python(environment: Mapping[str, str]) -> str:
    """The Python of the active virtual or Conda environment, else python3 on PATH."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environment.get(name):
            return str(Path(environment[name], "bin", "python3"))
    return "python3"


def find_torch_lib(environment: Mapping[str, str]) -> Path:
    """torch/lib of the PyTorch that this Python would import. Raises DropInError when there is none."""
    python = active_python(environment)
    try:
        own = child_environment(base=environment, keep=USER_PYTHON)
        done = run_child([python, "-c", _PROGRAM], environment=own, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DropInError(f"{python} does not run: {error}", hint=_HINT) from None
    origin = done.stdout.strip()
    if done.returncode or not origin:
        raise DropInError(
            f"{python} finds no PyTorch",
            cause=done.stderr.strip().splitlines()[-1]
            if done.returncode and done.stderr.strip()
            else "torch is not installed in this environment",
            hint=_HINT,
        )
    return Path(origin).parent / "lib"
