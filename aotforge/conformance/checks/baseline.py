"""Comparison with the previous point release by libabigail (baselines in `compat/abi`).

`<release>.symbols.xml` is the exported interface of the library's file, `<release>.types.xml` the types in a program that
includes the headers (the library itself has no debug information). Both are made by `write_baseline`.
"""

import re
import shutil
import tempfile
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.conformance.checks.abi import OURS
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.findings import Finding, failed, finding_from, not_run
from aotforge.errors import ToolchainError
from aotforge.formats.api_level import feature_level, version_key
from aotforge.run.release_programs import FILE_LIMIT

FOLDER = Path("compat", "abi")
_SECONDS = 120
# abidiff's exit status is a set of bits: 1 and 2 are errors, 4 a change, 8 an incompatible one; others are those of a signal
_CHANGE, _INCOMPATIBLE = 4, 8
_PROBE_FLAGS = (
    "-std=c++17 -g -gdwarf-4 -O0 -fPIC -shared -fno-eliminate-unused-debug-types -fdebug-prefix-map=/=x/"
)


def check_baseline(context: CheckContext) -> list[Finding]:
    """No removed and no changed symbol or type since the baseline of the same feature release."""
    what = "no removed or changed symbol or type since the previous point release"
    found = previous(context.checkout / FOLDER, context.compat.release.api_level)
    if found is None:
        return [not_run("abidiff", what, f"{FOLDER} has no baseline of API level {context.compat.level}")]
    if shutil.which("abidiff") is None:
        return [not_run("abidiff", what, "abidiff is not installed (apt-get install abigail-tools)")]
    symbols, types = (context.checkout / FOLDER / f"{found}.{kind}.xml" for kind in ("symbols", "types"))
    what = f"types of the headers against {types.name}"
    library = _probe_library(context)
    return [
        _compare(context, f"symbols of the library against {symbols.name}", symbols, context.library),
        _compare(context, what, types, library)
        if library
        else not_run("abidiff", what, "no GCC, or the headers do not compile"),
    ]


def previous(folder: Path, api: str) -> str | None:
    """The newest baseline of the same feature release that is not newer than `api`."""
    names = {path.name.removesuffix(".symbols.xml") for path in folder.glob("*.symbols.xml")}
    earlier = {name for name in names if version_key(name) <= version_key(api)}
    fitting = [name for name in earlier if feature_level(name) == feature_level(api)]
    return max(fitting, key=version_key, default=None)


def write_baseline(context: CheckContext) -> tuple[Path, Path]:
    """Writes both baselines of the candidate. Raises ToolchainError without libabigail or a compiler."""
    if shutil.which("abidw") is None:
        raise ToolchainError("abidw is not installed", hint="apt-get install abigail-tools")
    library = _probe_library(context)
    if library is None:
        raise ToolchainError(
            "the headers' types could not be compiled", hint="`./dev check` shows the reason"
        )
    return _write(context, "symbols", context.library), _write(context, "types", library)


def _write(context: CheckContext, kind: str, file: Path) -> Path:
    # a link under a fixed name: abidw writes the path that it was given
    folder, name = Path(tempfile.mkdtemp(prefix="abidw-", dir=context.work)), context.compat.names[0]
    (folder / name).symlink_to(file)
    command = ["abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", name]
    done = context.programs.compile(
        command, readable=[context.work], seconds=_SECONDS, folder=folder, output_limit=FILE_LIMIT
    )
    if done.status:
        raise ToolchainError(f"abidw fails: {done.stderr[-300:]}")
    path = context.checkout / FOLDER / f"{context.compat.release.api_level}.{kind}.xml"
    write_atomic(path, done.stdout.encode())
    return path


def _probe_library(context: CheckContext) -> Path | None:
    """A library whose only content is the public types, compiled by GCC: clang describes the same types differently."""
    compilers = [compiler for compiler in context.compilers if compiler.family == "gcc"]
    if not compilers:
        return None
    return context.compile(compilers[-1], _probe(context), flags=_PROBE_FLAGS.split(), link=False).program


def _probe(context: CheckContext) -> str:
    """One function for each public type."""
    data, rules = context.compat.interface, context.compat.interface.levels[context.compat.level]
    lines = [f"#include {OURS}", "#include <aotriton/util.h>", "using namespace aotriton;", 'extern "C" {']
    types = [*(f"TensorView<{rank}>" for rank in data.tensor_view.sizes), "DType", "Gpu", "Stream"]
    types += [f"LazyTensor<{rank}>" for rank in (2, 4)]
    types += list(rules.structs) + [f"v2::flash::{name}" for name in rules.extra_arguments]
    for number, type_ in enumerate(types):
        name = re.sub(r"\W+", "_", type_).strip("_")
        lines.append(f"void probe_{number:02}_{name}(const {type_}* value) {{ (void)value; }}")
    return "\n".join([*lines, "}", ""])


def _compare(context: CheckContext, what: str, baseline: Path, file: Path) -> Finding:
    if not baseline.is_file():
        return not_run("abidiff", what, f"{baseline.name} is missing")
    command = ["abidiff", "--no-show-locs", "--drop-private-types", str(baseline), str(file)]
    readable = [baseline, file.parent, context.work]
    done = context.programs.compile(
        command, readable=readable, seconds=_SECONDS, folder=file.parent, output_limit=FILE_LIMIT
    )
    status = done.status or 0
    if status & ~(_CHANGE | _INCOMPATIBLE):
        return failed("abidiff", what, f"abidiff fails: {(done.stderr or done.stdout).strip()[:300]}")
    return finding_from("abidiff", what, _losses(done.stdout, status), "libabigail")


def _losses(report: str, status: int) -> list[str]:
    """Removed and changed things; an addition is not a loss."""
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    removed = [line for line in lines if re.match(r"\[[DC]\]", line)]
    changed = [
        line
        for line in lines
        if any(words in line for words in ("type size changed", "offset changed", "deletion"))
        or ("member function" in line and " was removed" in line)
    ]
    found = list(dict.fromkeys([*removed, *changed]))
    return found or (lines[:5] or ["an incompatible change without a name"] if status & _INCOMPATIBLE else [])
