"""Check of the headers' public names against the list of their release (`compat/api_names/`)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from aotforge.conformance import public_names
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.library.build_tools import tool_environment

FOLDER = Path("compat", "api_names")
_SECONDS = 120


def check_names(context: CheckContext) -> list[Finding]:
    """Every name of the release's headers exists, in its scope, with its type and constness. Additions are allowed."""
    release = context.compat.interface.levels[context.compat.level].serves[-1]
    what = f"every public name of AOTriton {release}"
    clang = next((one for one in reversed(context.compilers) if one.family == "clang"), None)
    if clang is None:
        return [not_run("names", what, "no clang is installed, whose syntax tree lists the names")]
    wanted = public_names.read_names(context.checkout / FOLDER / f"{release}.tsv")
    hip = context.hip.include or context.standin.include
    includes = [context.prefix / "include", *([hip] if hip else [])]
    done = subprocess.run(
        [str(clang.path), clang.standard("17"), *context.hip.flags, *(f"-I{path}" for path in includes),
         *public_names.CLANG_FLAGS, "-x", "c++", "-"],
        input=public_names.program(), capture_output=True, text=True, check=False, timeout=_SECONDS,
        env=tool_environment(os.environ),
    )  # fmt: skip
    if done.returncode:
        return [failed("names", what, f"{clang.name} does not compile the headers: {done.stderr[-300:]}")]
    found = public_names.differences(wanted, public_names.names_of_dump(done.stdout))
    return [finding_from("names", what, found, f"{len(wanted)} names, by {clang.name}")]
