"""Against the previous point release: libabigail compares the library's symbols, and the types of the headers, with committed baselines.

`compat/abi/<release>.symbols.xml` is the exported interface of the library's file, `<release>.types.xml` the types as a program that
includes the headers sees them (the library itself carries no debug information). Both are made by `write_baseline`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.conformance.checks.abi import OURS
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.conformance.matrix_models import feature_level, version_key
from aotforge.errors import ToolchainError

FOLDER = Path("compat", "abi")
_SECONDS = 120
# abidiff's exit status is a set of bits: 1 and 2 are errors, 4 a change, 8 an incompatible one
_ERRORS, _INCOMPATIBLE = 3, 8


def probe(context: CheckContext) -> str:
    """A library whose only content is the public types, one function each, with debug information."""
    data, rules = context.compat.interface, context.compat.interface.levels[context.compat.level]
    lines = [f"#include {OURS}", "#include <aotriton/util.h>", "using namespace aotriton;", 'extern "C" {']
    types = [*(f"TensorView<{rank}>" for rank in data.tensor_view.sizes), "DType", "Gpu", "Stream"]
    types += [f"v3::flash::LazyTensor<{rank}>" for rank in (2, 4)]
    types += list(rules.structs) + [f"v2::flash::{name}" for name in rules.extra_arguments]
    for number, type_ in enumerate(types):
        name = re.sub(r"\W+", "_", type_).strip("_")
        lines.append(f"void probe_{number:02}_{name}(const {type_}* value) {{ (void)value; }}")
    return "\n".join([*lines, "}", ""])


def check_baseline(context: CheckContext) -> list[Finding]:
    """No removed and no changed symbol or type since the baseline of the same feature release."""
    what = "no removed or changed symbol or type since the previous point release"
    found = previous(context.checkout / FOLDER, context.compat.api)
    if found is None:
        return [not_run("abidiff", what, f"{FOLDER} has no baseline of API level {context.compat.level}")]
    if shutil.which("abidiff") is None:
        return [not_run("abidiff", what, "abidiff is not installed (apt-get install abigail-tools)")]
    symbols = context.checkout / FOLDER / f"{found}.symbols.xml"
    findings = [_compare(f"symbols of the library against {symbols.name}", symbols, context.library)]
    types = symbols.with_name(f"{found}.types.xml")
    library = _probe_library(context)
    if library is None:
        findings.append(
            not_run(
                "abidiff",
                f"types of the headers against {types.name}",
                "no GCC, or the headers do not compile",
            )
        )
    else:
        findings.append(_compare(f"types of the headers against {types.name}", types, library))
    return findings


def previous(folder: Path, api: str) -> str | None:
    """The newest baseline of the same feature release that is not newer than `api`."""
    names = {path.name.removesuffix(".symbols.xml") for path in folder.glob("*.symbols.xml")}
    fitting = [
        name
        for name in names
        if feature_level(name) == feature_level(api) and version_key(name) <= version_key(api)
    ]
    return max(fitting, key=version_key, default=None)


def write_baseline(context: CheckContext) -> tuple[Path, Path]:
    """Writes both baselines of the candidate. Raises ToolchainError without libabigail or a compiler."""
    if shutil.which("abidw") is None:
        raise ToolchainError("abidw is not installed", hint="apt-get install abigail-tools")
    library = _probe_library(context)
    if library is None:
        raise ToolchainError("the headers' types could not be compiled", hint="`./dev check` says why")
    written = []
    for kind, file in (("symbols", context.library), ("types", library)):
        path = context.checkout / FOLDER / f"{context.compat.api}.{kind}.xml"
        # a link under a fixed name: abidw writes the path that it was given
        folder = Path(tempfile.mkdtemp(prefix="abidw-", dir=context.work))
        (folder / context.compat.names[0]).symlink_to(file)
        done = _abi(
            ["abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", context.compat.names[0]],
            folder,
        )
        if done.returncode:
            raise ToolchainError(f"abidw fails: {done.stderr[-300:]}")
        write_atomic(path, done.stdout.encode())
        written.append(path)
    return written[0], written[1]


def _probe_library(context: CheckContext) -> Path | None:
    """Of GCC: clang describes the same types differently, and the baseline is GCC's."""
    compilers = [one for one in context.compilers if one.family == "gcc"]
    if not compilers:
        return None
    standin = [context.standin.include] if context.standin.include else []
    done = context.compilations.compile(
        compilers[-1],
        probe(context),
        includes=[context.prefix / "include", *standin],
        inputs=[context.headers, context.standin.digest],
        flags=[
            "-std=c++17",
            "-g",
            "-gdwarf-4",
            "-O0",
            "-fPIC",
            "-shared",
            "-fno-eliminate-unused-debug-types",
            "-fdebug-prefix-map=/=x/",
        ],
    )
    return done.program


def _compare(what: str, baseline: Path, file: Path) -> Finding:
    if not baseline.is_file():
        return not_run("abidiff", what, f"{baseline.name} is missing")
    done = _abi(["abidiff", "--no-show-locs", "--drop-private-types", str(baseline), str(file)], file.parent)
    if done.returncode & _ERRORS:
        return failed("abidiff", what, f"abidiff fails: {(done.stderr or done.stdout).strip()[:300]}")
    return finding_from("abidiff", what, _losses(done.stdout, done.returncode), "libabigail")


def _losses(report: str, status: int) -> list[str]:
    """Removed and changed things; what is only new is no loss."""
    wrong = [line.strip() for line in report.splitlines() if re.match(r"\s*\[[DC]\]", line)]
    changed = [
        line.strip()
        for line in report.splitlines()
        if re.search(r"(type size|offset) changed|deletion|member function.* was removed", line)
    ]
    wrong += [line for line in changed if line not in wrong]
    if not wrong and status & _INCOMPATIBLE:
        wrong = [line.strip() for line in report.splitlines() if line.strip()][:5]
    return wrong


def _abi(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment
    )
