"""A Python script whose Triton kernels execute on the CPU: `python -m ttcpu FILE.py`."""

import os
import runpy
import sys
from pathlib import Path

from triton import backends
from triton.backends import Backend

from ttcpu import driver
from ttcpu.compiler import CPUBackend
from ttcpu.driver import ENABLE, CPUDriver
from ttcpu.errors import TtcpuError
from ttcpu.faults import FaultReports


def main(arguments: list[str]) -> None:
    """Run the script as `__main__`. Raises TtcpuError when there is no such file."""
    if not arguments or not Path(arguments[0]).is_file():
        named = f"{arguments[0]} is not a file" if arguments else "no script is named"
        raise TtcpuError(named, hint="python -m ttcpu FILE.py [ARGUMENTS]")
    os.environ |= {ENABLE: "1", "TRITON_DEFAULT_BACKEND": "cpu"}
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9's default, without its warning
    backends.backends["cpu"] = Backend(CPUBackend, CPUDriver)
    driver.reports = FaultReports()
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except TtcpuError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command line
        sys.exit(2)
