"""The program `aotforge` of the wheel: the tasks for users of releases, which need no checkout."""

import sys

from aotforge.cli import (  # noqa: F401 - importing a module registers its tasks
    conformance,
    deliver,
    hardware,
    publish,
)
from aotforge.cli.flags import namespace
from aotforge.cli.program import main as run_program

WITHOUT_CHECKOUT = ("install", "dropin", "release.list", "compat", "hardware.check")
"""Tasks that read nothing but the data of the wheel."""


def main() -> None:
    """Runs the command line of this process."""
    run_program(namespace(WITHOUT_CHECKOUT), sys.argv[1:])
