"""The program `aotforge` of the wheel: the tasks for users of releases, which need no checkout."""

import os
import sys
from dataclasses import replace

from aotforge.cli import (  # noqa: F401 - importing a module registers its tasks
    completion,
    conformance,
    deliver,
    hardware,
    publish,
)
from aotforge.cli.command import TASKS
from aotforge.cli.program import main as run_program

WITHOUT_CHECKOUT = (
    *("install", "release.dropin", "release.list"),
    *("compat.which", "compat.show", "compat.explain", "completion"),
)
"""Tasks that read nothing but the data of the wheel."""

SHORT_NAMES = {"dropin": "release.dropin", "compat": "compat.which"}
"""Names that the program has besides."""


def main() -> None:
    """Runs the command line of this process."""
    keep_user_tasks()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    run_program(sys.argv[1:])


def keep_user_tasks() -> None:
    """Removes every other task from `TASKS`, and adds the short names."""
    for name in set(TASKS) - set(WITHOUT_CHECKOUT):
        del TASKS[name]
    for short, name in SHORT_NAMES.items():
        TASKS[short] = replace(TASKS[name], name=short)
